//! Plots as SVG: points joined by lines on two linear axes.

use std::fmt::Write;

/// Points that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// What the legend calls it.
    pub name: String,
    /// Points, from left to right.
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
const COLOURS: [&str; 8] = ["#1b6ca8", "#c0392b", "#2e8b57", "#8e5ea2", "#d68910", "#5d6d7e", "#a04000", "#117a65"];

/// An SVG document.
#[must_use]
pub fn plot(title: &str, x_label: &str, y_label: &str, series: &[Series]) -> String {
    let all = || series.iter().flat_map(|series| &series.points);
    let max_x = nice(all().map(|point| point.0).fold(0.0, f64::max));
    let max_y = nice(all().map(|point| point.1).fold(0.0, f64::max));
    let x = |value: f64| LEFT + value / max_x * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| HEIGHT - BOTTOM - value / max_y * (HEIGHT - TOP - BOTTOM);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{}</text>\n",
        escaped(title)
    );
    for step in 0..=5 {
        let share = f64::from(step) / 5.0;
        let (at_x, at_y) = (x(share * max_x), y(share * max_y));
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{at_y:.1}\" x2=\"{:.1}\" y2=\"{at_y:.1}\" stroke=\"#ddd\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n\
             <text x=\"{at_x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at_y + 4.0,
            short(share * max_y),
            HEIGHT - BOTTOM + 18.0,
            short(share * max_x),
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
         <text x=\"18\" y=\"{:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 18 {:.1})\">{}</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 10.0,
        escaped(x_label),
        HEIGHT / 2.0,
        HEIGHT / 2.0,
        escaped(y_label),
    );
    for (number, series) in series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let points: Vec<String> = series.points.iter().map(|&(px, py)| format!("{:.1},{:.1}", x(px), y(py))).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            points.join(" ")
        );
        for &(px, py) in &series.points {
            let _ = writeln!(svg, "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>", x(px), y(py));
        }
        let at = TOP + 18.0 * number as f64;
        let left = WIDTH - RIGHT + 14.0;
        let _ = writeln!(
            svg,
            "<rect x=\"{left}\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\n<text x=\"{}\" y=\"{at:.1}\">{}</text>",
            at - 9.0,
            left + 16.0,
            escaped(&series.name)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// The next 1, 2 or 5 times a power of ten; 1 for nothing.
fn nice(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|step| step * power).into_iter().find(|&step| step >= value).unwrap_or(value)
}

fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.4} M", value / 1e6).replace(".0000", ""),
        value if value >= 1e4 => format!("{:.1} k", value / 1e3).replace(".0", ""),
        value => format!("{value:.1}").replace(".0", ""),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        assert_eq!([0.0, 1.0, 3.0, 7.0, 1234.0].map(nice), [1.0, 1.0, 5.0, 10.0, 2000.0]);
    }

    #[test]
    fn every_point_is_drawn() {
        let series = Series { name: "a & b".to_owned(), points: vec![(0.0, 0.0), (10.0, 5.0)] };
        let svg = plot("t", "x", "y", &[series]);
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.contains("a &amp; b") && svg.ends_with("</svg>\n"));
    }
}
