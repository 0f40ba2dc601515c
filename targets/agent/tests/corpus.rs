//! The offline commands on real kernels and objects, where the corpus is there.

mod common;

use std::path::PathBuf;

use common::{corelo, lines};

/// The corpus's directory.
fn corpus() -> Option<PathBuf> {
    Some(corelo_tests::corpus::corpus()?.root().to_owned())
}

#[test]
fn types_that_vmlinux_lacks_come_from_the_modules_that_are_named() {
    let Some(corpus) = corpus() else { return };
    let dir = tempfile::tempdir().unwrap();
    let vmlinux = dir.path().join("vmlinux.btf");
    let packed = std::fs::File::open(corpus.join("btf/amd64-6.12.117.btf.zst")).unwrap();
    let mut unpacked = ruzstd::decoding::StreamingDecoder::new(packed).unwrap();
    std::io::copy(&mut unpacked, &mut std::fs::File::create(&vmlinux).unwrap()).unwrap();
    let vmlinux = vmlinux.to_str().unwrap();
    // `struct flow_offload` is nf_tables's in this kernel, and not vmlinux's.
    let object = corpus.join("carved/xdp-tools_1.5.4-1_amd64/xdp-forward-3.o");
    let object = object.to_str().unwrap();
    let module =
        |name: &str| corpus.join(format!("btf/amd64-6.12.117-modules/{name}.btf")).to_str().unwrap().to_owned();

    let found = corelo(&["btf", "find", &module("nf_tables"), "flow_offload", "--base", vmlinux]);
    let id: u32 = found.stdout[1..found.stdout.find(']').unwrap()].parse().unwrap();
    let nf_tables = format!("nf_tables={}", module("nf_tables"));
    let veth = format!("veth={}", module("veth"));
    let flags_of = |modules: &[&str]| {
        let mut args = vec!["relocs", object, "--btf", vmlinux, "--json"];
        for module in modules {
            args.extend(["--module-btf", module]);
        }
        let run = corelo(&args);
        assert_eq!(run.code, 0, "{}", run.stderr);
        let rows = lines(&run.stdout);
        rows.into_iter().find(|row| row["spec"] == "struct flow_offload.flags").unwrap()
    };
    let without = flags_of(&[]);
    assert_eq!((&without["status"], without["candidates"].as_array().unwrap().len()), (&"poisoned".into(), 0));
    assert_eq!(flags_of(&[&veth])["status"], "poisoned");
    for modules in [&[&*veth, &nf_tables][..], &[&nf_tables, &veth], &[&nf_tables]] {
        let row = flags_of(modules);
        // bits_offset=1472 by `btf find`.
        assert_eq!((&row["status"], &row["target_value"]), (&"patched".into(), &184.into()), "{row}");
        assert_eq!((&row["candidates"][0]["id"], &row["candidates"][0]["btf"]), (&id.into(), &"nf_tables".into()));
    }
    assert!(found.stdout.contains("'flags' type_id=1 bits_offset=1472\n"), "{}", found.stdout);
}
