//! Who uses whom: no two rooms of a crate use each other, neither do the modules of one room, and no way leads back.
//!
//! A room is a module at the top of a crate: `foo.rs`, and what is in `foo/`. Within a room its own file is left out: it
//! declares and re-exports the others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The crates, by the folders of their sources.
const CRATES: &[&str] = &["core/src"];

type Arrows = BTreeMap<String, BTreeSet<String>>;

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// What a path in `text`, which starts behind its `::`, leads to: the first two names of each way through its braces.
fn ways(text: &str, depth: usize) -> Vec<Vec<String>> {
    if let Some(list) = text.strip_prefix('{') {
        let (mut level, mut start, mut found) = (0, 0, Vec::new());
        for (at, byte) in list.bytes().enumerate() {
            match byte {
                b'{' => level += 1,
                b'}' if level > 0 => level -= 1,
                b',' | b'}' if level == 0 => {
                    found.extend(ways(list[start..at].trim_start(), depth));
                    start = at + 1;
                    if byte == b'}' {
                        break;
                    }
                }
                _ => {}
            }
        }
        return found;
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    if end == 0 {
        return Vec::new();
    }
    let name = text[..end].to_owned();
    match text[end..].strip_prefix("::").filter(|_| depth > 1).map(|rest| ways(rest, depth - 1)) {
        Some(rest) if !rest.is_empty() => rest.into_iter().map(|way| [vec![name.clone()], way].concat()).collect(),
        _ => vec![vec![name]],
    }
}

/// Without comments and unit tests, which stand at the end of a file.
fn code(text: &str) -> String {
    let product = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = product.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// The arrows between the rooms of a crate, and those between the modules of each room.
fn arrows(src: &Path) -> (Arrows, BTreeMap<String, Arrows>) {
    let mut files = Vec::new();
    sources(src, &mut files);
    let module = |path: &Path| -> Vec<String> {
        let path = path.strip_prefix(src).expect("a source of the crate").with_extension("");
        path.iter().map(|name| name.to_str().expect("UTF-8").to_owned()).filter(|name| name != "mod").collect()
    };
    let modules: BTreeSet<Vec<String>> = files.iter().map(|path| module(path)).collect();
    let (mut rooms, mut inner) = (Arrows::new(), BTreeMap::<String, Arrows>::new());
    for path in &files {
        let from = module(path);
        if from == ["lib"] {
            continue;
        }
        let text = code(&std::fs::read_to_string(path).expect("a source"));
        let mut targets = Vec::new();
        for (at, _) in text.match_indices("crate::") {
            targets.extend(ways(&text[at + "crate::".len()..], 2));
        }
        for (at, _) in text.match_indices("super::") {
            if text[..at].ends_with("super::") {
                continue;
            }
            let rest = &text[at..];
            let up = rest.len() - rest.trim_start_matches("super::").len();
            let parent = &from[..from.len().saturating_sub(up / "super::".len())];
            targets.extend(ways(&rest[up..], 2).into_iter().map(|way| [parent.to_vec(), way].concat()));
        }
        for target in targets.iter().filter(|target| modules.contains(&target[..1])) {
            if target[0] != from[0] {
                rooms.entry(from[0].clone()).or_default().insert(target[0].clone());
            } else if let (Some(one), Some(other)) = (from.get(1), target.get(1))
                && one != other
                && modules.contains(&target[..2])
            {
                let room = inner.entry(from[0].clone()).or_default();
                room.entry(one.clone()).or_default().insert(other.clone());
            }
        }
    }
    (rooms, inner)
}

/// A way that leads back to where it starts.
fn circle(arrows: &Arrows) -> Option<Vec<String>> {
    fn walk<'a>(arrows: &'a Arrows, way: &mut Vec<&'a str>, done: &mut BTreeSet<&'a str>) -> Option<Vec<String>> {
        let at = way.last().copied()?;
        for next in arrows.get(at).into_iter().flatten() {
            if let Some(start) = way.iter().position(|seen| seen == next) {
                return Some(way[start..].iter().chain([&next.as_str()]).map(|&name| name.to_owned()).collect());
            }
            if !done.contains(next.as_str()) {
                way.push(next);
                let found = walk(arrows, way, done);
                if found.is_some() {
                    return found;
                }
                way.pop();
            }
        }
        done.insert(at);
        None
    }
    let mut done = BTreeSet::new();
    arrows.keys().find_map(|start| walk(arrows, &mut vec![start], &mut done))
}

#[test]
fn no_room_uses_one_that_uses_it() {
    for name in CRATES {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
        let (rooms, inner) = arrows(&src);
        println!("{name}: {} arrows from {} rooms: {rooms:?}", rooms.values().flatten().count(), rooms.len());
        assert!(rooms.len() > 5 && !inner.is_empty(), "{name}: the sources were not found or not understood");
        assert_eq!(circle(&rooms).map(|way| way.join(" -> ")), None, "{name}");
        for (room, arrows) in &inner {
            assert_eq!(circle(arrows).map(|way| way.join(" -> ")), None, "{name}/{room}");
        }
    }
}

#[test]
fn a_way_back_is_found() {
    let arrows = |list: &[(&str, &str)]| {
        let mut arrows = Arrows::new();
        for (from, to) in list {
            arrows.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        arrows
    };
    assert_eq!(circle(&arrows(&[("a", "b"), ("b", "c"), ("a", "c")])), None);
    let found = circle(&arrows(&[("a", "b"), ("b", "c"), ("c", "b")])).expect("b and c");
    assert_eq!(found, ["b", "c", "b"]);
}

#[test]
fn uses_are_read_through_braces() {
    let names = |text: &str| ways(text, 2).iter().map(|way| way.join("::")).collect::<Vec<_>>();
    assert_eq!(names("btf::ext::CoreRelo;"), ["btf::ext"]);
    assert_eq!(names("btf::{self, Types, ext::{A, B}};"), ["btf::self", "btf::Types", "btf::ext"]);
    assert_eq!(names("{Object, maps::{A, B},\n legacy_maps};"), ["Object", "maps::A", "maps::B", "legacy_maps"]);
    assert_eq!(names("numbers::to_u32(index)"), ["numbers::to_u32"]);
}
