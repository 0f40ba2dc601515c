//! What linking takes is bounded by the kernel's own limits and by indexes, whatever an object holds.

use corelo_core::arena::Arena;
use corelo_core::link::LinkCause;
use corelo_core::object::Object;
use corelo_core::prepare::{Options, prepare};
use corelo_tests::elf_builder::{
    Bind, ElfBuilder, R_BPF_64_32, R_BPF_64_64, SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE, Section, SymType, Symbol,
};
use corelo_tests::endian::Endian;
use corelo_tests::insn::{Insn, encode};
use zerocopy::IntoBytes;

const CODE: u64 = SHF_ALLOC | SHF_EXECINSTR;

fn link_all(file: &[u8]) -> Vec<Result<usize, LinkCause>> {
    let mut words = vec![0u64; 1 << 18];
    let mut arena = Arena::new(words.as_mut_bytes());
    let object = Object::parse(file).unwrap();
    let prepared = prepare(&object, None, Options::default(), &mut arena).unwrap();
    let link = |number| prepared.program(number, &mut arena.scratch()).map(|it| it.insns.len()).map_err(|e| e.cause);
    let mut link = link;
    prepared.declared().programs().map(|(number, _)| link(number)).collect()
}

/// A program that calls so many subprograms.
fn calls(endian: Endian, subprograms: u32) -> Vec<u8> {
    let mut elf = ElfBuilder::new(endian);
    let mut main = Vec::new();
    for number in 0..subprograms {
        main.push(Insn::call_bpf(number as i32 * 2 - 1));
    }
    main.extend([Insn::mov64_imm(0, 0), Insn::exit()]);
    let main_size = main.len() as u64 * 8;
    let code = elf.section(Section::progbits("socket", CODE, encode(&main, endian)));
    elf.symbol(Symbol::global("main", code, 0, main_size, SymType::Func));
    let body = [Insn::mov64_imm(0, 0), Insn::exit()].repeat(subprograms as usize);
    let text = elf.section(Section::progbits(".text", CODE, encode(&body, endian)));
    for number in 0..subprograms {
        let at = u64::from(number) * 16;
        elf.symbol(Symbol { bind: Bind::Local, ..Symbol::global(&format!("f{number}"), text, at, 16, SymType::Func) });
    }
    let symbol = elf.symbol(Symbol { bind: Bind::Local, ..Symbol::global("", text, 0, 0, SymType::Section) });
    for number in 0..subprograms {
        elf.relocation(code, u64::from(number) * 8, symbol, R_BPF_64_32);
    }
    elf.build()
}

#[test]
fn a_program_has_as_many_subprograms_as_the_kernel_takes() {
    for endian in Endian::BOTH {
        assert_eq!(link_all(&calls(endian, 255)), [Ok(257 + 2 * 255)]);
        assert_eq!(link_all(&calls(endian, 256)), [Err(LinkCause::TooManySubprograms)]);
    }
}

/// Programs that all call one function, which refers to `used` of `maps` maps, one after the other, `loads` times.
fn shared(endian: Endian, programs: u32, maps: u32, used: u32, loads: u32, in_order: bool) -> Vec<u8> {
    let mut elf = ElfBuilder::new(endian);
    let main = [Insn::call_bpf(-1), Insn::exit()];
    let code = elf.section(Section::progbits("socket", CODE, encode(&main.repeat(programs as usize), endian)));
    for number in 0..programs {
        let at = u64::from(number) * 16;
        elf.symbol(Symbol::global(&format!("p{number}"), code, at, 16, SymType::Func));
    }
    let mut body = Insn::ld_imm64(1, 0, 0).repeat(loads as usize);
    body.extend([Insn::mov64_imm(0, 0), Insn::exit()]);
    let size = body.len() as u64 * 8;
    let text = elf.section(Section::progbits(".text", CODE, encode(&body, endian)));
    let function = elf.symbol(Symbol::global("function", text, 0, size, SymType::Func));
    for number in 0..programs {
        elf.relocation(code, u64::from(number) * 16, function, R_BPF_64_32);
    }
    let words = [2, 4, 8, 1, 0].map(|word| endian.u32(word)).concat();
    let section = elf.section(Section::progbits("maps", SHF_ALLOC | SHF_WRITE, words.repeat(maps as usize)));
    let symbols: Vec<_> = (0..maps)
        .map(|number| {
            elf.symbol(Symbol::global(&format!("m{number}"), section, u64::from(number) * 20, 20, SymType::Object))
        })
        .collect();
    let mut order: Vec<u32> = (0..loads).collect();
    if !in_order {
        order.reverse();
    }
    for load in order {
        let map = symbols[(maps - 1 - load % used) as usize];
        elf.relocation(text, u64::from(load) * 16, map, R_BPF_64_64);
    }
    elf.build()
}

#[test]
fn a_program_refers_to_as_many_maps_as_the_kernel_takes() {
    for endian in Endian::BOTH {
        for in_order in [true, false] {
            assert_eq!(link_all(&shared(endian, 1, 80, 64, 200, in_order)), [Ok(404)]);
            assert_eq!(link_all(&shared(endian, 1, 80, 65, 200, in_order)), [Err(LinkCause::TooManyMaps)]);
        }
    }
}

/// One walk over all maps for each reference of each program is 3 * 10^10 looks at a map here, and one over all
/// relocations for each instruction half of it: that is minutes.
#[test]
fn what_programs_share_is_not_searched_anew_for_each_instruction() {
    for in_order in [true, false] {
        let file = shared(Endian::Little, 300, 20_000, 64, 5000, in_order);
        assert_eq!(link_all(&file), vec![Ok(2 + 10_002); 300]);
    }
}
