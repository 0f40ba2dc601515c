//! The README's program is that of an example, which `examples.rs` builds and runs.

use corelo_tests::corpus::workspace_root;

#[test]
fn the_program_in_the_readme_is_in_an_example() {
    let read = |name: &str| std::fs::read_to_string(workspace_root().join(name)).unwrap();
    let (readme, example) = (read("README.md"), read("std-loader/examples/watch.rs"));
    let section = readme.split("## In a program").nth(1).unwrap().split("\n## ").next().unwrap();
    let code: Vec<_> = section.lines().filter_map(|line| line.strip_prefix("    ")).collect();
    assert!(code.len() > 20, "{code:#?}");
    let mut from = 0;
    let lines: Vec<_> = example.lines().map(str::trim).collect();
    // Each line, in the example's order.
    for line in code.into_iter().filter(|line| !line.trim().is_empty()) {
        let found = lines[from..].iter().position(|other| *other == line.trim());
        from += found.unwrap_or_else(|| panic!("the example has no such line (any more): {line}")) + 1;
    }
}
