//! The warm start by the loader: an object prepared again by what was kept, with the kernel's BTF gone from its file.

use corelo_core::arena::Arena;
use corelo_core::object::{Object, ProgramId};
use corelo_core::prepare::{Options, PrepareError, Prepared};
use corelo_loader::prepare::{Kernel, KernelError, KernelOptions};
use corelo_tests::endian::Endian;
use corelo_tests::fixtures::fixture;
use zerocopy::IntoBytes;

fn programs(prepared: &Prepared<'_>) -> Vec<Vec<u8>> {
    let mut buffer = vec![0u8; 1 << 16];
    let mut arena = Arena::new(&mut buffer);
    let programs: Vec<ProgramId> = prepared.declared().programs().map(|(id, _)| id).collect();
    let mut link =
        |id: ProgramId| prepared.program(id, &mut arena.scratch()).ok().map(|it| it.insns.as_bytes().to_vec());
    programs.into_iter().filter_map(&mut link).collect()
}

#[test]
fn an_object_is_prepared_again_without_a_look_at_the_kernel() {
    let fields = fixture("core_fields", Endian::Little);
    let file = fields.read();
    let other = fixture("core_enums", Endian::Little).read();
    let dir = tempfile::tempdir().unwrap();
    let btf = dir.path().join("kernel.btf");
    std::fs::copy(fields.target_btf.unwrap(), &btf).unwrap();
    let kernel = Kernel::new(KernelOptions::file(&btf));
    let (mut first, mut second) = (vec![0u8; 1 << 17], vec![0u8; 1 << 17]);
    let object = Object::parse(&file).unwrap();
    let (made, _) = kernel.prepare(&object, Options::default(), &mut first).unwrap();
    assert!(made.prepared.visited() > 0);
    let cold = programs(&made.prepared);
    assert!(cold.len() > 10);
    let snapshot = made.snapshot();
    std::fs::remove_file(&btf).unwrap();

    let copy = file.clone();
    let again = Object::parse(&copy).unwrap();
    let warm = snapshot.prepare(&again, Options::default(), &mut Arena::new(&mut second)).unwrap();
    assert_eq!(warm.prepared.visited(), 0);
    assert_eq!(programs(&warm.prepared), cold);
    assert!(warm.modules.names().is_empty());

    let other = Object::parse(&other).unwrap();
    let refused = snapshot.prepare(&other, Options::default(), &mut Arena::new(&mut [])).unwrap_err();
    assert_eq!(refused, KernelError::Prepare(PrepareError::OtherObject));
}
