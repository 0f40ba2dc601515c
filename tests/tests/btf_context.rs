//! The BTF that a program with `arg:ctx` is given on kernels that do not read the tag.

use corelo_core::arena::{Arena, Part};
use corelo_core::btf::context::{struct_name, with_contexts};
use corelo_core::btf::{Btf, Kind, Types, raw};
use corelo_core::uapi::ProgType;
use corelo_tests::elf_reader::section_data;
use corelo_tests::endian::Endian;
use corelo_tests::fixtures::fixture;

fn dump(types: &Types<'_>) -> Vec<String> {
    let mut text = String::new();
    raw::dump(types, &mut text).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// What is added for a program of a type that has the functions named, and the function info's types after it.
fn added(endian: Endian, program: ProgType, functions: &[&str]) -> Option<(Vec<String>, Vec<u32>)> {
    let file = fixture("obj_arg_ctx", endian).read();
    let blob = section_data(&file, ".BTF").unwrap();
    let (mut index, mut out) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let (mut index, mut out) = (Arena::new(&mut index), Arena::new(&mut out));
    let types = Types::index(Btf::parse(blob).unwrap(), 1, None, &mut index, Part::LocalIndex).unwrap();
    let id_of = |name: &str| {
        let mut all = types.btf().iter().map(Result::unwrap);
        all.find(|ty| ty.kind() == Kind::Func && types.name(ty) == Ok(name.as_bytes())).unwrap().id().0
    };
    let word = |value: u32| match endian {
        Endian::Little => value.to_le_bytes(),
        Endian::Big => value.to_be_bytes(),
    };
    let mut info = Vec::new();
    for (index, name) in functions.iter().enumerate() {
        info.extend([word(index as u32 * 8), word(id_of(name))].concat());
    }
    let before = info.clone();
    let made = with_contexts(&types, blob, program, &mut info, 8, &mut out).unwrap();
    let Some(made) = made else {
        assert_eq!(info, before);
        return None;
    };
    let new = Types::index(Btf::parse(made).unwrap(), 1, None, &mut index, Part::LocalIndex).unwrap();
    let (old, new) = (dump(&types), dump(&new));
    assert_eq!(new[..old.len()], old);
    let ids = info.chunks_exact(8).map(|record| {
        let bytes = record[4..].try_into().unwrap();
        let id = match endian {
            Endian::Little => u32::from_le_bytes(bytes),
            Endian::Big => u32::from_be_bytes(bytes),
        };
        // Counted from the first that was added.
        id.saturating_sub(types.end_id() - 1)
    });
    let start = types.end_id();
    // Ids that were added are counted from 1 in what is compared; the others are left out.
    let shown = new[old.len()..].iter().map(|line| {
        let words = line.split(' ').map(|word| {
            let digits = word.trim_matches(|c: char| !c.is_ascii_digit());
            match digits.parse::<u32>() {
                Ok(id) if id >= start => word.replace(digits, &format!("+{}", id - start + 1)),
                _ => word.to_owned(),
            }
        });
        words.collect::<Vec<_>>().join(" ")
    });
    Some((shown.collect(), ids.collect()))
}

#[test]
fn tagged_parameters_get_the_type_of_the_program() {
    for endian in Endian::BOTH {
        for (program, name) in [
            (ProgType::RAW_TRACEPOINT, "bpf_raw_tracepoint_args"),
            (ProgType::PERF_EVENT, "bpf_perf_event_data"),
            (ProgType::XDP, "xdp_md"),
            (ProgType::SCHED_CLS, "__sk_buff"),
        ] {
            let (types, info) = added(endian, program, &["on_raw", "twice", "note"]).unwrap();
            let text = types.join("\n");
            assert!(text.contains(&format!("[+1] STRUCT '{name}' size=0 vlen=0")), "{text}");
            assert!(text.contains("[+2] PTR '(anon)' type_id=+1"), "{text}");
            assert!(text.contains("'ctx' type_id=+2") && !text.contains("'value' type_id=+"), "{text}");
            assert!(text.contains("[+4] FUNC 'note' type_id=+3 linkage=global"), "{text}");
            assert!(text.contains("[+5] DECL_TAG 'arg:ctx' type_id=+4 component_idx=1"), "{text}");
            assert_eq!(types.len(), 7, "{text}");
            assert_eq!(info, [0, 0, 4]);
        }
    }
}

#[test]
fn registers_are_the_context_of_a_kprobe_alone() {
    for endian in Endian::BOTH {
        let (types, info) = added(endian, ProgType::KPROBE, &["on_kprobe", "note", "note_regs"]).unwrap();
        let text = types.join("\n");
        assert!(text.contains("[+1] STRUCT 'bpf_user_pt_regs_t' size=0 vlen=0"), "{text}");
        assert!(text.contains("'regs' type_id=+2") && text.contains("'ctx' type_id=+2"), "{text}");
        assert_eq!(info, [0, 4, 7]);
        // For others it is a struct that is none of theirs, which stays for the verifier to refuse.
        assert_eq!(added(endian, ProgType::XDP, &["on_kprobe", "note_regs"]), None);
    }
}

#[test]
fn nothing_is_added_where_nothing_is_asked() {
    for endian in Endian::BOTH {
        assert_eq!(added(endian, ProgType::XDP, &["on_packet", "twice"]), None);
        // Programs whose context has no name: tracepoints, fentry.
        assert_eq!(added(endian, ProgType::TRACEPOINT, &["on_raw", "note"]), None);
        assert_eq!(added(endian, ProgType::TRACING, &["on_raw", "note"]), None);
        assert_eq!(added(endian, ProgType::XDP, &[]), None);
    }
    assert_eq!(struct_name(ProgType::KPROBE), Some(&b"bpf_user_pt_regs_t"[..]));
}
