use super::*;

#[test]
fn sections() {
    for name in ["usdt", "usdt.s", "usdt/libc.so.6:libc:setjmp", "usdt.s/x:y:z", "usdt/"] {
        assert!(is_section(name.as_bytes()), "{name}");
    }
    for name in ["usdtx", "usdt.sx", "uprobe/usdt", "", "usd", "usdt.x/y"] {
        assert!(!is_section(name.as_bytes()), "{name}");
    }
}

#[test]
fn thumb_is_told_from_arm() {
    // As assemblers have them: nop for ARMv7 and ARMv4T; Thumb's with one and with `mov r8, r8` behind it, nop.w, and that of v4T.
    let rows = [
        ([0x00, 0xf0, 0x20, 0xe3], true),
        ([0x00, 0x00, 0xa0, 0xe1], true),
        ([0x00, 0xbf, 0x00, 0xbf], false),
        ([0x00, 0xbf, 0xc0, 0x46], false),
        ([0xaf, 0xf3, 0x00, 0x80], false),
        ([0xc0, 0x46, 0xc0, 0x46], false),
    ];
    for (insn, is_arm) in rows {
        assert_eq!(is_arm_nop(insn), is_arm, "{insn:x?}");
    }
    let said = UsdtError::Thumb { address: 0x105ec }.to_string();
    assert_eq!(said.split(',').next(), Some("the probe at 0x105ec is in Thumb code"));
}

/// Kernels of other ages than the running one, which is asked for all that they had.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod older_kernels {
    use super::super::*;
    use std::hint::black_box;
    use std::sync::MutexGuard;

    use corelo_core::arena::Arena;
    use corelo_core::object::Object;
    use corelo_core::prepare::{Options, prepare};
    use corelo_tests::kernel::{Feature, has};

    use crate::load::{Autoload, Change, Collection, LoadOptions, Setting};
    use crate::objects::GrowingLog;
    use crate::sys::Errno;
    use crate::sys::bpf::cmd;
    use crate::sys::fake::{install, set_u32, u32_at};
    use crate::sys::fake_probe::fire;
    use corelo_core::uapi::AttachType;

    /// The semaphore is one for all tests.
    fn alone() -> MutexGuard<'static, ()> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// bpf(2) of a kernel without links to many uprobes (before 6.6), and without cookies (before 5.15).
    fn older(has_cookies: bool) -> impl FnMut(u32, &mut [u8]) -> Option<Result<u32, Errno>> {
        const EXPECTED_ATTACH_TYPE: usize = 68;
        const ATTACH_TYPE: usize = 8;
        move |command, attr| match command {
            // It does not look at the attach type of kprobe programs.
            cmd::PROG_LOAD if u32_at(attr, EXPECTED_ATTACH_TYPE) == AttachType::TRACE_UPROBE_MULTI.0 => {
                set_u32(attr, EXPECTED_ATTACH_TYPE, 0);
                None
            }
            // The probe for the helper: a tracepoint program of two instructions.
            cmd::PROG_LOAD if !has_cookies && u32_at(attr, 0) == 5 && u32_at(attr, 4) == 2 => Some(Err(Errno::EINVAL)),
            cmd::LINK_CREATE if u32_at(attr, ATTACH_TYPE) == AttachType::TRACE_UPROBE_MULTI.0 => {
                Some(Err(Errno::EOPNOTSUPP))
            }
            cmd::LINK_CREATE if !has_cookies => Some(Err(Errno::EINVAL)),
            _ => None,
        }
    }

    /// The first words of `struct seen` of the fixture for its program `by_hand`.
    fn seen(collection: &Collection<'_>) -> [u64; 4] {
        let all = collection.map::<u32, [u64; 15]>("seen").unwrap().get(&4).unwrap().unwrap();
        [all[0], all[1], all[2], all[3]]
    }

    fn with_program(then: impl FnOnce(&Collection<'_>, corelo_core::object::ProgramId)) {
        if !has(&[Feature::Bpf, Feature::Uprobes]) {
            return;
        }
        let path = format!("{}/../tests/fixtures/obj_usdt-el.o", env!("CARGO_MANIFEST_DIR"));
        let file = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut buffer = vec![0; 256 << 10];
        let mut arena = Arena::new(&mut buffer);
        let object = Object::parse(&file).unwrap();
        let prepared = prepare(&object, None, Options::default(), &mut arena).unwrap();
        let counter = if cfg!(target_arch = "aarch64") { 256u32 } else { 128 };
        let counter = counter.to_ne_bytes();
        let options = LoadOptions {
            autoload: Autoload::None,
            settings: &[
                Setting::new("by_hand", Change::Load(true)),
                Setting::new("pc_offset", Change::Value(&counter)),
            ],
            ..LoadOptions::new(b"obj_usdt")
        };
        let mut collection = Collection::create(&prepared, &options, &mut arena).unwrap();
        let mut log = GrowingLog::new(64 << 10, 1 << 20);
        collection.load_programs(&options, &mut arena, &mut log).unwrap();
        let mut programs = prepared.declared().programs();
        let by_hand = programs.find(|(_, function)| prepared.function_name(function) == b"by_hand").unwrap().0;
        then(&collection, by_hand);
    }

    const MINUS_5: u64 = 5u64.wrapping_neg();

    fn probe(pid: Option<u32>) -> Usdt<'static> {
        Usdt { path: Path::new("/proc/self/exe"), provider: "corelo_unit", name: "fired", pid, cookie: 7 }
    }

    #[test]
    fn a_uprobe_for_each_place() {
        if !has(&[Feature::Cookies]) {
            return;
        }
        let _alone = alone();
        let _guard = install(older(true));
        with_program(|collection, by_hand| {
            let link = collection.attach_usdt(by_hand, &probe(None)).unwrap();
            assert!(link.fd().is_none());
            assert!(fire(black_box(-5)) > 0);
            assert_eq!(seen(collection), [1, 1, 7, MINUS_5]);
            drop(link);
            assert_eq!((fire(black_box(-6)), seen(collection)), (0, [1, 1, 7, MINUS_5]));
        });
    }

    #[test]
    fn numbers_by_address() {
        let _alone = alone();
        let _guard = install(older(false));
        with_program(|collection, by_hand| {
            let everywhere = collection.attach_usdt(by_hand, &probe(None)).map(|_| ());
            let me = File::open(Path::new("/proc/self/exe")).unwrap();
            let is_movable = me.header().e_type == abi::ET_DYN;
            assert_eq!(everywhere, if is_movable { Err(LinkError::Usdt(UsdtError::NeedsProcess)) } else { Ok(()) });
            let here = probe(Some(std::process::id()));
            let addresses = collection.map::<u64, u32>(ADDRESSES).unwrap();
            for round in 1..4 {
                let link = collection.attach_usdt(by_hand, &here).unwrap();
                let entries: Vec<(u64, u32)> = addresses.iter().map(Result::unwrap).collect();
                // All programs share the specification; the address is in the function that has the probe.
                let function = fire as *const () as u64;
                assert!(matches!(entries[..], [(address, 0)] if (function..function + 64).contains(&address)));
                // Two at one place could not be told apart.
                let again = collection.attach_usdt(by_hand, &here).map(|_| ());
                let address = entries[0].0;
                assert_eq!(again, Err(LinkError::Usdt(UsdtError::AddressTaken { address })));
                assert!(fire(black_box(-5)) > 0);
                assert_eq!(seen(collection), [round, 1, 7, MINUS_5]);
                drop(link);
                assert_eq!((fire(black_box(-6)), addresses.iter().count()), (0, 0));
            }
        });
    }
}
