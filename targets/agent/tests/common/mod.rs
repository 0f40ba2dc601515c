//! The command, run as a user runs it.

#![allow(dead_code, unreachable_pub, clippy::allow_attributes, reason = "each test file uses a part of it")]

use std::process::Command;

use serde_json::Value;

/// How it ended.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `corelo` with these arguments.
pub fn corelo(args: &[&str]) -> Run {
    let output = Command::new(env!("CARGO_BIN_EXE_corelo")).args(args).output().unwrap();
    Run {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The path of one of the workspace's fixtures.
pub fn fixture(name: &str) -> String {
    format!("{}/../../tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// One JSON value per line.
pub fn lines(stdout: &str) -> Vec<Value> {
    stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Whether this is root on a kernel with bpf(2); says so where not, and fails where it must be.
pub fn has_kernel() -> bool {
    corelo_tests::kernel::require_kernel("load objects")
}
