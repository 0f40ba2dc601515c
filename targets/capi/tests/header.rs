//! `corelo.h` is what cbindgen makes of the sources now. `CORELO_WRITE_HEADER=1` writes it.
//!
//! Two runs of cbindgen, one for each level, put together with the rules in front; `CORELO_CORE_ONLY` leaves out the
//! second.

use std::fs;
use std::path::{Path, PathBuf};

use cbindgen::{Builder, Config, DocumentationStyle, Language, RenameRule, Style};

/// What the types are called in C.
const NAMES: [(&str, &str); 19] = [
    ("Code", "corelo_code"),
    ("Error", "corelo_error"),
    ("Text", "corelo_text"),
    ("Prepared", "corelo_prepared"),
    ("ObjectInfo", "corelo_object_info"),
    ("ProgramInfo", "corelo_program_spec"),
    ("Reference", "corelo_reference"),
    ("Patch", "corelo_patch"),
    ("MapInfo", "corelo_map_spec"),
    ("Status", "corelo_status"),
    ("Relocation", "corelo_relocation"),
    ("EachRelocation", "corelo_each_relocation"),
    ("Options", "corelo_options"),
    ("Loader", "corelo_loader"),
    ("Summary", "corelo_loader_summary"),
    ("Map", "corelo_map"),
    ("Ring", "corelo_ring"),
    ("EachRecord", "corelo_each_record"),
    ("KernelBtf", "corelo_kernel_btf"),
];

const CORE: [&str; 6] = ["error", "memory", "prepared", "programs", "maps", "relocations"];
const LOADER: [&str; 4] = ["options", "loader", "maps", "ring"];

fn generate(home: &Path, files: &[&str]) -> String {
    let mut config = Config {
        language: Language::C,
        style: Style::Type,
        cpp_compat: false,
        no_includes: true,
        documentation_style: DocumentationStyle::Doxy,
        line_length: 120,
        ..Config::default()
    };
    config.enumeration.rename_variants = RenameRule::QualifiedScreamingSnakeCase;
    config.export.rename = NAMES.iter().map(|(rust, c)| ((*rust).to_owned(), (*c).to_owned())).collect();
    let mut builder = Builder::new().with_config(config);
    for file in files {
        builder = builder.with_src(home.join("src").join(format!("{file}.rs")));
    }
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    without_safety(&String::from_utf8(text).unwrap())
}

/// Drops Rust's `# Safety` sections: the rules at the top of the header say it for C.
fn without_safety(header: &str) -> String {
    let mut out = String::new();
    let mut is_dropping = false;
    for line in header.lines() {
        let words = line.trim_start().trim_start_matches('*').trim();
        if words == "# Safety" {
            is_dropping = true;
            // The empty line before goes too.
            if let Some(end) = out.trim_end().strip_suffix('*').filter(|end| end.ends_with(' ')) {
                out.truncate(end.trim_end().len());
                out.push('\n');
            }
        } else if is_dropping && line.trim() == "*/" {
            is_dropping = false;
        }
        if !is_dropping {
            out.push_str(line.trim_end());
            out.push('\n');
        }
    }
    out
}

fn header() -> String {
    let home = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let rules = fs::read_to_string(home.join("rules.h")).unwrap();
    let (before, rest) = rules.split_once("@CORE@\n").unwrap();
    let (between, after) = rest.split_once("@LOADER@\n").unwrap();
    let core = generate(&home.join("core"), &CORE);
    let loader = generate(&home, &LOADER);
    format!("{before}{}\n{between}{}\n{after}", core.trim(), loader.trim())
}

#[test]
fn the_header_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("corelo.h");
    let want = header();
    if std::env::var_os("CORELO_WRITE_HEADER").is_some_and(|value| value == "1") {
        fs::write(&path, &want).unwrap();
    }
    let have = fs::read_to_string(&path).unwrap_or_default();
    let at = have.lines().zip(want.lines()).position(|(have, want)| have != want);
    assert!(
        have == want,
        "corelo.h is not what its sources make (first at line {}): \
         CORELO_WRITE_HEADER=1 cargo test -p corelo-capi --features header",
        at.unwrap_or_else(|| have.lines().count().min(want.lines().count())) + 1
    );
}

/// Every function that the libraries export is in the header, and nothing else is.
#[test]
fn every_exported_function_is_in_the_header() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut names = Vec::new();
    for directory in [home.join("core/src"), home.join("src")] {
        for entry in fs::read_dir(directory).unwrap() {
            let text = fs::read_to_string(entry.unwrap().path()).unwrap();
            let after = text.split("#[unsafe(no_mangle)]").skip(1);
            names.extend(after.map(|text| {
                let rest = text.split_once("fn ").unwrap().1;
                rest.split('(').next().unwrap().to_owned()
            }));
        }
    }
    assert!(names.len() > 25, "{names:?}");
    let header = header();
    for name in &names {
        assert!(header.contains(&format!("{name}(")), "{name} is not in the header");
    }
}
