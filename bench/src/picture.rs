//! The picture at the top of the README: rows of the peers' table as bars, legible on light and on dark pages.
//!
//! It is made of the table's text, so that it shows the table's figures whoever measured them.

use std::fmt::Write;

use crate::markdown::between;

/// What is shown of the table: a row, and what the picture says above its bars.
const SHOWN: [(&str, &str); 3] = [
    ("load: peak heap, bytes", "Memory: peak heap of a load, bytes"),
    ("load: peak RSS of the process, KiB", "Memory: peak resident set of the whole process, KiB"),
    ("prepare: instructions", "Instructions: from opening the object to the last relocated program"),
];

const WIDTH: f64 = 760.0;
const LEFT: f64 = 170.0;
const LONGEST: f64 = 400.0;
const BAR: f64 = 18.0;
const STEP: f64 = 24.0;
const PANEL: f64 = 116.0;
const TOP: f64 = 58.0;

/// An SVG document of what `markdown`, a file with the table between its markers `peers`, has in its first table.
///
/// # Panics
/// If the file has no such table, or the table lacks a row that is shown, or has something else than numbers there.
#[must_use]
pub fn picture(markdown: &str) -> String {
    let text = between(markdown, "peers").unwrap_or_else(|| panic!("nothing is between the markers `peers`"));
    let rows: Vec<Vec<&str>> = text.lines().skip_while(|line| !line.starts_with('|')).map_while(cells).collect();
    let (head, rows) = rows.split_first().unwrap_or_else(|| panic!("no table is between the markers `peers`"));
    let about = text.lines().next().unwrap_or_default();
    let (object, kernel) = about.split_once(". Kernel: ").unwrap_or((about, ""));
    let kernel = kernel.split(['-', ' ']).take(2).collect::<Vec<_>>().join(" ");
    let object = object.trim_start_matches("Object: ");

    let height = TOP + PANEL * SHOWN.len() as f64 - 8.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-16 -10 {} {}\" role=\"img\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <title>One object loaded by each: memory and instructions</title>\n\
         <style>\n\
         .page {{ fill: #ffffff }} text {{ fill: #1f2328 }} .about {{ fill: #59636e }} .own {{ fill: #1b6ca8 }} .other {{ fill: #9aa4ae }}\n\
         @media (prefers-color-scheme: dark) {{\n\
         .page {{ fill: #0d1117 }} text {{ fill: #e6edf3 }} .about {{ fill: #9198a1 }} .own {{ fill: #58a6ff }} .other {{ fill: #656c76 }}\n\
         }}\n\
         </style>\n\
         <rect x=\"-16\" y=\"-10\" width=\"100%\" height=\"100%\" class=\"page\"/>\n\
         <text x=\"0\" y=\"18\" font-size=\"17\" font-weight=\"bold\">The same object, loaded by each</text>\n\
         <text x=\"0\" y=\"38\" class=\"about\">{}</text>\n",
        WIDTH + 32.0,
        height + 20.0,
        escaped(&format!("{object}; {kernel}"))
    );
    for (panel, (row, title)) in SHOWN.iter().enumerate() {
        let found =
            rows.iter().find(|cells| cells[0] == *row).unwrap_or_else(|| panic!("the table has no row {row:?}"));
        let values: Vec<f64> = found[1..].iter().map(|cell| number(row, cell)).collect();
        let most = values.iter().copied().fold(1.0, f64::max);
        let top = TOP + PANEL * panel as f64;
        let _ = writeln!(svg, "<text x=\"0\" y=\"{:.1}\" font-weight=\"bold\">{}</text>", top + 14.0, escaped(title));
        for (index, (value, text)) in values.iter().zip(&found[1..]).enumerate() {
            let y = top + 24.0 + STEP * index as f64;
            // What would be too short to be seen is as wide as a line.
            let width = (value / most * LONGEST).max(1.5);
            let class = if index == 0 { "own" } else { "other" };
            let times = if index == 0 { String::new() } else { format!("  ({:.1} ×)", value / values[0].max(1.0)) };
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n\
                 <rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" class=\"{class}\"/>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\">{text}{times}</text>",
                LEFT - 10.0,
                y + 13.5,
                escaped(head[index + 1].split(" (").next().unwrap_or_default()),
                LEFT + width + 8.0,
                y + 13.5,
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// The cells of a table's line; nothing where the table has ended. The line below its head has none.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

fn number(row: &str, cell: &str) -> f64 {
    cell.replace(',', "").parse().unwrap_or_else(|_| panic!("{row}: {cell:?} is no number"))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use corelo_tests::corpus::workspace_root;

    const TABLE: &str = "\
<!-- peers -->
Object: one (1 program). Kernel: Linux 6.18.44-x x86_64. More.

|  | Own 1 | Other 2 (that) |
|---|---:|---:|
| load: peak heap, bytes | 1,000 | 4,000 |
| load: peak RSS of the process, KiB | 0 | 12 |
| prepare: instructions | 5 | 15 |

| prepare: instructions | 77 | 88 |
<!-- /peers -->
";

    #[test]
    fn bars_are_as_long_as_the_figures_say() {
        let svg = picture(TABLE);
        let widths: Vec<&str> = svg
            .split("<rect ")
            .skip(2)
            .map(|rest| rest.split("width=\"").nth(1).unwrap().split('"').next().unwrap())
            .collect();
        assert_eq!(widths, ["100.0", "400.0", "1.5", "400.0", "133.3", "400.0"]);
        assert!(svg.contains(">4,000  (4.0 ×)<") && svg.contains(">Other 2<") && svg.contains("; Linux 6.18.44<"));
        assert!(!svg.contains("77"), "{svg}");
    }

    #[test]
    #[should_panic(expected = "no row \"prepare: instructions\"")]
    fn a_table_without_a_row_has_no_picture() {
        let _ = picture(&TABLE.replace("prepare: ins", "ins"));
    }

    #[test]
    #[should_panic(expected = "\"no API\" is no number")]
    fn a_cell_without_a_number_has_no_picture() {
        let _ = picture(&TABLE.replace("4,000", "no API"));
    }

    /// The picture that is in the repository is that of the README's table.
    #[test]
    fn the_committed_picture_shows_the_figures_of_the_readme() {
        let read = |name: &str| std::fs::read_to_string(workspace_root().join(name)).unwrap();
        let (readme, svg) = (read("README.md"), read("bench/peers.svg"));
        for (row, _) in SHOWN {
            let line = readme.lines().find(|line| line.starts_with(&format!("| {row} |"))).unwrap();
            for cell in &cells(line).unwrap()[1..] {
                assert!(svg.contains(&format!(">{cell}<")) || svg.contains(&format!(">{cell}  (")), "{row}: {cell}");
            }
        }
        let again = "cargo run -p corelo-bench --bin picture -- README.md bench/peers.svg";
        assert!(svg == picture(&readme), "bench/peers.svg is not the README's; {again}");
        assert!(readme.contains("(bench/peers.svg)"), "the README does not show it");
    }
}
