//! What the object's BTF leaves to the loader: sizes of sections, places of variables.

use core::cell::Cell;

use super::{Declared, ExternKind, MapOrigin, Object};
use crate::btf::sanitize::{ObjectLayout, Placed};

/// An object and what it declares, asked for places.
#[derive(Clone, Debug)]
pub(crate) struct Layout<'l> {
    object: &'l Object<'l>,
    declared: &'l Declared<'l>,
    /// The symbol behind the one that was found last: variables and symbols come in much the same order.
    next: Cell<u32>,
}

impl<'l> Layout<'l> {
    pub(crate) fn new(object: &'l Object<'l>, declared: &'l Declared<'l>) -> Self {
        Self { object, declared, next: Cell::new(1) }
    }
}

const KCONFIG: &[u8] = b".kconfig";

impl ObjectLayout for Layout<'_> {
    fn section_size(&self, section: &[u8]) -> Option<u32> {
        if section == KCONFIG {
            let map = self.declared.maps.iter().find(|map| map.origin() == MapOrigin::Kconfig)?;
            return Some(map.value_size);
        }
        let found = self.object.elf().section_by_name(section).ok()??;
        u32::try_from(found.size()).ok()
    }

    fn variable(&self, section: &[u8], name: &[u8]) -> Option<Placed> {
        if section == KCONFIG {
            let is_it = |ext: &&super::Extern| {
                ext.kind() == ExternKind::Kconfig && self.object.symbol_name(ext.symbol()) == name
            };
            let byte_offset = self.declared.externs.iter().find(is_it)?.data_range().byte_offset;
            return Some(Placed { byte_offset, is_hidden: false });
        }
        let elf = self.object.elf();
        let index = elf.section_by_name(section).ok()??.index;
        let next = self.next.get();
        let symbols = (next..elf.symbol_count()).chain(1..next).filter_map(|index| elf.symbol(index).ok());
        let mut found = symbols.filter(|symbol| {
            symbol.section == Some(index) && !symbol.is_local() && !symbol.is_function() && symbol.is_named(name)
        });
        let symbol = found.next()?;
        self.next.set(symbol.index.saturating_add(1));
        Some(Placed { byte_offset: u32::try_from(symbol.value).ok()?, is_hidden: symbol.is_hidden() })
    }

    fn is_hidden_function(&self, name: &[u8]) -> bool {
        self.declared.functions.iter().filter(|function| !function.is_program()).any(|function| {
            let symbol = self.object.elf().symbol(function.symbol());
            symbol.is_ok_and(|symbol| !symbol.is_local() && symbol.is_hidden() && symbol.is_named(name))
        })
    }
}
