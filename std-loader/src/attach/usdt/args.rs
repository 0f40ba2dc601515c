//! Where a probe's arguments are: the text of its note, which looks like the operands of the machine's assembler.
//!
//! `SIZE@OPERAND`, separated by spaces. The size is 1, 2, 4 or 8 bytes, negative for signed ones. What operands there are is in
//! the [description of the notes](https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation), and those that programs
//! can read are the ones that libbpf's `parse_usdt_arg` takes: constants, registers, memory at a register and an offset, and on
//! x86 with an index. A place in memory by its symbol (`8@counter(%rip)`) and floating-point registers are not among them.

use core::fmt;

use elf::abi;
use elf::file::Class;

/// The most arguments of one probe (BPF_USDT_MAX_ARG_CNT of usdt.bpf.h).
pub(super) const MAX_ARGUMENTS: usize = 12;

/// Machines whose operands are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Machine {
    X86,
    X86_64,
    Arm,
    Arm64,
    Riscv32,
    Riscv64,
    S390x,
}

impl Machine {
    /// The machine of an ELF file.
    pub(super) fn of(e_machine: u16, class: Class) -> Option<Machine> {
        Some(match (e_machine, class) {
            (abi::EM_386, Class::ELF32) => Machine::X86,
            (abi::EM_X86_64, Class::ELF64) => Machine::X86_64,
            (abi::EM_ARM, Class::ELF32) => Machine::Arm,
            (abi::EM_AARCH64, Class::ELF64) => Machine::Arm64,
            (abi::EM_RISCV, Class::ELF32) => Machine::Riscv32,
            (abi::EM_RISCV, Class::ELF64) => Machine::Riscv64,
            (abi::EM_S390, Class::ELF64) => Machine::S390x,
            _ => return None,
        })
    }

    /// The machine that we run on, whose `struct pt_regs` programs see; `None` where its operands are not known.
    pub(super) const RUNNING: Option<Machine> = if cfg!(target_arch = "x86_64") {
        Some(Machine::X86_64)
    } else if cfg!(target_arch = "x86") {
        Some(Machine::X86)
    } else if cfg!(target_arch = "arm") {
        Some(Machine::Arm)
    } else if cfg!(target_arch = "aarch64") {
        Some(Machine::Arm64)
    } else if cfg!(target_arch = "riscv32") {
        Some(Machine::Riscv32)
    } else if cfg!(target_arch = "riscv64") {
        Some(Machine::Riscv64)
    } else if cfg!(target_arch = "s390x") {
        Some(Machine::S390x)
    } else {
        None
    };

    /// Where a register is in `struct pt_regs` as programs see it, in bytes (uapi/asm/ptrace.h of each machine).
    fn register(self, name: &[u8]) -> Option<u16> {
        let numbered = |prefix: u8, count: u16| {
            let digits = name.strip_prefix(&[prefix])?;
            let number = core::str::from_utf8(digits).ok()?.parse::<u16>().ok()?;
            (number < count && digits.first().is_some_and(u8::is_ascii_digit)).then_some(number)
        };
        match self {
            Machine::X86_64 => x86_64_register(name),
            Machine::X86 => x86_register(name),
            Machine::Arm => {
                let named = [&b"fp"[..], b"ip", b"sp", b"lr", b"pc"].iter().position(|known| *known == name);
                let named = named.map(|place| place as u16 + 11);
                named.or_else(|| numbered(b'r', 11)).map(|number| number * 4)
            }
            Machine::Arm64 if name == b"sp" => Some(31 * 8),
            // The lower halves of the registers are `w`: the size says how much of one counts.
            Machine::Arm64 => numbered(b'x', 31).or_else(|| numbered(b'w', 31)).map(|number| number * 8),
            Machine::Riscv32 => riscv_register(name).map(|number| number * 4),
            Machine::Riscv64 => riscv_register(name).map(|number| number * 8),
            // After the first argument and the program status word.
            Machine::S390x => numbered(b'r', 16).map(|number| 24 + number * 8),
        }
    }
}

fn x86_64_register(name: &[u8]) -> Option<u16> {
    Some(match name {
        b"r15" | b"r15d" | b"r15w" | b"r15b" => 0,
        b"r14" | b"r14d" | b"r14w" | b"r14b" => 8,
        b"r13" | b"r13d" | b"r13w" | b"r13b" => 16,
        b"r12" | b"r12d" | b"r12w" | b"r12b" => 24,
        b"rbp" | b"ebp" | b"bp" | b"bpl" => 32,
        b"rbx" | b"ebx" | b"bx" | b"bl" => 40,
        b"r11" | b"r11d" | b"r11w" | b"r11b" => 48,
        b"r10" | b"r10d" | b"r10w" | b"r10b" => 56,
        b"r9" | b"r9d" | b"r9w" | b"r9b" => 64,
        b"r8" | b"r8d" | b"r8w" | b"r8b" => 72,
        b"rax" | b"eax" | b"ax" | b"al" => 80,
        b"rcx" | b"ecx" | b"cx" | b"cl" => 88,
        b"rdx" | b"edx" | b"dx" | b"dl" => 96,
        b"rsi" | b"esi" | b"si" | b"sil" => 104,
        b"rdi" | b"edi" | b"di" | b"dil" => 112,
        b"rip" | b"eip" => 128,
        b"rsp" | b"esp" | b"sp" | b"spl" => 152,
        _ => return None,
    })
}

fn x86_register(name: &[u8]) -> Option<u16> {
    Some(match name {
        b"ebx" | b"bx" | b"bl" => 0,
        b"ecx" | b"cx" | b"cl" => 4,
        b"edx" | b"dx" | b"dl" => 8,
        b"esi" | b"si" => 12,
        b"edi" | b"di" => 16,
        b"ebp" | b"bp" => 20,
        b"eax" | b"ax" | b"al" => 24,
        b"eip" => 48,
        b"esp" | b"sp" => 60,
        _ => return None,
    })
}

/// By its place in `struct user_regs_struct`: the program counter, then x1 to x31.
fn riscv_register(name: &[u8]) -> Option<u16> {
    const NAMES: [&[u8]; 31] = [
        b"ra", b"sp", b"gp", b"tp", b"t0", b"t1", b"t2", b"s0", b"s1", b"a0", b"a1", b"a2", b"a3", b"a4", b"a5", b"a6",
        b"a7", b"s2", b"s3", b"s4", b"s5", b"s6", b"s7", b"s8", b"s9", b"s10", b"s11", b"t3", b"t4", b"t5", b"t6",
    ];
    NAMES.iter().position(|known| *known == name).map(|place| place as u16 + 1)
}

/// An argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Argument {
    /// 1, 2, 4 or 8.
    pub(super) bytes: u8,
    pub(super) is_signed: bool,
    pub(super) operand: Operand,
}

/// Where an argument is. Registers are bytes from the start of `struct pt_regs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operand {
    Constant(u64),
    Register(u16),
    /// In the memory that a register points to, and so many bytes further.
    Memory {
        register: u16,
        offset: u64,
    },
    /// The same with another register, shifted, added.
    Indexed {
        register: u16,
        index: u16,
        shift: u8,
        offset: u64,
    },
}

/// What is wrong with an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentFault {
    /// It is in none of the forms that programs can read.
    Form,
    /// It names a register that programs cannot read.
    Register,
    /// It has not 1, 2, 4 or 8 bytes.
    Size,
    /// There are more than 12.
    TooMany,
}

impl fmt::Display for ArgumentFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ArgumentFault::Form => "is neither a constant nor in a register nor at a register's address",
            ArgumentFault::Register => "is in a register that programs cannot read",
            ArgumentFault::Size => "has not 1, 2, 4 or 8 bytes",
            ArgumentFault::TooMany => "is one more than the 12 that a probe can have",
        })
    }
}

/// All arguments of a probe, or the number of a bad one (from 0) and what is wrong with it.
pub(super) fn parse(
    machine: Machine,
    text: &[u8],
) -> Result<heapless::Vec<Argument, MAX_ARGUMENTS>, (usize, ArgumentFault)> {
    let mut arguments = heapless::Vec::new();
    let mut scanner = Scanner { rest: text.trim_ascii() };
    while !scanner.rest.is_empty() {
        let number = arguments.len();
        let argument = scanner.argument(machine).map_err(|fault| (number, fault))?;
        arguments.push(argument).map_err(|_| (number, ArgumentFault::TooMany))?;
    }
    Ok(arguments)
}

/// The text that is left. Spaces may stand between any two parts, as in libbpf's formats.
struct Scanner<'t> {
    rest: &'t [u8],
}

impl<'t> Scanner<'t> {
    fn argument(&mut self, machine: Machine) -> Result<Argument, ArgumentFault> {
        let size = self.integer().ok_or(ArgumentFault::Form)?.cast_signed();
        self.sign(b'@')?;
        let operand = self.operand(machine)?;
        // Something that the forms do not know may follow directly, as `:4` or `*8`.
        if self.rest.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
            return Err(ArgumentFault::Form);
        }
        self.rest = self.rest.trim_ascii_start();
        let bytes = match size.unsigned_abs() {
            bytes @ (1 | 2 | 4 | 8) => bytes as u8,
            _ => return Err(ArgumentFault::Size),
        };
        Ok(Argument { bytes, is_signed: size < 0, operand })
    }

    fn operand(&mut self, machine: Machine) -> Result<Operand, ArgumentFault> {
        match machine {
            Machine::X86 | Machine::X86_64 => self.x86(machine),
            Machine::Arm | Machine::Arm64 => self.arm(machine),
            Machine::Riscv32 | Machine::Riscv64 => self.riscv(machine),
            Machine::S390x => self.s390(machine),
        }
    }

    /// `$5`, `%eax`, `-20(%rbp)`, `(%rsp)`, `8(%rax,%rbx,4)`, `(%rax,%rbx)`
    fn x86(&mut self, machine: Machine) -> Result<Operand, ArgumentFault> {
        if self.has(b'$') {
            return self.integer().map(Operand::Constant).ok_or(ArgumentFault::Form);
        }
        if self.has(b'%') {
            return self.register(machine).map(Operand::Register);
        }
        let offset = self.integer().unwrap_or(0);
        self.sign(b'(')?;
        self.sign(b'%')?;
        let register = self.register(machine)?;
        if !self.has(b',') {
            self.sign(b')')?;
            return Ok(Operand::Memory { register, offset });
        }
        self.sign(b'%')?;
        let index = self.register(machine)?;
        let scale = if self.has(b',') { self.integer() } else { Some(1) };
        self.sign(b')')?;
        let shift = match scale {
            Some(scale @ (1 | 2 | 4 | 8)) => scale.trailing_zeros() as u8,
            _ => return Err(ArgumentFault::Form),
        };
        Ok(Operand::Indexed { register, index, shift, offset })
    }

    /// `x4`, `5`, `[sp, 96]`, `[x0]`; 32-bit ARM has `#` before numbers.
    fn arm(&mut self, machine: Machine) -> Result<Operand, ArgumentFault> {
        let has_hash = machine == Machine::Arm;
        if self.has(b'[') {
            let register = self.register(machine)?;
            let mut offset = 0;
            if self.has(b',') {
                if has_hash {
                    self.sign(b'#')?;
                }
                offset = self.integer().ok_or(ArgumentFault::Form)?;
            }
            self.sign(b']')?;
            return Ok(Operand::Memory { register, offset });
        }
        if has_hash {
            if self.has(b'#') {
                return self.integer().map(Operand::Constant).ok_or(ArgumentFault::Form);
            }
            return self.register(machine).map(Operand::Register);
        }
        match self.integer() {
            Some(constant) => Ok(Operand::Constant(constant)),
            None => self.register(machine).map(Operand::Register),
        }
    }

    /// `a1`, `5`, `-88(s0)`
    fn riscv(&mut self, machine: Machine) -> Result<Operand, ArgumentFault> {
        let Some(number) = self.integer() else { return self.register(machine).map(Operand::Register) };
        if !self.has(b'(') {
            return Ok(Operand::Constant(number));
        }
        let register = self.register(machine)?;
        self.sign(b')')?;
        Ok(Operand::Memory { register, offset: number })
    }

    /// `%r0`, `71`, `-28(%r15)`
    fn s390(&mut self, machine: Machine) -> Result<Operand, ArgumentFault> {
        if self.has(b'%') {
            return self.register(machine).map(Operand::Register);
        }
        let number = self.integer().ok_or(ArgumentFault::Form)?;
        if !self.has(b'(') {
            return Ok(Operand::Constant(number));
        }
        self.sign(b'%')?;
        let register = self.register(machine)?;
        self.sign(b')')?;
        Ok(Operand::Memory { register, offset: number })
    }

    /// Whether this comes next; it is taken then, and stays where it does not.
    fn has(&mut self, sign: u8) -> bool {
        let next = self.rest.trim_ascii_start().strip_prefix(&[sign]);
        self.rest = next.unwrap_or(self.rest);
        next.is_some()
    }

    fn sign(&mut self, sign: u8) -> Result<(), ArgumentFault> {
        if self.has(sign) { Ok(()) } else { Err(ArgumentFault::Form) }
    }

    fn register(&mut self, machine: Machine) -> Result<u16, ArgumentFault> {
        let text = self.rest.trim_ascii_start();
        let len = text.iter().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(text.len());
        let (name, rest) = text.split_at(len);
        if name.is_empty() {
            return Err(ArgumentFault::Form);
        }
        self.rest = rest;
        machine.register(name).ok_or(ArgumentFault::Register)
    }

    /// A decimal number of 64 bits, negative ones as their two's complement. Nothing is taken where there is none.
    fn integer(&mut self) -> Option<u64> {
        let text = self.rest.trim_ascii_start();
        let (is_negative, digits) = match text.strip_prefix(b"-") {
            Some(digits) => (true, digits),
            None => (false, text.strip_prefix(b"+").unwrap_or(text)),
        };
        let len = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
        let (number, rest) = digits.split_at(len);
        let number = core::str::from_utf8(number).ok()?.parse::<u64>().ok()?;
        self.rest = rest;
        Some(if is_negative { number.wrapping_neg() } else { number })
    }
}

#[cfg(test)]
mod tests;
