use super::*;

use ArgumentFault::{Form, Register as BadRegister, Size, TooMany};
use Operand::{Constant, Indexed, Register};

fn at(register: u16, offset: i64) -> Operand {
    Operand::Memory { register, offset: offset.cast_unsigned() }
}

fn minus(number: i64) -> Operand {
    Constant((-number).cast_unsigned())
}

/// (text, its arguments as size with sign and operand)
type Row<'r> = (&'r str, &'r [(i8, Operand)]);

fn check(machine: Machine, text: &str, wanted: &[(i8, Operand)]) {
    let found = parse(machine, text.as_bytes()).unwrap_or_else(|fault| panic!("{machine:?} {text}: {fault:?}"));
    let found: Vec<(i8, Operand)> = found
        .iter()
        .map(|argument| (argument.bytes as i8 * if argument.is_signed { -1 } else { 1 }, argument.operand))
        .collect();
    assert_eq!(found, wanted, "{machine:?} {text}");
}

#[test]
fn x86_64() {
    // The first is the example of libbpf's usdt.c, with each form that gas has for it.
    let twelve = "-4@-1204(%rbp) -4@%edi -8@-1216(%rbp) -8@%r8 -4@$5 -8@%r9 8@%rdx 8@%r10 -4@$-9 -2@%cx -2@%ax -1@%sil";
    check(
        Machine::X86_64,
        twelve,
        &[
            (-4, at(32, -1204)),
            (-4, Register(112)),
            (-8, at(32, -1216)),
            (-8, Register(72)),
            (-4, Constant(5)),
            (-8, Register(64)),
            (8, Register(96)),
            (8, Register(56)),
            (-4, minus(9)),
            (-2, Register(88)),
            (-2, Register(80)),
            (-1, Register(104)),
        ],
    );
    // libpython's function__entry, line and gc__start; libstdc++'s catch.
    check(Machine::X86_64, "8@%rbp 8@%r12 -4@%eax", &[(8, Register(32)), (8, Register(24)), (-4, Register(80))]);
    check(Machine::X86_64, "8@%r14 8@%rax -4@%edx", &[(8, Register(8)), (8, Register(80)), (-4, Register(96))]);
    check(Machine::X86_64, "-4@112(%rsp)", &[(-4, at(152, 112))]);
    check(Machine::X86_64, "8@%rdx 8@-80(%rbx)", &[(8, Register(96)), (8, at(40, -80))]);
    let indexed =
        |register, index, shift, offset: i64| Indexed { register, index, shift, offset: offset.cast_unsigned() };
    check(Machine::X86_64, "8@(%rdx,%rax,8)", &[(8, indexed(96, 80, 3, 0))]);
    check(Machine::X86_64, "1@-96(%rbp,%rax)", &[(1, indexed(32, 80, 0, -96))]);
    check(
        Machine::X86_64,
        "1@-96(%rbp,%rax,8) 2@(%rbp,%rax)",
        &[(1, indexed(32, 80, 3, -96)), (2, indexed(32, 80, 0, 0))],
    );
    check(Machine::X86_64, "  4 @ -8 ( %rsp , %r15 , 4 )  8@%rip ", &[(4, indexed(152, 0, 2, -8)), (8, Register(128))]);
    check(Machine::X86_64, "8@(%rsp) -1@%r11b", &[(8, at(152, 0)), (-1, Register(48))]);
    check(
        Machine::X86_64,
        "8@$-9223372036854775808 8@$18446744073709551615",
        &[(8, Constant(1 << 63)), (8, Constant(u64::MAX))],
    );
    check(Machine::X86_64, "", &[]);
}

#[test]
fn other_machines() {
    let rows: [(Machine, Row<'_>); 12] = [
        (Machine::X86, ("-4@%eax 4@8(%ebp) -4@$3", &[(-4, Register(24)), (4, at(20, 8)), (-4, Constant(3))])),
        (Machine::X86, ("4@%ebx 1@%cl 4@(%esp)", &[(4, Register(0)), (1, Register(4)), (4, at(60, 0))])),
        (Machine::Arm64, ("-4@5 8@[sp, 96] 8@[x0]", &[(-4, Constant(5)), (8, at(248, 96)), (8, at(0, 0))])),
        (Machine::Arm64, ("-8@x4 -4@w30 4@[x29, -12]", &[(-8, Register(32)), (-4, Register(240)), (4, at(232, -12))])),
        (Machine::Arm64, ("8@-1 8@sp", &[(8, Constant(u64::MAX)), (8, Register(248))])),
        (Machine::Arm, ("4@[r0, #4] 4@#5 -4@r4", &[(4, at(0, 4)), (4, Constant(5)), (-4, Register(16))])),
        (Machine::Arm, ("-4@[fp, #-20] 4@[sp] 4@r10", &[(-4, at(44, -20)), (4, at(52, 0)), (4, Register(40))])),
        (Machine::Riscv64, ("-8@a1 -8@-88(s0) 4@5", &[(-8, Register(88)), (-8, at(64, -88)), (4, Constant(5))])),
        (Machine::Riscv64, ("8@t6 8@s11 8@0(sp)", &[(8, Register(248)), (8, Register(216)), (8, at(16, 0))])),
        (Machine::Riscv32, ("-4@a1 4@8(sp)", &[(-4, Register(44)), (4, at(8, 8))])),
        (Machine::S390x, ("-2@-28(%r15) -8@%r0", &[(-2, at(144, -28)), (-8, Register(24))])),
        (Machine::S390x, ("4@71 8@0(%r2)", &[(4, Constant(71)), (8, at(40, 0))])),
    ];
    for (machine, (text, wanted)) in rows {
        check(machine, text, wanted);
    }
}

#[test]
fn what_cannot_be_read_is_named() {
    let rows = [
        (Machine::X86_64, "8@%rax 8@counter(%rip)", (1, Form)),
        (Machine::X86_64, "8@%xmm0", (0, BadRegister)),
        (Machine::X86_64, "8f@%xmm0", (0, Form)),
        (Machine::X86_64, "8@%rax%rbx", (0, Form)),
        (Machine::X86_64, "3@%eax", (0, Size)),
        (Machine::X86_64, "0@%eax", (0, Size)),
        (Machine::X86_64, "260@%eax", (0, Size)),
        (Machine::X86_64, "8@(%rdx,%rax,3)", (0, Form)),
        (Machine::X86_64, "8@(%rdx,%rax,", (0, Form)),
        (Machine::X86_64, "8@(%rdx", (0, Form)),
        (Machine::X86_64, "8@$", (0, Form)),
        (Machine::X86_64, "8@", (0, Form)),
        (Machine::X86_64, "8", (0, Form)),
        (Machine::X86_64, "@%rax", (0, Form)),
        (Machine::X86_64, "8@$18446744073709551616", (0, Form)),
        (Machine::X86_64, "8@%", (0, Form)),
        (Machine::X86, "4@%r8d", (0, BadRegister)),
        (Machine::Arm64, "8@[sp, x1]", (0, Form)),
        (Machine::Arm64, "8@x31", (0, BadRegister)),
        (Machine::Arm64, "8@x", (0, BadRegister)),
        (Machine::Arm64, "8@x+1", (0, BadRegister)),
        (Machine::Arm, "4@5", (0, BadRegister)),
        (Machine::Arm, "4@[r0, 4]", (0, Form)),
        (Machine::Riscv64, "8@x1", (0, BadRegister)),
        (Machine::S390x, "8@%r16", (0, BadRegister)),
        (Machine::S390x, "8@(%r15)", (0, Form)),
    ];
    for (machine, text, fault) in rows {
        assert_eq!(parse(machine, text.as_bytes()), Err(fault), "{machine:?} {text}");
    }
    let many = ["4@$1"; 13].join(" ");
    assert_eq!(parse(Machine::X86_64, many.as_bytes()), Err((12, TooMany)));
    assert_eq!(parse(Machine::X86_64, &many.as_bytes()[5..]).unwrap().len(), 12);
}

/// Any cut of a sound text, and any one byte of it changed, gives arguments or a fault, and never a panic.
#[test]
fn damaged_texts() {
    let text = b"-4@-1204(%rbp) 8@(%rdx,%rax,8) -4@$-9 8@[sp, 96] 4@[r0, #4]";
    let machines = [
        Machine::X86,
        Machine::X86_64,
        Machine::Arm,
        Machine::Arm64,
        Machine::Riscv32,
        Machine::Riscv64,
        Machine::S390x,
    ];
    for machine in machines {
        for cut in 0..=text.len() {
            let _ = parse(machine, &text[cut..]);
            let _ = parse(machine, &text[..cut]);
        }
        for place in 0..text.len() {
            for byte in [0, b' ', b'(', b'9', b'-', 0xff] {
                let mut changed = *text;
                changed[place] = byte;
                let _ = parse(machine, &changed);
            }
        }
    }
}
