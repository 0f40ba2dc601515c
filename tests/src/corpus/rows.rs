//! The oracle's tables, typed. Columns are named as in this project: what libbpf prints as old is the local value, new the
//! target's.

/// What libbpf made of a CO-RE record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CoreStatus {
    /// Resolved and patched.
    Ok,
    /// The instruction was poisoned.
    Poison,
    /// Resolved, but the instruction could not be patched.
    PatchFail,
    /// Not resolved, with the error's text.
    ResolveFail(String),
}

/// A row of `core-KERNEL.tsv.zst`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoreRow {
    /// Path of the object below the corpus.
    pub object: String,
    /// Section of the instruction.
    pub section: String,
    /// Program or subprogram.
    pub program: String,
    /// Number of the record within its section.
    pub relo_idx: u32,
    /// Slot within the program.
    pub insn_idx: u32,
    /// Byte offset within the section.
    pub insn_off: u32,
    /// Kind, in the README's words (`field_byte_offset`, ...).
    pub kind: String,
    /// Root type, as `struct NAME`.
    pub local_type: String,
    /// Access string.
    pub access: String,
    /// The result.
    pub status: CoreStatus,
    /// Class of the instruction (`ALU64`, `LDX`, `STX`, `LDIMM64`, ...).
    pub insn_class: String,
    /// Value by the object's types.
    pub local_value: Option<u64>,
    /// Value by the kernel's types.
    pub target_value: Option<u64>,
    /// libbpf compares the compiled immediate with the local value.
    pub validated: bool,
    /// libbpf found a size that the access cannot be changed to.
    pub mem_size_failed: bool,
    /// The instruction as compiled, 8 or 16 bytes in LITTLE-ENDIAN order, whatever the object's is.
    pub local_insn: Vec<u8>,
    /// The instruction as patched, in the same order.
    pub target_insn: Vec<u8>,
    /// Remark.
    pub note: String,
}

/// A row of `verdicts.tsv`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerdictRow {
    /// Path of the object below the corpus.
    pub object: String,
    /// `open_ok` or `open_fail:...`
    pub open: String,
    /// `load_ok`, `load_fail:...` or `-`
    pub load_default: String,
    /// Class of the cause, a guide only.
    pub cause_default: String,
    /// The same with trampoline programs off and empty maps sized.
    pub load_no_trampoline_sized: String,
    /// Class of that cause.
    pub cause_no_trampoline_sized: String,
    /// Number of programs.
    pub programs: u32,
    /// Number of maps.
    pub maps: u32,
    /// `LE` or `BE`
    pub endian: String,
    /// Types in the object's BTF.
    pub types: Option<u32>,
    /// CO-RE records.
    pub core_relos: Option<u32>,
    /// Records by kind, `KIND=N,...`
    pub core_by_kind: String,
    /// Sections.
    pub sections: String,
    /// Licence section.
    pub license_section: String,
    /// Remark.
    pub note: String,
}

impl VerdictRow {
    /// Whether libbpf opens the object.
    #[must_use]
    pub fn opens(&self) -> bool {
        self.open == "open_ok"
    }

    /// Whether libbpf loads it in either run.
    #[must_use]
    pub fn loads(&self) -> bool {
        self.load_default == "load_ok" || self.load_no_trampoline_sized == "load_ok"
    }
}

/// A row of `programs.tsv`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramRow {
    /// Path of the object below the corpus.
    pub object: String,
    /// Name.
    pub program: String,
    /// Section.
    pub section: String,
    /// `enum bpf_prog_type`
    pub prog_type: u32,
    /// `enum bpf_attach_type`
    pub attach_type: u32,
    /// Slots as compiled.
    pub insns: u32,
    /// Loaded by default.
    pub autoload: bool,
}

/// A row of `maps.tsv`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapRow {
    /// Path of the object below the corpus.
    pub object: String,
    /// Name.
    pub map: String,
    /// `enum bpf_map_type`
    pub map_type: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Entries.
    pub max_entries: u32,
    /// `map_flags`
    pub flags: u32,
}

pub(super) trait Row: Sized {
    const COLUMNS: &'static [&'static str];
    fn from_columns(columns: &[&str]) -> Option<Self>;
}

/// Every row of a table with a heading. Missing columns at the end of a row are empty: a tool may have stripped trailing tabs.
pub(super) fn parse<R: Row>(table: &str, name: &str) -> Vec<R> {
    let mut lines = table.lines();
    let heading: Vec<&str> = lines.next().unwrap_or_default().split('\t').collect();
    assert_eq!(heading, R::COLUMNS, "columns of {name}");
    let mut rows = Vec::new();
    for (i, line) in lines.enumerate().filter(|(_, line)| !line.is_empty()) {
        let mut columns: Vec<&str> = line.split('\t').collect();
        assert!(columns.len() <= R::COLUMNS.len(), "{name}:{}: {} columns", i + 2, columns.len());
        columns.resize(R::COLUMNS.len(), "");
        rows.push(R::from_columns(&columns).unwrap_or_else(|| panic!("{name}:{}: cannot read {line}", i + 2)));
    }
    assert!(!rows.is_empty(), "{name} has no rows");
    rows
}

/// A number that may be empty, in C's notation: `Some(None)` when empty, `None` when it is none.
fn optional_u32(text: &str) -> Option<Option<u32>> {
    if text.is_empty() || text == "-" {
        return Some(None);
    }
    number(text).map(Some)
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A value, unsigned or with a sign, and the flags after it.
fn value(text: &str) -> Option<(Option<u64>, Vec<&str>)> {
    let mut words = text.split_whitespace();
    let Some(first) = words.next() else {
        return Some((None, Vec::new()));
    };
    if first == "-" {
        return Some((None, words.collect()));
    }
    let number = first.parse::<u64>().or_else(|_| first.parse::<i64>().map(|v| v as u64)).ok()?;
    Some((Some(number), words.collect()))
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    if hex == "-" {
        return Some(Vec::new());
    }
    if !hex.len().is_multiple_of(2) {
        return None;
    }
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(hex.get(i..i + 2)?, 16).ok()).collect()
}

impl Row for CoreRow {
    const COLUMNS: &'static [&'static str] = &[
        "object",
        "section",
        "program",
        "relo_idx",
        "insn_idx",
        "insn_off",
        "kind",
        "local_type",
        "access",
        "status",
        "insn_class",
        "old_val",
        "new_val",
        "old_insn",
        "new_insn",
        "note",
    ];

    fn from_columns(c: &[&str]) -> Option<Self> {
        let status = match c[9] {
            "ok" => CoreStatus::Ok,
            "poison" => CoreStatus::Poison,
            "patch_fail" => CoreStatus::PatchFail,
            other => CoreStatus::ResolveFail(other.strip_prefix("resolve_fail:")?.to_owned()),
        };
        let (local_value, _) = value(c[11])?;
        let (target_value, flags) = value(c[12])?;
        if flags.iter().any(|flag| !["novalidate", "failmemsz"].contains(flag)) {
            return None;
        }
        Some(CoreRow {
            object: c[0].to_owned(),
            section: c[1].to_owned(),
            program: c[2].to_owned(),
            relo_idx: number(c[3])?,
            insn_idx: number(c[4])?,
            insn_off: number(c[5])?,
            kind: c[6].to_owned(),
            local_type: c[7].to_owned(),
            access: c[8].to_owned(),
            status,
            insn_class: c[10].to_owned(),
            local_value,
            target_value,
            validated: !flags.contains(&"novalidate"),
            mem_size_failed: flags.contains(&"failmemsz"),
            local_insn: bytes(c[13])?,
            target_insn: bytes(c[14])?,
            note: c[15].to_owned(),
        })
    }
}

impl Row for VerdictRow {
    const COLUMNS: &'static [&'static str] = &[
        "object",
        "open",
        "load_default",
        "cause_default",
        "load_no_trampoline_sized",
        "cause2",
        "programs",
        "maps",
        "endian",
        "types",
        "core_relos",
        "core_by_kind",
        "sections",
        "license_sec",
        "note",
    ];

    fn from_columns(c: &[&str]) -> Option<Self> {
        Some(VerdictRow {
            object: c[0].to_owned(),
            open: c[1].to_owned(),
            load_default: c[2].to_owned(),
            cause_default: c[3].to_owned(),
            load_no_trampoline_sized: c[4].to_owned(),
            cause_no_trampoline_sized: c[5].to_owned(),
            programs: number(c[6])?,
            maps: number(c[7])?,
            endian: c[8].to_owned(),
            types: optional_u32(c[9])?,
            core_relos: optional_u32(c[10])?,
            core_by_kind: c[11].to_owned(),
            sections: c[12].to_owned(),
            license_section: c[13].to_owned(),
            note: c[14].to_owned(),
        })
    }
}

impl Row for ProgramRow {
    const COLUMNS: &'static [&'static str] =
        &["object", "program", "section", "prog_type", "attach_type", "insns", "autoload"];

    fn from_columns(c: &[&str]) -> Option<Self> {
        Some(ProgramRow {
            object: c[0].to_owned(),
            program: c[1].to_owned(),
            section: c[2].to_owned(),
            prog_type: number(c[3])?,
            attach_type: number(c[4])?,
            insns: number(c[5])?,
            autoload: match c[6] {
                "0" => false,
                "1" => true,
                _ => return None,
            },
        })
    }
}

impl Row for MapRow {
    const COLUMNS: &'static [&'static str] =
        &["object", "map", "type", "key_size", "value_size", "max_entries", "flags"];

    fn from_columns(c: &[&str]) -> Option<Self> {
        Some(MapRow {
            object: c[0].to_owned(),
            map: c[1].to_owned(),
            map_type: number(c[2])?,
            key_size: number(c[3])?,
            value_size: number(c[4])?,
            max_entries: number(c[5])?,
            flags: number(c[6])?,
        })
    }
}
