use std::cell::RefCell;
use std::rc::Rc;

use super::*;
use crate::sys::bpf::cmd;
use crate::sys::fake::{install, set_u32, some_fd, u32_at};

/// Counts the calls that a probe makes of a kernel that answers all of them alike.
fn ask(feature: Feature, answer: impl Fn(u32, &mut [u8]) -> Result<u32, Errno> + 'static) -> (Support, usize) {
    let calls = Rc::new(RefCell::new(0));
    let count = Rc::clone(&calls);
    let _guard = install(move |cmd, block| {
        *count.borrow_mut() += 1;
        Some(answer(cmd, block))
    });
    let features = Features::default();
    assert_eq!(features.known(feature), None);
    assert_eq!(*calls.borrow(), 0, "a call before anything is asked");
    let support = features.get(feature);
    let first = *calls.borrow();
    assert_eq!(features.get(feature), support);
    assert_eq!(features.known(feature), Some(support));
    assert_eq!(*calls.borrow(), first, "{feature:?} is tried twice");
    (support, first)
}

#[test]
fn an_old_kernel_has_none() {
    for feature in Feature::ALL {
        let (support, calls) = ask(*feature, |_, _| Err(Errno::EINVAL));
        assert_eq!(support, Support::Missing, "{feature:?}");
        assert!((1..=4).contains(&calls), "{feature:?}: {calls}");
    }
    assert_eq!(ask(Feature::Btf, |_, _| Err(Errno::ENOSYS)).0, Support::Missing);
}

#[test]
fn a_refusal_is_not_an_old_kernel() {
    for errno in [Errno::EPERM, Errno::ENOMEM, Errno::EMFILE, Errno::EAGAIN, Errno(libc::ENFILE)] {
        for feature in Feature::ALL {
            let (support, _) = ask(*feature, move |_, _| Err(errno));
            assert_eq!(support, Support::Refused(errno), "{feature:?}");
        }
    }
}

#[test]
fn lockdown_hides_helpers_and_is_no_old_kernel() {
    let locked = || Ok(lockdown::Mode::Confidentiality);
    let open = || Ok(lockdown::Mode::Integrity);
    let hidden = || Err(Errno::EACCES);
    let helper = Feature::ProbeReadKernel;
    assert_eq!(verdict(helper, Errno::EINVAL, locked), Support::Refused(Errno::EINVAL));
    assert_eq!(verdict(helper, Errno::ENOSYS, locked), Support::Missing);
    assert_eq!(verdict(helper, Errno::EINVAL, open), Support::Missing);
    assert_eq!(verdict(helper, Errno::EPERM, open), Support::Refused(Errno::EPERM));
    // Where nobody may know the mode, it may be this one.
    assert_eq!(verdict(helper, Errno::EINVAL, hidden), Support::Refused(Errno::EINVAL));
    assert_eq!(verdict(Feature::BtfFunc, Errno::EINVAL, hidden), Support::Missing);
}

#[test]
fn answers_that_tell() {
    let load_then = |answer: Errno| {
        move |command, _: &mut [u8]| match command {
            cmd::PROG_LOAD => Ok(some_fd()),
            _ => Err(answer),
        }
    };
    for (feature, known) in
        [(Feature::PerfLink, Errno::EBADF), (Feature::UprobeMulti, Errno::EBADF), (Feature::KprobeMulti, Errno::ESRCH)]
    {
        assert_eq!(ask(feature, load_then(known)).0, Support::Present);
        assert_eq!(ask(feature, load_then(Errno::EINVAL)).0, Support::Missing);
        assert_eq!(ask(feature, load_then(Errno::EPERM)).0, Support::Refused(Errno::EPERM));
    }
    let size = |size| {
        move |_, block: &mut [u8]| {
            set_u32(block, 140, size);
            Ok(some_fd())
        }
    };
    assert_eq!(ask(Feature::LogTrueSize, size(0)).0, Support::Missing);
    assert_eq!(ask(Feature::LogTrueSize, size(90)).0, Support::Present);
}

#[test]
fn what_btf_has_to_do_without() {
    // A kernel that stops before type tags: their kind is beyond its last.
    let _guard = install(|command, block| {
        assert_eq!(command, cmd::BTF_LOAD);
        let size = u32_at(block, 16) as usize;
        let address = u64::from_ne_bytes(block[..8].try_into().unwrap());
        let known = super::btf::blob(Feature::BtfTypeTag).unwrap();
        let newer = super::btf::blob(Feature::BtfEnum64).unwrap();
        let first = [&known, &newer].map(|blob| blob.as_bytes().len());
        assert!(address != 0);
        Some(if first.contains(&size) { Err(Errno::EINVAL) } else { Ok(some_fd()) })
    });
    let there = Features::default().btf_features().unwrap();
    for (feature, bit) in BTF_FEATURES {
        let missing = matches!(feature, Feature::BtfTypeTag | Feature::BtfEnum64);
        assert_eq!(there.has(bit), !missing, "{feature:?}");
    }
}

#[test]
fn no_btf_at_all() {
    {
        let _guard = install(|_, _| Some(Err(Errno::EINVAL)));
        assert_eq!(Features::default().btf_features(), None);
    }
    let _guard = install(|_, _| Some(Err(Errno::EPERM)));
    assert_eq!(Features::default().btf_features(), Some(KernelBtfFeatures::ALL));
}

#[test]
fn blobs_parse_as_btf() {
    let mut seen = 0;
    for feature in Feature::ALL {
        let Some(blob) = super::btf::blob(*feature) else {
            continue;
        };
        let btf = corelo_core::btf::Btf::parse(blob.as_bytes()).unwrap();
        assert!(btf.iter().all(|ty| ty.is_ok()), "{feature:?}");
        seen += 1;
    }
    assert_eq!(seen, 10);
}
