//! The loader's wings stand on floors: what one imports lies on a floor below it, so that there is no circle.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// From the bottom up. A new wing gets its floor here, and a line in lib.rs's map.
const FLOORS: [&str; 9] = ["sys", "objects", "kernel", "attach", "events", "prepare", "load", "report", "loader"];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../std-loader/src")
}

/// Every Rust file below a directory.
fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The path of the module that a file is: `kernel/features/btf.rs` is `["kernel", "features", "btf"]`.
fn module(path: &Path) -> Vec<String> {
    let path = path.strip_prefix(source()).unwrap().with_extension("");
    path.iter().map(|part| part.to_str().unwrap().to_owned()).filter(|part| part != "mod").collect()
}

/// Its code: without comments and without tests, which may use what stands above.
fn code(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "#[cfg(test)]" && lines.peek().is_some_and(|next| next.starts_with("mod ") && next.ends_with('{')) {
            break;
        }
        code.push_str(line.split("//").next().unwrap());
        code.push('\n');
    }
    code
}

fn word(text: &str) -> &str {
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(text.len());
    &text[..end]
}

/// The first words of what follows `crate::`: one, or those of a list in braces.
fn first_words(text: &str) -> Vec<&str> {
    let Some(list) = text.strip_prefix('{') else { return vec![word(text)] };
    let (mut depth, mut words, mut start) = (0, Vec::new(), 0);
    for (at, letter) in list.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                words.push(word(list[start..at].trim_start()));
                start = at + 1;
                if letter == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    words.into_iter().filter(|word| !word.is_empty()).collect()
}

/// The wings that code of a module names, by `crate::` or by as many `super::` as lead out of its own.
fn named<'c>(code: &'c str, module: &[String]) -> BTreeSet<&'c str> {
    let mut wings = BTreeSet::new();
    let starts_path =
        |at: usize| !code[..at].ends_with(|letter: char| letter.is_alphanumeric() || "_:$".contains(letter));
    for (at, found) in code.match_indices("crate::") {
        if starts_path(at) {
            wings.extend(first_words(&code[at + found.len()..]));
        }
    }
    for (at, _) in code.match_indices("super::") {
        if !starts_path(at) {
            continue;
        }
        let (mut rest, mut left) = (&code[at..], module.len());
        while let (Some(after), 1..) = (rest.strip_prefix("super::"), left) {
            (rest, left) = (after, left - 1);
        }
        if left == 0 {
            wings.extend(first_words(rest));
        }
    }
    wings
}

/// What is wrong with the imports of a module.
fn faults(module: &[String], code: &str) -> Vec<String> {
    let floor = |wing: &str| FLOORS.iter().position(|name| *name == wing);
    // lib.rs itself stands on all of them.
    let Some(own) = floor(&module[0]) else { return Vec::new() };
    let wrong = |wing: &&str| floor(wing).is_none_or(|floor| floor > own);
    named(code, module).iter().filter(|wing| wrong(wing)).map(|wing| format!("{}: {wing}", module.join("::"))).collect()
}

#[test]
fn no_wing_imports_from_above() {
    let mut all = Vec::new();
    files(&source(), &mut all);
    let mut said = Vec::new();
    let mut arrows = BTreeSet::new();
    for path in &all {
        if path.file_name().is_some_and(|name| name == "tests.rs") {
            continue;
        }
        let module = module(path);
        let code = code(&std::fs::read_to_string(path).unwrap());
        said.extend(faults(&module, &code));
        arrows.extend(
            named(&code, &module)
                .into_iter()
                .filter(|to| *to != module[0])
                .map(|to| (module[0].clone(), to.to_owned())),
        );
    }
    assert!(said.is_empty(), "imports upward, or of what is no wing: {said:#?}");
    // That files were read at all.
    for (from, to) in
        [("report", "load"), ("load", "attach"), ("attach", "kernel"), ("kernel", "objects"), ("objects", "sys")]
    {
        assert!(arrows.contains(&(from.to_owned(), to.to_owned())), "{from} to {to}: {arrows:?}");
    }
}

#[test]
fn imports_are_found_in_each_form() {
    let module = |path: &str| path.split("::").map(str::to_owned).collect::<Vec<_>>();
    for (of, code, want) in [
        ("kernel::btf", "use crate::attach::Link;", 1),
        ("kernel::btf", "use crate::{load::Collection, sys::Errno, report};", 2),
        ("kernel::btf", "use crate::{objects::{self, Map}, attach};", 1),
        ("kernel::features::probes", "let map = super::super::super::load::map_name();", 1),
        ("kernel::features::probes", "use super::super::btf;", 0),
        ("kernel", "use super::report;", 1),
        ("kernel", "use crate::sys::Errno; fn f() { crate::kernel::btf::modules() }", 0),
        ("sys::bpf", "crate::objects::Memlock", 1),
        ("report", "use corelo_core::load;", 0),
        ("kernel", "use crate::nowhere::Thing;", 1),
    ] {
        assert_eq!(faults(&module(of), code).len(), want, "{of}: {code}");
    }
    let text = "// crate::report\nuse crate::sys;\n#[cfg(test)]\nmod tests {\n    use crate::report;\n}\n";
    assert_eq!(named(&code(text), &module("kernel")), BTreeSet::from(["sys"]));
}

/// The names of the modules that a file declares.
fn declared(text: &str) -> Vec<&str> {
    let declaration = |line: &'_ str| {
        let line = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub ")).unwrap_or(line);
        line.starts_with("mod ") && line.ends_with(';')
    };
    let mut names = Vec::new();
    let mut is_for_tests = false;
    for line in text.lines() {
        if declaration(line) && !is_for_tests {
            names.push(line.trim_end_matches(';').rsplit(' ').next().unwrap());
        }
        is_for_tests = line.starts_with("#[cfg(") && line.contains("test") || is_for_tests && line.starts_with('#');
    }
    names
}

#[test]
fn the_map_of_the_crate_and_that_of_each_wing_are_complete() {
    let read =
        |path: PathBuf| std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let library = read(source().join("lib.rs"));
    let mut wings = declared(&library);
    let on_map: Vec<_> = library.lines().filter_map(|line| line.strip_prefix("//! - [`")?.split('`').next()).collect();
    let from_the_top: Vec<_> = FLOORS.iter().rev().copied().collect();
    assert_eq!(on_map, from_the_top, "lib.rs's map");
    wings.sort_unstable();
    let mut floors = FLOORS;
    floors.sort_unstable();
    assert_eq!(wings, floors, "lib.rs's modules");
    for wing in FLOORS {
        let root = read(source().join(wing).with_extension("rs"));
        for room in declared(&root) {
            let is_it = |line: &str| {
                line.strip_prefix("//! - ")
                    .is_some_and(|line| line.trim_start_matches('[').starts_with(&format!("`{room}`")))
            };
            assert!(root.lines().any(is_it), "{wing}.rs has no line for {room}");
        }
    }
}

/// Doing the work once more with the whole of the kernel's BTF is decided in one place, which everybody goes through.
#[test]
fn there_is_one_retry() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut all, mut found) = (Vec::new(), Vec::new());
    for directory in ["std-loader/src", "targets/agent/src", "targets/minimal-agent/src", "targets/capi/src"] {
        files(&root.join(directory), &mut all);
    }
    for path in &all {
        let code = code(&std::fs::read_to_string(path).unwrap());
        for word in ["takes_whole_after(", "KernelError::NeedsWhole", "again::run("] {
            let times = code.matches(word).count();
            if times > 0 {
                found.push((path.strip_prefix(&root).unwrap().to_str().unwrap(), word, times));
            }
        }
    }
    let place = "std-loader/src/prepare.rs";
    // What asks for it, and what answers: `KernelError::NeedsWhole` is given and taken once.
    let expected = [(place, "takes_whole_after(", 2), (place, "KernelError::NeedsWhole", 2), (place, "again::run(", 1)];
    assert_eq!(found, expected);
}

/// Whether a line of a module's documentation says what a kind of link needs: `Linux 5.7; CAP_BPF and CAP_PERFMON`.
fn says_what_it_needs(line: &str) -> bool {
    let Some((kernel, capabilities)) = line.strip_prefix("//! Linux ").and_then(|line| line.split_once("; ")) else {
        return false;
    };
    let version = kernel.strip_prefix("after ").unwrap_or(kernel).split([' ', ',']).next().unwrap();
    let is_version = version
        .split_once('.')
        .is_some_and(|(major, minor)| [major, minor].iter().all(|number| number.parse::<u32>().is_ok()));
    let is_known = |word: &str| ["CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"].contains(&word.trim_end_matches(','));
    let named: Vec<_> = capabilities.split(' ').filter(|word| word.starts_with("CAP_")).collect();
    is_version && named.first() == Some(&"CAP_BPF") && named.len() > 1 && named.into_iter().all(is_known)
}

#[test]
fn the_page_of_each_kind_of_link_says_which_linux_and_capabilities_it_needs() {
    let attach = source().join("attach.rs");
    let text = std::fs::read_to_string(&attach).unwrap();
    let public = text.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    // Where a function is in its file: what others stand on.
    let kinds: Vec<_> = public.filter(|name| *name != "symbols").collect();
    assert!(kinds.len() > 15 && kinds.contains(&"xdp"), "{kinds:?}");
    for kind in kinds {
        let page = std::fs::read_to_string(attach.with_extension("").join(kind).with_extension("rs")).unwrap();
        let said = page.lines().take_while(|line| line.starts_with("//!")).filter(|line| says_what_it_needs(line));
        assert_eq!(said.count(), 1, "attach/{kind}.rs has no line `Linux X.Y; CAP_...`, or several");
    }
    for (line, is_one) in [
        ("//! Linux 5.7; CAP_BPF and CAP_PERFMON", true),
        ("//! Linux 4.15, by links 5.7; CAP_BPF and CAP_NET_ADMIN", true),
        ("//! Linux after 7.2; CAP_BPF and CAP_PERFMON", true),
        ("//! Linux 5.7", false),
        ("//! Linux 5; CAP_BPF and CAP_PERFMON", false),
        ("//! Linux 5.7; CAP_BPF", false),
        ("//! Linux 5.7; CAP_BPF and CAP_PREFMON", false),
        ("//! Linux 5.7; root", false),
        ("/// Linux 5.7; CAP_BPF and CAP_PERFMON", false),
    ] {
        assert_eq!(says_what_it_needs(line), is_one, "{line}");
    }
}
