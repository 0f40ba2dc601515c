//! Which capabilities suffice for what: the command as an ordinary user that has exactly those, as a service with ambient
//! capabilities has.
#![cfg(target_endian = "little")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Run, fixture, has_kernel};
use corelo_tests::kernel::{is_root, not_here};
use corelo_tests::user::{CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, CAP_SYS_ADMIN, as_nobody};

/// The command and objects where everybody can read them; gone at the end.
struct Shared(tempfile::TempDir);

impl Shared {
    fn new(objects: &[&str]) -> Shared {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let give = |from: &Path, mode| {
            let to = dir.path().join(from.file_name().unwrap());
            fs::copy(from, &to).unwrap();
            fs::set_permissions(&to, fs::Permissions::from_mode(mode)).unwrap();
        };
        give(Path::new(env!("CARGO_BIN_EXE_corelo")), 0o755);
        for object in objects {
            give(Path::new(&fixture(object)), 0o644);
        }
        Shared(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, capabilities: &[u32], args: &[&str]) -> Run {
        let mut command = Command::new(self.path("corelo"));
        let output = as_nobody(command.args(args).current_dir(self.0.path()), capabilities).output().unwrap();
        Run {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// CAP_BPF and CAP_PERFMON: Linux 5.8.
fn has_them() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|word| word.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(5), Some(8))
}

#[test]
fn programs_load_with_exactly_the_capabilities_that_they_need() {
    if !has_kernel() {
        return;
    }
    if !is_root() || !has_them() {
        return not_here("capabilities one by one", "not root, or Linux before 5.8");
    }
    let shared = Shared::new(&["obj_kconfig_weak-el.o", "obj_probe_read-el.o", "obj_arg_ctx-el.o"]);
    // A socket filter; kprobes; XDP.
    let socket: &[&str] = &["load", "obj_kconfig_weak-el.o"];
    let kprobe: &[&str] = &["load", "obj_probe_read-el.o"];
    let xdp: &[&str] = &["load", "obj_arg_ctx-el.o", "--skip", "on_raw", "--skip", "on_kprobe", "--skip", "on_event"];
    for (args, capabilities, is_enough) in [
        (socket, &[][..], false),
        (socket, &[CAP_NET_ADMIN, CAP_PERFMON], false),
        (socket, &[CAP_BPF], true),
        (socket, &[CAP_SYS_ADMIN], true),
        (kprobe, &[CAP_BPF], false),
        (kprobe, &[CAP_BPF, CAP_NET_ADMIN], false),
        (kprobe, &[CAP_BPF, CAP_PERFMON], true),
        (kprobe, &[CAP_SYS_ADMIN], true),
        (xdp, &[CAP_BPF, CAP_PERFMON], false),
        (xdp, &[CAP_BPF, CAP_NET_ADMIN], true),
        (xdp, &[CAP_SYS_ADMIN], true),
    ] {
        let run = shared.run(capabilities, args);
        assert_eq!(run.code == 0, is_enough, "{} with {capabilities:?}: {}", args[1], run.stderr);
        if !is_enough {
            let wanted = match args[1] {
                "obj_probe_read-el.o" if !capabilities.is_empty() => "CAP_BPF and CAP_PERFMON",
                "obj_arg_ctx-el.o" => "CAP_BPF and CAP_NET_ADMIN",
                _ => "CAP_BPF",
            };
            assert!(run.stderr.contains("EPERM") && run.stderr.trim_end().ends_with(wanted), "{}", run.stderr);
        }
    }
}
