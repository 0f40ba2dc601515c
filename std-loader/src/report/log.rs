//! What a verifier log says.

use core::fmt;

use corelo_core::insn::POISON_HELPER;
use corelo_core::link::Placement;
use corelo_core::prepare::{Prepared, Relocation};

use super::candidates::CandidatesReport;
use super::relocation::RelocationPlace;

/// The last line of a verifier log that says what is wrong: statistics and empty lines are left out.
#[must_use]
pub fn verdict_line(log: &[u8]) -> &[u8] {
    let lines = log.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let mut said = lines.filter(|line| {
        !line.is_empty()
            && !line.starts_with(b"processed ")
            && !line.starts_with(b"verification time ")
            && !line.starts_with(b"stack depth ")
            && !line.starts_with(b"insns_idx ")
    });
    said.next_back().unwrap_or_default()
}

/// Says of a verifier log that complains about the poison helper which relocation put it there.
#[derive(Clone, Copy, Debug)]
pub struct PoisonReport<'r, 'a> {
    prepared: &'r Prepared<'a>,
    relocation: Relocation<'r>,
    insn_idx: u32,
}

impl<'r, 'a> PoisonReport<'r, 'a> {
    /// Looks through the log of a program whose functions lie at `placements`; `None` where the log is about something
    /// else.
    #[must_use]
    pub fn find(log: &[u8], prepared: &'r Prepared<'a>, placements: &[Placement]) -> Option<Self> {
        let insn_idx = poisoned_insn(log)?;
        let place = placements.iter().rfind(|place| place.insn_start <= insn_idx)?;
        let in_function = insn_idx - place.insn_start;
        let relocation = prepared.relocations().find(|relocation| {
            let slots = u32::try_from(relocation.insns().len()).unwrap_or(1);
            relocation.function == Some(place.function)
                && (relocation.insn_idx..relocation.insn_idx.saturating_add(slots)).contains(&in_function)
        })?;
        Some(Self { prepared, relocation, insn_idx })
    }

    /// The relocation that was poisoned.
    #[must_use]
    pub fn relocation(&self) -> &Relocation<'r> {
        &self.relocation
    }
}

impl fmt::Display for PoisonReport<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prepared, relocation, insn_idx } = self;
        let place = RelocationPlace { prepared, relocation };
        write!(
            f,
            "{place}: the kernel lacks it, so the instruction was poisoned (call of helper {POISON_HELPER}), and the \
             verifier reaches it as instruction {insn_idx} of the linked program"
        )?;
        CandidatesReport { prepared, relo: &relocation.relo }.fmt(f)?;
        f.write_str("; guard the access with bpf_core_field_exists() or its like")
    }
}

/// The slot that the verifier was at when it met the poison helper: `N: (85) call unknown#195896080`.
fn poisoned_insn(log: &[u8]) -> Option<u32> {
    let mut last = None;
    for line in log.split(|&byte| byte == b'\n') {
        let line = line.trim_ascii_start();
        let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = line.split_at(digits);
        let number = core::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
        if rest.starts_with(b": (") {
            last = number;
        }
        if contains(line, b"#195896080") {
            return last;
        }
    }
    None
}

fn contains(line: &[u8], wanted: &[u8]) -> bool {
    line.windows(wanted.len()).any(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_poisoned_instruction_is_read_from_the_log() {
        let log = b"0: R1=ctx() R10=fp0\n0: (b7) r0 = 0\n; x = y;\n7: (85) call unknown#195896080\ninvalid func \
                    unknown#195896080\nprocessed 2 insns\n";
        assert_eq!(poisoned_insn(log), Some(7));
        assert_eq!(poisoned_insn(b"3: (85) call unknown#7\ninvalid func unknown#7\n"), None);
        assert_eq!(poisoned_insn(b"invalid func unknown#195896080\n"), None);
        assert_eq!(poisoned_insn(b""), None);
    }

    #[test]
    fn the_text_that_is_looked_for_is_the_poison_helper() {
        assert_eq!(POISON_HELPER.to_string(), "195896080");
    }

    #[test]
    fn the_verdict_is_the_last_line_that_says_something() {
        let log =
            b"0: (b7) r0 = 0\nR1 !read_ok\nverification time 40 usec\nstack depth 0\nprocessed 1 insns (limit)\n\n";
        assert_eq!(verdict_line(log), b"R1 !read_ok");
        assert_eq!(verdict_line(b""), b"");
    }
}
