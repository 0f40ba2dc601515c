//! Sections that libbpf took after 1.7: the kernel is asked for what they say, and where it does not know that, it is said.

mod common;

use common::{corelo, has_kernel};
use corelo_tests::endian::Endian;
use corelo_tests::insn::Insn;
use corelo_tests::object_builder::ObjectBuilder;

#[test]
fn what_this_kernel_does_not_know_is_said() {
    if !has_kernel() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut parts = release.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (parts.next().unwrap(), parts.next().unwrap());
    let sections = ["fentry.multi/tcp_*", "fexit.multi.s/tcp_*", "fsession.multi/tcp_*", "tp.s/sched/sched_switch"];
    for section in sections.iter().chain(&["raw_tp.s/sys_enter"]) {
        let mut object = ObjectBuilder::new(Endian::native());
        object.program(section, "program", &[Insn::mov64_imm(0, 0), Insn::exit()]);
        let path = dir.path().join("object.bpf.o");
        std::fs::write(&path, object.build()).unwrap();
        let run = corelo(&["load", path.to_str().unwrap()]);
        if version > (7, 2) {
            println!("{section}: {run:?}");
            continue;
        }
        assert_eq!(run.code, 1, "{section}: {run:?}");
        assert!(run.stderr.contains(section), "{run:?}");
        assert!(run.stderr.contains("a kernel after Linux 7.2 is needed for sections of this name"), "{run:?}");
    }
}
