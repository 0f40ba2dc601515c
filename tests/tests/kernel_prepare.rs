//! `Kernel::prepare`: an object and a kernel's files in one call. What comes out never depends on how the BTF is had.

use std::path::PathBuf;

use corelo_core::object::Object;
use corelo_core::prepare::{ExternMatch, Options, PrepareError};
use corelo_loader::kernel::{KernelBtfError, ModuleError, ModuleFile, ModuleNames, ModuleSource, ModulesError, Source};
use corelo_loader::prepare::{Access, Kernel, KernelError, KernelOptions};
use corelo_tests::btf_builder::{BtfBuilder, IntEncoding};
use corelo_tests::endian::Endian;
use corelo_tests::fixtures::fixture;

const LINKAGE_STATIC: u32 = 0;
const ACCESSES: [Access; 3] = [Access::Lean, Access::Stream, Access::Whole];

/// A kernel's files in a directory of their own: vmlinux lacks what the module `second` has, `no_such_kfunc`, which
/// obj_kfunc calls.
struct Files {
    dir: tempfile::TempDir,
    kernel: PathBuf,
    modules: Vec<ModuleFile>,
}

impl Files {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let mut base = BtfBuilder::new(Endian::Little);
        base.int("int", 4, IntEncoding::Signed);
        let proto = base.func_proto(0, &[]);
        base.func("bpf_rcu_read_lock", proto, LINKAGE_STATIC);
        base.func("bpf_rcu_read_unlock", proto, LINKAGE_STATIC);
        let mut second = base.split_on();
        let proto = second.func_proto(1, &[("x", 1)]);
        second.func("no_such_kfunc", proto, LINKAGE_STATIC);
        let file = |name: &str, bytes: &[u8]| ModuleFile { name: name.into(), path: write(name, bytes) };
        let modules = vec![file("first", &base.split_on().build()), file("second", &second.build())];
        Self { kernel: write("vmlinux", &base.build()), modules, dir }
    }

    fn options(&self, access: Access) -> KernelOptions<'_> {
        let modules = ModuleSource::Files(&self.modules);
        KernelOptions { access, modules, ..KernelOptions::file(&self.kernel) }
    }
}

/// Prepares obj_kfunc, and says where `no_such_kfunc` was found and in which modules it was searched for.
fn prepare(kernel: &Kernel<'_>, arena_bytes: usize) -> Result<(ExternMatch, Vec<String>), KernelError> {
    let file = fixture("obj_kfunc", Endian::Little).read();
    let object = Object::parse(&file).unwrap();
    let mut buffer = vec![0; arena_bytes];
    let (made, _) = kernel.prepare(&object, Options::default(), &mut buffer)?;
    let mut externs = made.prepared.declared().externs_by_id();
    let (id, _) = externs.find(|(_, ext)| object.symbol_name(ext.symbol()) == b"no_such_kfunc").unwrap();
    Ok((made.prepared.extern_match(id), made.modules.names().iter().map(str::to_owned).collect()))
}

#[test]
fn what_a_module_has_is_found_however_the_kernel_is_read() {
    let files = Files::new();
    for access in ACCESSES {
        let kernel = Kernel::new(files.options(access));
        assert_eq!(kernel.source(), None, "opened before something was asked");
        let (found, modules) = prepare(&kernel, 64 << 10).unwrap();
        // The module that has nothing of the name is not searched, and so has no number.
        assert!(matches!(found, ExternMatch::Found { module: 1, .. }), "{access:?}: {found:?}");
        assert_eq!(modules, ["second"], "{access:?}");
        // Modules are split on the whole.
        assert_eq!(kernel.source(), Some(Source::File), "{access:?}");
    }
}

#[test]
fn what_nobody_has_leaves_the_kernel_streamed() {
    let mut files = Files::new();
    files.modules.truncate(1);
    for (access, source) in [(Access::Stream, Source::Streamed), (Access::Whole, Source::File)] {
        let kernel = Kernel::new(files.options(access));
        let (found, modules) = prepare(&kernel, 64 << 10).unwrap();
        assert_eq!((found, modules), (ExternMatch::Missing, Vec::new()), "{access:?}");
        assert_eq!(kernel.source(), Some(source));
    }
}

#[test]
fn a_kernel_in_a_file_has_no_modules_unless_they_are_given() {
    let files = Files::new();
    let kernel = Kernel::new(KernelOptions::file(&files.kernel));
    assert_eq!(prepare(&kernel, 64 << 10).unwrap(), (ExternMatch::Missing, Vec::new()));
}

#[test]
fn a_module_of_the_callers_that_cannot_be_read_is_an_error() {
    let mut files = Files::new();
    files.modules[1].path = files.dir.path().join("missing");
    let kernel = Kernel::new(files.options(Access::Whole));
    let Err(KernelError::Modules(ModulesError::Module { index: 1, error })) = prepare(&kernel, 64 << 10) else {
        panic!("it was read")
    };
    assert!(matches!(error, ModuleError::Btf(KernelBtfError::Open(_))), "{error:?}");
    std::fs::write(&files.modules[0].path, b"no BTF").unwrap();
    let kernel = Kernel::new(files.options(Access::Whole));
    let Err(KernelError::Modules(ModulesError::Module { index: 0, error })) = prepare(&kernel, 64 << 10) else {
        panic!("it was read")
    };
    assert_eq!(error, ModuleError::Btf(KernelBtfError::NotBtf));
}

#[test]
fn every_size_of_arena_is_too_small_or_enough() {
    let files = Files::new();
    for access in ACCESSES {
        let mut smallest = None;
        for size in (0..16 << 10).step_by(64) {
            match prepare(&Kernel::new(files.options(access)), size) {
                Ok((found, _)) => {
                    assert!(matches!(found, ExternMatch::Found { module: 1, .. }), "{access:?}, {size}: {found:?}");
                    smallest = smallest.or(Some(size));
                }
                Err(KernelError::Prepare(PrepareError::Arena(full))) => {
                    assert_eq!(smallest, None, "{access:?}, {size}: {full}, but less was enough");
                }
                Err(error) => panic!("{access:?}, {size}: {error}"),
            }
        }
        assert!(smallest.is_some(), "{access:?}");
    }
}

#[test]
fn names_have_numbers_from_1() {
    let names = ModuleNames::new(b"vsock\0nf_conntrack\0");
    assert_eq!([0, 1, 2, 3].map(|number| names.get(number)), [None, Some("vsock"), Some("nf_conntrack"), None]);
    assert!(ModuleNames::default().is_empty() && ModuleNames::default().get(1).is_none());
    assert_eq!(format!("{names:?}"), r#"["vsock", "nf_conntrack"]"#);
}
