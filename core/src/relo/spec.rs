//! The access string, read against the local type (libbpf: `bpf_core_parse_spec`).

use heapless::Vec;

use super::error::SpecError;
use crate::btf::ext::{CoreRelo, ReloKind};
use crate::btf::{Kind, Type, TypeId, Types};
use crate::limits::{MAX_ACCESS_STEPS, MAX_ACCESS_STRING};
use crate::numbers::to_u32;

/// One step of an access that a name or an index stands for.
#[derive(Clone, Copy, Debug)]
pub struct Accessor<'btf> {
    /// For a member or enumerator, the type that has it; for an array element, the element's type.
    pub type_id: TypeId,
    /// The number of the member, element or enumerator.
    pub index: u32,
    /// The name of the member or enumerator; `None` for an array element and for the first step of a field access.
    pub name: Option<&'btf [u8]>,
}

/// An access, resolved against the local type.
#[derive(Clone, Debug)]
pub struct AccessSpec<'btf> {
    /// The root type, as the record names it.
    pub root: TypeId,
    /// What is asked for.
    pub kind: ReloKind,
    /// The steps; those through anonymous members are left out. Empty for a relocation about a whole type.
    pub accessors: Vec<Accessor<'btf>, MAX_ACCESS_STEPS>,
    /// The offset from the start of the root type, in bits.
    pub bit_offset: u32,
}

impl<'btf> AccessSpec<'btf> {
    /// Reads the access string of `relo`.
    ///
    /// # Errors
    /// [`SpecError`] for a malformed string, or one that does not fit the type.
    pub fn parse(local: &Types<'btf>, relo: &CoreRelo) -> Result<Self, SpecError> {
        let access = local.string_within(relo.access_str_off, MAX_ACCESS_STRING)?;
        let mut spec = Self { root: relo.type_id, kind: relo.kind, accessors: Vec::new(), bit_offset: 0 };
        if relo.kind.is_type() {
            local.get(relo.type_id)?;
            return if access == b"0" { Ok(spec) } else { Err(SpecError::NotWholeType) };
        }
        let mut steps = Steps::new(access);
        let root_index = steps.next().ok_or(SpecError::BadAccessString { at: 0 })??;
        let root = local.skip_modifiers(relo.type_id)?;
        if relo.kind.is_enumval() {
            spec.push_enumerator(local, root, root_index)?;
            return match steps.next() {
                None => Ok(spec),
                Some(Err(error)) => Err(error),
                Some(Ok(_)) => Err(SpecError::NotEnumerator { id: root.id(), kind: root.kind() }),
            };
        }
        spec.push_element(local, root.id(), root_index)?;
        let mut at = root;
        for step in steps {
            at = spec.step(local, at, step?)?;
        }
        Ok(spec)
    }

    fn push_enumerator(&mut self, local: &Types<'btf>, ty: Type<'btf>, index: u32) -> Result<(), SpecError> {
        if !ty.kind().is_enum() {
            return Err(SpecError::NotEnumerator { id: ty.id(), kind: ty.kind() });
        }
        let enumerator = ty.enumerator(index).ok_or(SpecError::OutOfRange { id: ty.id(), index })?;
        let name = local.identifier(enumerator.name_off)?;
        self.push(Accessor { type_id: ty.id(), index, name: Some(name) })
    }

    fn step(&mut self, local: &Types<'btf>, at: Type<'btf>, index: u32) -> Result<Type<'btf>, SpecError> {
        let out_of_range = SpecError::OutOfRange { id: at.id(), index };
        match at.kind() {
            Kind::Struct | Kind::Union => {
                let member = at.member(index).ok_or(out_of_range)?;
                self.bit_offset = self.bit_offset.checked_add(member.bit_offset).ok_or(SpecError::OffsetOverflow)?;
                if member.name_off != 0 {
                    let name = local.identifier(member.name_off)?;
                    self.push(Accessor { type_id: at.id(), index, name: Some(name) })?;
                }
                Ok(local.skip_modifiers(member.type_id)?)
            }
            Kind::Array => {
                let array = at.array().ok_or(out_of_range)?;
                let element = local.skip_modifiers(array.element)?;
                if index >= array.len && !(array.len == 0 && is_flexible(local, self.accessors.last())?) {
                    return Err(out_of_range);
                }
                self.push_element(local, element.id(), index)?;
                Ok(element)
            }
            kind => Err(SpecError::NotAggregate { id: at.id(), kind }),
        }
    }

    fn push_element(&mut self, local: &Types<'btf>, element: TypeId, index: u32) -> Result<(), SpecError> {
        let bits = element_bits(local.byte_size(element)?, index).ok_or(SpecError::OffsetOverflow)?;
        self.bit_offset = self.bit_offset.checked_add(bits).ok_or(SpecError::OffsetOverflow)?;
        self.push(Accessor { type_id: element, index, name: None })
    }

    fn push(&mut self, accessor: Accessor<'btf>) -> Result<(), SpecError> {
        self.accessors.push(accessor).map_err(|_| SpecError::TooManySteps)
    }
}

/// The offset of element `index`, in bits.
pub(super) fn element_bits(byte_size: u32, index: u32) -> Option<u32> {
    index.checked_mul(byte_size)?.checked_mul(8)
}

/// Whether an array of no elements that `holder` leads to is flexible: the last member of its struct (libbpf:
/// `is_flex_arr`).
pub(super) fn is_flexible(types: &Types<'_>, holder: Option<&Accessor<'_>>) -> Result<bool, crate::btf::BtfError> {
    let Some(Accessor { type_id, index, name: Some(_) }) = holder else { return Ok(false) };
    Ok(types.get(*type_id)?.vlen().checked_sub(1) == Some(*index))
}

/// The numbers of an access string.
struct Steps<'s> {
    access: &'s [u8],
    at: usize,
    count: usize,
}

impl<'s> Steps<'s> {
    fn new(access: &'s [u8]) -> Self {
        Self { access, at: 0, count: 0 }
    }

    fn parse(&mut self) -> Result<u32, SpecError> {
        let malformed = |at: usize| SpecError::BadAccessString { at: to_u32(at) };
        if self.count > 0 {
            // The colon: `next` saw that something follows the last number.
            if self.access.get(self.at) != Some(&b':') {
                return Err(malformed(self.at));
            }
            self.at = self.at.wrapping_add(1);
        }
        if self.count == MAX_ACCESS_STEPS {
            return Err(SpecError::TooManySteps);
        }
        self.count = self.count.wrapping_add(1);
        let start = self.at;
        let mut value = 0u32;
        while let Some(digit) = self.access.get(self.at).filter(|byte| byte.is_ascii_digit()) {
            value = value
                .checked_mul(10)
                .and_then(|value| value.checked_add(u32::from(digit.wrapping_sub(b'0'))))
                .filter(|&value| value <= i32::MAX.cast_unsigned())
                .ok_or(malformed(self.at))?;
            self.at = self.at.wrapping_add(1);
        }
        if self.at == start { Err(malformed(start)) } else { Ok(value) }
    }
}

impl Iterator for Steps<'_> {
    type Item = Result<u32, SpecError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.access.len() && self.count > 0 {
            return None;
        }
        let step = self.parse();
        if step.is_err() {
            self.at = self.access.len();
            self.count = self.count.max(1);
        }
        Some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;
    use std::vec::Vec;

    fn steps(access: &str) -> Result<Vec<u32>, SpecError> {
        Steps::new(access.as_bytes()).collect()
    }

    #[test]
    fn numbers_are_read_in_order() {
        assert_eq!(steps("0"), Ok([0].to_vec()));
        assert_eq!(steps("0:1:2147483647"), Ok([0, 1, 2_147_483_647].to_vec()));
    }

    #[test]
    fn malformed_strings_are_refused_where_they_go_wrong() {
        for (access, at) in [
            ("", 0),
            ("-1", 0),
            ("0:-1", 2),
            ("0:4294967296", 11),
            ("0:2147483648", 11),
            ("0::1", 2),
            ("0:1:", 4),
            (":0", 0),
            ("0 ", 1),
            ("0x1", 1),
        ] {
            assert_eq!(steps(access), Err(SpecError::BadAccessString { at }), "{access:?}");
        }
    }

    #[test]
    fn sixty_four_steps_are_the_most() {
        let longest: String = std::iter::repeat_n("0", 64).collect::<Vec<_>>().join(":");
        assert_eq!(steps(&longest).map(|steps| steps.len()), Ok(64));
        assert_eq!(steps(&std::format!("{longest}:0")), Err(SpecError::TooManySteps));
    }
}
