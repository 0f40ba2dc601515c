//! CO-RE rows out of libbpf's debug log (the messages of `bpf_core_calc_relo_insn` and `bpf_core_patch_insn`).

/// A candidate that libbpf compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogCandidate {
    /// Number in libbpf's list at that time; it drops those that did not match an earlier relocation of the type.
    pub index: u32,
    /// It matched.
    pub matching: bool,
    /// Its id in the target BTF.
    pub target_id: u32,
    /// The candidate as libbpf spells it, without the kind in front: `[123] struct task_struct.pid (0:79 @ offset 1256)`.
    pub spec: String,
}

/// What became of a relocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogStatus {
    /// The instruction was patched.
    Patched {
        /// Value found in the instruction.
        local_value: u64,
        /// Value put there.
        target_value: u64,
        /// Access size changed, in bytes: from, to.
        mem_size: Option<(u32, u32)>,
    },
    /// The instruction was poisoned.
    Poisoned,
    /// libbpf gave up, with the warning.
    Failed(String),
    /// The log ends before it says.
    Unknown,
}

/// One relocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReloLog {
    /// Program or subprogram.
    pub program: String,
    /// Number of the record within its section.
    pub relo_idx: u32,
    /// Kind as libbpf says it (`byte_off`, `field_exists`, ...); empty when the type or the access string was refused.
    pub kind: String,
    /// Root type in the object's BTF.
    pub local_id: u32,
    /// The local side as libbpf spells it, without the kind in front.
    pub local_spec: String,
    /// Candidates in the order tried.
    pub candidates: Vec<LogCandidate>,
    /// Slot of the instruction within the program, once known.
    pub insn_idx: Option<u32>,
    /// The result.
    pub status: LogStatus,
}

/// `<kind> [id] rest` into kind, id, and everything after the kind.
fn split_spec(text: &str) -> Option<(&str, u32, &str)> {
    let (kind, spec) = text.strip_prefix('<')?.split_once("> ")?;
    let id = spec.strip_prefix('[')?.split_once(']')?.0.parse().ok()?;
    Some((kind, id, spec))
}

/// The number after `insn #`.
fn insn_number(text: &str) -> Option<u32> {
    let digits = text.split_once("insn #")?.1;
    digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The numbers on both sides of the last ` -> `.
fn arrow(text: &str) -> Option<(u64, u64)> {
    let (left, right) = text.rsplit_once(" -> ")?;
    Some((left.rsplit(' ').next()?.parse().ok()?, right.trim().parse().ok()?))
}

impl ReloLog {
    fn take(&mut self, text: &str) {
        if let Some(rest) = text.strip_prefix("patched insn #") {
            self.insn_idx = rest.split(' ').next().and_then(|n| n.parse().ok());
            let Some((from, to)) = arrow(rest) else {
                return;
            };
            match &mut self.status {
                LogStatus::Patched { mem_size, .. } if rest.contains(") mem_sz ") => {
                    *mem_size = Some((from as u32, to as u32));
                }
                status => *status = LogStatus::Patched { local_value: from, target_value: to, mem_size: None },
            }
        } else if text.starts_with("substituting insn #") {
            // Both slots of an LD_IMM64 are named, the second one first.
            self.insn_idx = insn_number(text);
            self.status = LogStatus::Poisoned;
        } else if let Some((verdict, rest)) = text.split_once(" candidate #") {
            if verdict == "matching" || verdict == "non-matching" {
                let Some((index, spec)) = rest.split_once(' ') else {
                    return;
                };
                let (Ok(index), Some((_, target_id, spec))) = (index.parse(), split_spec(spec)) else {
                    return;
                };
                let matching = verdict == "matching";
                self.candidates.push(LogCandidate { index, matching, target_id, spec: spec.to_owned() });
            } else {
                self.status = LogStatus::Failed(text.to_owned());
            }
        } else if text != "no matching targets found" && self.status == LogStatus::Unknown {
            // Every other line of a relocation is a warning. One about an access size is followed by the poisoning.
            self.insn_idx = self.insn_idx.or(insn_number(text));
            self.status = LogStatus::Failed(text.to_owned());
        }
    }
}

/// Every CO-RE relocation in a log, in its order. Names and numbers are as libbpf prints them; a program's name alone does not
/// say which section it is in.
#[must_use]
pub fn parse_core_log(log: &str) -> Vec<ReloLog> {
    let mut found: Vec<ReloLog> = Vec::new();
    for line in log.lines() {
        let line = line.strip_prefix("libbpf: ").unwrap_or(line);
        let Some((program, rest)) = line.strip_prefix("prog '").and_then(|rest| rest.split_once("': relo #")) else {
            continue;
        };
        let Some((number, text)) = rest.split_once(": ") else {
            continue;
        };
        let Ok(relo_idx) = number.parse::<u32>() else {
            continue;
        };
        let spec = split_spec(text);
        // Two warnings come before the spec, or instead of it. A later one, of an anonymous type, begins like a spec without id.
        let refused = ["parsing [", "target candidate search failed for ["]
            .iter()
            .find_map(|start| text.strip_prefix(start)?.split_once(']')?.0.parse().ok());
        if spec.is_some() || refused.is_some() {
            let (kind, local_id, local_spec) = spec.unwrap_or(("", refused.unwrap_or(0), ""));
            found.push(ReloLog {
                program: program.to_owned(),
                relo_idx,
                kind: kind.to_owned(),
                local_id,
                local_spec: local_spec.to_owned(),
                candidates: Vec::new(),
                insn_idx: None,
                status: LogStatus::Unknown,
            });
        }
        // The linker's "relo #N" lines about maps and calls follow after all of CO-RE and name no relocation that is open.
        let open = found.last_mut().filter(|last| last.program == program && last.relo_idx == relo_idx);
        if let (Some(last), None) = (open, spec) {
            last.take(text);
        }
    }
    found
}
