//! Function and line info of a linked program.

use crate::arena::{Arena, Part};
use crate::bytes::{Endian, u32_bytes};
use crate::numbers::to_usize;

use super::{Code, LinkError, Linker, Placement};
use crate::link::InfoRecords;

impl<'l> Linker<'l> {
    /// Copies the function or line info of all functions, their instruction offsets made numbers of linked slots.
    pub(super) fn info<'s>(
        &self,
        placements: &[Placement],
        scratch: &mut Arena<'s>,
        part: Part,
    ) -> Result<InfoRecords<'s>, LinkError> {
        let is_func = part == Part::FuncInfo;
        let records_of = |code: &Code<'l>| {
            let (start, end) = code.byte_range();
            let records =
                if is_func { code.section.func_info(self.object) } else { code.section.line_info(self.object) };
            records.range(start, end)
        };
        let list = if is_func { self.object.ext().func_info } else { self.object.ext().line_info };
        let record_size = to_usize(list.record_size());
        let count: usize = placements.iter().map(|place| records_of(&self.code(place.function.index())).count()).sum();
        let bytes = scratch.take::<u8>(count.saturating_mul(record_size), part).map_err(self.code(0).arena())?;
        let mut copies = bytes.chunks_exact_mut(record_size.max(1));
        for place in placements {
            let code = self.code(place.function.index());
            for (record_idx, records) in records_of(&code) {
                let Some(record) = records.record(record_idx) else { continue };
                let Some(copy) = copies.next() else { break };
                copy.copy_from_slice(record.data());
                let insn_idx = code.insn_idx(u64::from(record.u32(0).unwrap_or(0)));
                write_u32(copy, place.insn_start.saturating_add(insn_idx), self.object.endian());
            }
        }
        Ok(InfoRecords { bytes, record_size: list.record_size() })
    }
}

fn write_u32(bytes: &mut [u8], value: u32, endian: Endian) {
    if let Some(place) = bytes.first_chunk_mut::<4>() {
        *place = u32_bytes(value, endian);
    }
}
