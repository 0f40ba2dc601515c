//! Where programs look up how to read a probe's arguments: the array map `__bpf_usdt_specs` of bpf/usdt.bpf.h.
//!
//! An element is one argument specification (struct __bpf_usdt_spec), and the attach cookie of a probe its index. What is in
//! the struct where has changed between versions of libbpf, also in size (208 bytes before 1.7, 304 in 1.7 for want of packing),
//! so the object's own BTF says it; an object without types has the older layout.
//!
//! An element is never changed once it is written, and one that says the same as an earlier one is not written again: all
//! probes of all programs of a collection with the same arguments (and the same cookie of the user) share one, also those that
//! are attached again later.

use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use corelo_core::btf::{Kind, Member, Type, TypeId, Types};

use super::UsdtError;
use super::args::{Argument, Operand};
use crate::attach::{LinkError, call};
use crate::sys::Errno;
use crate::sys::fd_table::MapRef;
use crate::sys::list::Bytes;

/// A number's place in a struct: the first of its bits, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Field {
    bit: usize,
    bits: usize,
}

impl Field {
    const fn new(bit: usize, bits: usize) -> Field {
        Field { bit, bits }
    }

    /// Bits are counted as BTF does: from the lowest of the first byte on little-endian machines, from the highest on others.
    fn put(self, buffer: &mut [u8], start: usize, value: u64) -> Option<()> {
        for number in 0..self.bits {
            let (place, from_low) = if cfg!(target_endian = "big") {
                (7 - (self.bit + number) % 8, self.bits - 1 - number)
            } else {
                ((self.bit + number) % 8, number)
            };
            let set = u32::try_from(from_low).ok().and_then(|from_low| value.checked_shr(from_low)).unwrap_or(0) & 1;
            *buffer.get_mut(start + (self.bit + number) / 8)? |= (set as u8) << place;
        }
        Some(())
    }
}

/// Where everything is in an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    /// Bytes of an element.
    size: usize,
    /// Where the arguments start, how many there are, and how far apart, in bytes.
    arguments: usize,
    count: usize,
    step: usize,
    cookie: Field,
    argument_count: Field,
    /// Within an argument.
    value: Field,
    operand: Field,
    register: Field,
    is_signed: Field,
    shift: Field,
    /// The index register and its scale; libbpf 1.7.
    index: Option<(Field, Field)>,
}

/// The largest element that is written.
const MAX_SIZE: usize = 1024;

impl Layout {
    /// libbpf before 1.7.
    const OLDER: Layout = Layout {
        size: 208,
        arguments: 0,
        count: 12,
        step: 16,
        cookie: Field::new(192 * 8, 64),
        argument_count: Field::new(200 * 8, 16),
        value: Field::new(0, 64),
        operand: Field::new(64, 32),
        register: Field::new(96, 16),
        is_signed: Field::new(112, 8),
        shift: Field::new(120, 8),
        index: None,
    };

    /// What the type of the map's values says; `None` for another type.
    fn of(types: &Types<'_>, value_type: TypeId) -> Option<Layout> {
        let spec = types.skip_modifiers(value_type).ok()?;
        let arguments = member(types, &spec, b"args")?;
        let array = types.skip_modifiers(arguments.type_id).ok()?.array()?;
        let argument = types.skip_modifiers(array.element).ok()?;
        let of_spec = |name: &[u8]| field(types, &spec, name);
        let of_argument = |name: &[u8]| field(types, &argument, name);
        Some(Layout {
            size: spec.byte_size() as usize,
            arguments: arguments.bit_offset as usize / 8,
            count: array.len as usize,
            step: argument.byte_size() as usize,
            cookie: of_spec(b"usdt_cookie")?,
            argument_count: of_spec(b"arg_cnt")?,
            value: of_argument(b"val_off")?,
            operand: of_argument(b"arg_type")?,
            register: of_argument(b"reg_off")?,
            is_signed: of_argument(b"arg_signed")?,
            shift: of_argument(b"arg_bitshift")?,
            index: of_argument(b"idx_reg_off").zip(of_argument(b"scale_bitshift")),
        })
    }

    /// Writes an element, `buffer` being as long and zero.
    fn encode(&self, buffer: &mut [u8], arguments: &[Argument], cookie: u64) -> Result<(), UsdtError> {
        // More arguments or a smaller element than the type says.
        let damaged = UsdtError::Layout { value_size: self.size as u32 };
        for (number, argument) in arguments.iter().enumerate() {
            if number >= self.count {
                return Err(UsdtError::Argument { number, fault: super::ArgumentFault::TooMany });
            }
            let start = self.arguments + number * self.step;
            // enum __bpf_usdt_arg_type.
            let (operand, value, register) = match argument.operand {
                Operand::Constant(value) => (0, value, 0),
                Operand::Register(register) => (1, 0, register),
                Operand::Memory { register, offset } => (2, offset, register),
                Operand::Indexed { register, index, shift, offset } => {
                    let (to_index, to_scale) = self.index.ok_or(UsdtError::NoIndex { number })?;
                    to_index.put(buffer, start, u64::from(index)).ok_or(damaged)?;
                    to_scale.put(buffer, start, u64::from(shift)).ok_or(damaged)?;
                    (3, offset, register)
                }
            };
            let shift = 64 - u64::from(argument.bytes) * 8;
            for (field, value) in [
                (self.operand, operand),
                (self.value, value),
                (self.register, u64::from(register)),
                (self.is_signed, u64::from(argument.is_signed)),
                (self.shift, shift),
            ] {
                field.put(buffer, start, value).ok_or(damaged)?;
            }
        }
        self.cookie.put(buffer, 0, cookie).ok_or(damaged)?;
        self.argument_count.put(buffer, 0, arguments.len() as u64).ok_or(damaged)
    }
}

fn member(types: &Types<'_>, ty: &Type<'_>, name: &[u8]) -> Option<Member> {
    let is_struct = ty.kind() == Kind::Struct;
    ty.members().find(|member| is_struct && types.string(member.name_off).is_ok_and(|own| own == name))
}

fn field(types: &Types<'_>, ty: &Type<'_>, name: &[u8]) -> Option<Field> {
    let member = member(types, ty, name)?;
    let bits = match member.bitfield_size {
        0 => types.byte_size(member.type_id).ok().filter(|size| *size <= 8)? as usize * 8,
        bits => usize::from(bits),
    };
    Some(Field { bit: member.bit_offset as usize, bits })
}

/// A collection's specifications, for one attachment.
#[derive(Debug)]
pub(super) struct Specs<'m> {
    map: MapRef<'m>,
    layout: Layout,
    /// How many elements of the map are in use. While it is locked, nobody else adds any.
    used: MutexGuard<'m, u32>,
    /// Their contents.
    known: Bytes,
}

impl<'m> Specs<'m> {
    /// `value_type` is the type of the map's values in the object's BTF.
    pub(super) fn new(
        map: BorrowedFd<'m>,
        value_type: Option<(&Types<'_>, TypeId)>,
        used: &'m Mutex<u32>,
    ) -> Result<Specs<'m>, LinkError> {
        let map = MapRef::new(map).map_err(call("BPF_OBJ_GET_INFO_BY_FD"))?;
        let layout = match value_type {
            Some((types, id)) => Layout::of(types, id),
            None => Some(Layout::OLDER),
        };
        let is_sound = |layout: &Layout| map.key_size() == 4 && map.value_bytes() == layout.size;
        let layout = layout
            .filter(|layout| is_sound(layout) && (1..=MAX_SIZE).contains(&layout.size))
            .ok_or(UsdtError::Layout { value_size: map.value_bytes() as u32 })?;
        // Whoever panicked had written whole elements.
        let used = used.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = Bytes::new();
        let mut buffer = [0; MAX_SIZE];
        let element = &mut buffer[..layout.size];
        for id in 0..*used {
            map.lookup(&id.to_ne_bytes(), element, 0).map_err(call("BPF_MAP_LOOKUP_ELEM"))?;
            known.extend(element).map_err(call("mmap"))?;
        }
        Ok(Specs { map, layout, used, known })
    }

    /// The number of the element that says this; it is written where there is none yet.
    pub(super) fn id(&mut self, arguments: &[Argument], cookie: u64) -> Result<u32, LinkError> {
        let mut buffer = [0; MAX_SIZE];
        let element = &mut buffer[..self.layout.size];
        self.layout.encode(element, arguments, cookie)?;
        let earlier = self.known.as_slice().chunks_exact(self.layout.size).position(|known| known == element);
        if let Some(id) = earlier.and_then(|id| u32::try_from(id).ok()) {
            return Ok(id);
        }
        let id = *self.used;
        let max_entries = self.map.max_entries();
        if id >= max_entries {
            return Err(UsdtError::SpecsFull { max_entries }.into());
        }
        self.map.update(&id.to_ne_bytes(), element, 0).map_err(|errno: Errno| call("BPF_MAP_UPDATE_ELEM")(errno))?;
        self.known.extend(element).map_err(call("mmap"))?;
        *self.used = id + 1;
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::usdt::ArgumentFault;

    /// libbpf 1.7 as compilers lay it out: 24 bytes for an argument.
    #[cfg(target_endian = "little")]
    const NEWER: Layout = Layout {
        size: 304,
        step: 24,
        cookie: Field::new(288 * 8, 64),
        argument_count: Field::new(296 * 8, 16),
        operand: Field::new(64, 8),
        index: Some((Field::new(80, 12), Field::new(92, 4))),
        register: Field::new(112, 16),
        is_signed: Field::new(128, 8),
        shift: Field::new(136, 8),
        ..Layout::OLDER
    };

    fn argument(size: i8, operand: Operand) -> Argument {
        Argument { bytes: size.unsigned_abs(), is_signed: size < 0, operand }
    }

    #[test]
    fn the_older_layout() {
        let arguments = [
            argument(-4, Operand::Constant(9u64.wrapping_neg())),
            argument(8, Operand::Register(112)),
            argument(2, Operand::Memory { register: 32, offset: 1204u64.wrapping_neg() }),
        ];
        let mut element = [0; 208];
        Layout::OLDER.encode(&mut element, &arguments, 0x1122_3344_5566_7788).unwrap();
        let word = |at: usize| i64::from_ne_bytes(element[at..at + 8].try_into().unwrap());
        let int = |at: usize| u32::from_ne_bytes(element[at..at + 4].try_into().unwrap());
        let short = |at: usize| u16::from_ne_bytes(element[at..at + 2].try_into().unwrap());
        assert_eq!((word(0), int(8), short(12), element[14], element[15]), (-9, 0, 0, 1, 32));
        assert_eq!((word(16), int(24), short(28), element[30], element[31]), (0, 1, 112, 0, 0));
        assert_eq!((word(32), int(40), short(44), element[46], element[47]), (-1204, 2, 32, 0, 48));
        assert!(element[48..192].iter().all(|byte| *byte == 0));
        assert_eq!((word(192), short(200)), (0x1122_3344_5566_7788, 3));
        let indexed = Operand::Indexed { register: 0, index: 8, shift: 1, offset: 0 };
        let refused = Layout::OLDER.encode(&mut [0; 208], &[arguments[0], argument(8, indexed)], 0);
        assert_eq!(refused, Err(UsdtError::NoIndex { number: 1 }));
        let short_of_room = Layout { count: 2, ..Layout::OLDER }.encode(&mut [0; 208], &arguments, 0);
        assert_eq!(short_of_room, Err(UsdtError::Argument { number: 2, fault: ArgumentFault::TooMany }));
        let cut_off = Layout::OLDER.encode(&mut [0; 100], &arguments, 0);
        assert_eq!(cut_off, Err(UsdtError::Layout { value_size: 208 }));
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn the_newer_layout() {
        let operand = Operand::Indexed { register: 0x102, index: 0xabc, shift: 3, offset: 0x1122_3344_5566_7788 };
        let mut element = [0; 304];
        NEWER.encode(&mut element, &[argument(-4, operand)], 0).unwrap();
        // As clang 19 lays out an initialised struct.
        let wanted =
            [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 3, 0, 0xbc, 0x3a, 0, 0, 2, 1, 1, 32, 0, 0, 0, 0, 0, 0];
        assert_eq!(element[..24], wanted);
        assert_eq!(element[296], 1);
    }

    fn fixture(name: &str) -> Layout {
        let endian = if cfg!(target_endian = "big") { "eb" } else { "el" };
        let path = format!("{}/../tests/fixtures/{name}-{endian}.o", env!("CARGO_MANIFEST_DIR"));
        let file = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let object = corelo_core::object::Object::parse(&file).unwrap();
        let mut buffer = vec![0; 256 << 10];
        let mut arena = corelo_core::arena::Arena::new(&mut buffer);
        let options = corelo_core::prepare::Options::default();
        let prepared = corelo_core::prepare::prepare(&object, None, options, &mut arena).unwrap();
        let is_it = |map: &&corelo_core::object::Map| prepared.map_name(map) == b"__bpf_usdt_specs";
        let map = prepared.maps().iter().find(is_it).unwrap();
        Layout::of(prepared.local().unwrap(), map.value_type().unwrap()).unwrap()
    }

    #[test]
    fn layouts_by_an_objects_types() {
        assert_eq!(fixture("obj_usdt_older"), Layout::OLDER);
        let newer = fixture("obj_usdt");
        #[cfg(target_endian = "little")]
        assert_eq!(newer, NEWER);
        assert!(newer.index.is_some() && newer.size == 304);
    }
}
