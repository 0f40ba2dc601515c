//! `picture MARKDOWN SVG`: the picture of the peers' table in a file that has one, without measuring anything again.

use std::process::ExitCode;

use corelo_bench::picture::picture;

fn main() -> ExitCode {
    let files: Vec<String> = std::env::args().skip(1).collect();
    let [markdown, svg] = &files[..] else {
        eprintln!("usage: picture MARKDOWN SVG");
        return ExitCode::from(2);
    };
    let text = std::fs::read_to_string(markdown).unwrap_or_else(|error| panic!("{markdown}: {error}"));
    std::fs::write(svg, picture(&text)).unwrap_or_else(|error| panic!("{svg}: {error}"));
    ExitCode::SUCCESS
}
