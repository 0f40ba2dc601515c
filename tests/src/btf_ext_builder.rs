//! `.BTF.ext` written by hand (`Documentation/bpf/btf.rst`, "BTF.ext section"): func_info, line_info and CO-RE records, in records
//! at least as long as the kernel knows them.

use crate::endian::Endian;

/// A CO-RE relocation record (`struct bpf_core_relo`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoreReloRecord {
    /// Byte offset of the instruction in its section.
    pub insn_off: u32,
    /// Root type in the object's BTF.
    pub type_id: u32,
    /// Offset of the access string in the object's BTF strings.
    pub access_str_off: u32,
    /// Relocation kind (`enum bpf_core_relo_kind`).
    pub kind: u32,
}

/// A line record (`struct bpf_line_info`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineRecord {
    /// Byte offset of the instruction in its section.
    pub insn_off: u32,
    /// Offset of the file name in the object's BTF strings.
    pub file_name_off: u32,
    /// Offset of the source line in the object's BTF strings.
    pub line_off: u32,
    /// Line number shifted left by 10, plus the column.
    pub line_col: u32,
}

#[derive(Debug, Clone)]
struct Part {
    record_size: u32,
    /// (offset of the section's name in the BTF strings, the words of each record)
    sections: Vec<(u32, Vec<Vec<u32>>)>,
}

impl Part {
    fn new(record_size: u32) -> Self {
        Part { record_size, sections: Vec::new() }
    }

    fn bytes(&self, e: Endian) -> Vec<u8> {
        let mut out = Vec::new();
        if self.sections.is_empty() {
            return out;
        }
        out.extend_from_slice(&e.u32(self.record_size));
        for (name_off, records) in &self.sections {
            out.extend_from_slice(&e.u32(*name_off));
            out.extend_from_slice(&e.u32(records.len() as u32));
            for record in records {
                let end = out.len() + self.record_size as usize;
                for word in record {
                    out.extend_from_slice(&e.u32(*word));
                }
                out.resize(end, 0);
            }
        }
        out
    }
}

/// Writes `.BTF.ext`.
#[derive(Debug, Clone)]
pub struct BtfExtBuilder {
    endian: Endian,
    header_len: u32,
    func: Part,
    line: Part,
    core: Part,
}

impl BtfExtBuilder {
    /// An empty one: a 32-byte header, records of 8, 16 and 16 bytes.
    #[must_use]
    pub fn new(endian: Endian) -> Self {
        BtfExtBuilder { endian, header_len: 32, func: Part::new(8), line: Part::new(16), core: Part::new(16) }
    }

    /// Sets the header's length in bytes: 24 stops before the CO-RE part, more than 32 adds zeros.
    pub fn header_len(&mut self, bytes: u32) -> &mut Self {
        self.header_len = bytes;
        self
    }

    /// Sets the record sizes in bytes. A size under what the records hold cuts them, as a hostile file would.
    pub fn record_sizes(&mut self, func_info: u32, line_info: u32, core_relo: u32) -> &mut Self {
        self.func.record_size = func_info;
        self.line.record_size = line_info;
        self.core.record_size = core_relo;
        self
    }

    /// func_info of a section: (byte offset of the instruction, FUNC id) records.
    pub fn func_info(&mut self, section_name_off: u32, records: &[(u32, u32)]) -> &mut Self {
        let records = records.iter().map(|&(insn_off, type_id)| vec![insn_off, type_id]).collect();
        self.func.sections.push((section_name_off, records));
        self
    }

    /// line_info of a section.
    pub fn line_info(&mut self, section_name_off: u32, records: &[LineRecord]) -> &mut Self {
        let words = |r: &LineRecord| vec![r.insn_off, r.file_name_off, r.line_off, r.line_col];
        self.line.sections.push((section_name_off, records.iter().map(words).collect()));
        self
    }

    /// CO-RE records of a section.
    pub fn core_relo(&mut self, section_name_off: u32, records: &[CoreReloRecord]) -> &mut Self {
        let words = |r: &CoreReloRecord| vec![r.insn_off, r.type_id, r.access_str_off, r.kind];
        self.core.sections.push((section_name_off, records.iter().map(words).collect()));
        self
    }

    /// The bytes: header, func_info, line_info, CO-RE records.
    #[must_use]
    pub fn build(&self) -> Vec<u8> {
        let e = self.endian;
        let parts = [self.func.bytes(e), self.line.bytes(e), self.core.bytes(e)];
        let mut out = Vec::new();
        out.extend_from_slice(&e.u16(0xeb9f));
        out.extend_from_slice(&[1, 0]);
        out.extend_from_slice(&e.u32(self.header_len));
        let mut off = 0;
        for part in &parts {
            out.extend_from_slice(&e.u32(off));
            out.extend_from_slice(&e.u32(part.len() as u32));
            off += part.len() as u32;
        }
        out.resize(self.header_len as usize, 0);
        out.extend(parts.into_iter().flatten());
        out
    }
}
