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
    let is_root = std::fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| status.lines().any(|line| line.starts_with("Uid:\t0\t0")));
    let has_btf = std::path::Path::new("/sys/kernel/btf/vmlinux").exists();
    if is_root && has_btf {
        return true;
    }
    let required = std::env::var_os("CORELO_REQUIRE_KERNEL").is_some_and(|value| value == "1");
    assert!(!required, "CORELO_REQUIRE_KERNEL=1, but not root or no kernel BTF");
    println!("skipped: needs root and a kernel with BTF");
    false
}
