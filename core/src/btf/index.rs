//! From id to type: a sparse index over the type section.
//!
//! Types are of different lengths, so finding one by id means walking. The index holds the offset of every
//! `stride`-th type, four bytes each; from there at most `stride - 1` records are stepped over.

use super::rows::{self, Rows, Stride};
use super::{Array, Btf, BtfError, Kind, Type, TypeId};
use crate::arena::{Arena, Part};
use crate::limits::{MAX_CHAIN, MAX_NAME};
use crate::numbers::to_u32;

/// Types per entry of the index over a kernel's BTF, where the caller does not choose: 16 KB for 126,000 types.
pub const DEFAULT_STRIDE: u32 = 32;

/// Types per entry of the index over an object's own BTF.
pub const DEFAULT_LOCAL_STRIDE: u32 = 8;

/// BTF whose types can be found by id: a blob, its sparse index, and the base of a split one.
#[derive(Clone, Copy, Debug)]
pub struct Types<'a> {
    btf: Btf<'a>,
    offsets: &'a [u32],
    rows: Rows,
    stride: Stride,
    count: u32,
    pointer_size: u8,
    base: Option<&'a Types<'a>>,
}

impl<'a> Types<'a> {
    /// Walks `btf` once and keeps the offset of every `stride`-th type in `arena`.
    ///
    /// # Errors
    /// [`BtfError::TypeTruncated`] or [`BtfError::UnknownKind`] for what cannot be walked, [`BtfError::Arena`].
    pub fn index(
        btf: Btf<'a>,
        stride: u32,
        base: Option<&'a Types<'a>>,
        arena: &mut Arena<'a>,
        part: Part,
    ) -> Result<Self, BtfError> {
        let stride = rows::stride(stride);
        let mut offsets = arena.grow::<u32>(part);
        let mut offset = 0;
        let mut count = 0u32;
        while offset < btf.types.len() {
            if count.is_multiple_of(stride.get()) {
                offsets.push(to_u32(offset))?;
            }
            let id = btf.first_id.wrapping_add(count);
            let truncated = BtfError::TypeTruncated { id: TypeId(id), offset: to_u32(offset) };
            let [_, info, _] = btf.types.u32x3(offset).ok_or(truncated)?;
            let next = offset.checked_add(btf.record_len(info, offset, id)?).ok_or(truncated)?;
            if next > btf.types.len() {
                return Err(truncated);
            }
            offset = next;
            count = count.wrapping_add(1);
        }
        let offsets = offsets.finish()?;
        Ok(Self { btf, offsets, rows: Rows::PLAIN, stride, count, pointer_size: 8, base })
    }

    /// What the one pass found, put together: `offsets` lie as `rows` say.
    pub(super) fn from_parts(
        btf: Btf<'a>,
        offsets: &'a [u32],
        rows: Rows,
        (stride, count): (Stride, u32),
        pointer_size: u8,
        base: Option<&'a Types<'a>>,
    ) -> Self {
        Self { btf, offsets, rows, stride, count, pointer_size, base }
    }

    /// The same types, whose pointers take `byte_size` bytes (4 or 8).
    #[must_use]
    pub fn with_pointer_size(mut self, byte_size: u8) -> Self {
        self.pointer_size = byte_size;
        self
    }

    /// Bytes of a pointer of these types. BTF does not say it: it is the size of the long integer type, or what the
    /// caller set, or 8.
    #[must_use]
    pub fn pointer_size(&self) -> u8 {
        self.base.map_or(self.pointer_size, Types::pointer_size)
    }

    /// The blob.
    #[must_use]
    pub fn btf(&self) -> Btf<'a> {
        self.btf
    }

    /// The base of a split BTF.
    #[must_use]
    pub fn base(&self) -> Option<&'a Types<'a>> {
        self.base
    }

    /// How many types the blob itself has, `void` and the base's left out.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Bytes that the index takes.
    #[must_use]
    pub fn index_bytes(&self) -> usize {
        size_of_val(self.offsets)
    }

    /// The id after the last one: where a split BTF on top starts.
    #[must_use]
    pub fn end_id(&self) -> u32 {
        self.btf.first_id.saturating_add(self.count)
    }

    /// The string offset after the last one: where the strings of a split BTF on top start.
    #[must_use]
    pub fn end_string(&self) -> u32 {
        self.btf.first_string.saturating_add(u32::try_from(self.btf.strings.len()).unwrap_or(u32::MAX))
    }

    /// The type with this id; 0 is `void`.
    ///
    /// # Errors
    /// [`BtfError::NoSuchType`], or what makes the records before it unreadable.
    pub fn get(&self, id: TypeId) -> Result<Type<'a>, BtfError> {
        if id == TypeId::VOID {
            return Ok(Type::void());
        }
        if id.0 < self.btf.first_id {
            return self.base.ok_or(BtfError::NoSuchType { id })?.get(id);
        }
        self.btf.type_at(self.place(id)?, id.0).map(|(ty, _)| ty)
    }

    /// Where this blob's own type with this id starts in the type section, in bytes.
    pub(crate) fn place(&self, id: TypeId) -> Result<usize, BtfError> {
        let missing = BtfError::NoSuchType { id };
        let number = self.btf.number_of(id).filter(|&number| number < self.count).ok_or(missing)?;
        let (entry, steps) = self.rows.find(number, self.stride);
        let mut offset = usize::try_from(*self.offsets.get(entry).ok_or(missing)?).map_err(|_| missing)?;
        for before in (0..steps).rev() {
            let at = id.0.wrapping_sub(before).wrapping_sub(1);
            let truncated = BtfError::TypeTruncated { id: TypeId(at), offset: to_u32(offset) };
            let [_, info, _] = self.btf.types.u32x3(offset).ok_or(truncated)?;
            offset = offset.saturating_add(self.btf.record_len(info, offset, at)?);
        }
        Ok(offset)
    }

    /// The string at `offset`, without its NUL.
    ///
    /// # Errors
    /// [`BtfError::BadStringOffset`]
    pub fn string(&self, offset: u32) -> Result<&'a [u8], BtfError> {
        if offset < self.btf.first_string {
            let base = self.base.ok_or(BtfError::BadStringOffset { offset })?;
            return base.string(offset);
        }
        self.btf.own_string(offset).ok_or(BtfError::BadStringOffset { offset })
    }

    /// The name of a type; empty where it has none.
    ///
    /// # Errors
    /// [`BtfError::BadStringOffset`]
    pub fn name(&self, ty: &Type<'_>) -> Result<&'a [u8], BtfError> {
        self.string(ty.name_off())
    }

    /// The string at `offset`, which is a name of a type, member or enumerator, or another that is no longer than `most`
    /// bytes with its NUL. A longer one is not read to its end.
    ///
    /// # Errors
    /// [`BtfError::BadStringOffset`], [`BtfError::NameTooLong`]
    pub fn string_within(&self, offset: u32, most: usize) -> Result<&'a [u8], BtfError> {
        if offset < self.btf.first_string {
            let base = self.base.ok_or(BtfError::BadStringOffset { offset })?;
            return base.string_within(offset, most);
        }
        let tail = self.btf.strings_from(offset).ok_or(BtfError::BadStringOffset { offset })?;
        let head = tail.get(..most).unwrap_or(tail);
        let len = head.iter().position(|&byte| byte == 0).ok_or(BtfError::NameTooLong { offset })?;
        head.get(..len).ok_or(BtfError::BadStringOffset { offset })
    }

    /// The name of a type, member or enumerator, where it is one that the kernel takes.
    pub(crate) fn identifier(&self, offset: u32) -> Result<&'a [u8], BtfError> {
        self.string_within(offset, MAX_NAME)
    }

    /// Whether a type is called `wanted`, which costs no more for a longer name.
    ///
    /// # Errors
    /// [`BtfError::BadStringOffset`]
    pub fn is_called(&self, ty: &Type<'_>, wanted: &[u8]) -> Result<bool, BtfError> {
        match self.string_within(ty.name_off(), wanted.len().saturating_add(1)) {
            Ok(name) => Ok(name == wanted),
            Err(BtfError::NameTooLong { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the string at `offset` is `wanted`: cheaper than reading it, as most differ early.
    #[inline]
    pub(crate) fn string_is(&self, offset: u32, wanted: &[u8]) -> bool {
        if offset < self.btf.first_string {
            return self.base.is_some_and(|base| base.string_is(offset, wanted));
        }
        self.btf
            .strings_from(offset)
            .and_then(|tail| tail.strip_prefix(wanted))
            .is_some_and(|rest| rest.first() == Some(&0))
    }

    /// The type that `id` stands for when modifiers and typedefs are skipped (libbpf: `skip_mods_and_typedefs`).
    ///
    /// # Errors
    /// [`BtfError::ChainTooLong`] for a ring, or as [`Types::get`].
    pub fn skip_modifiers(&self, id: TypeId) -> Result<Type<'a>, BtfError> {
        let mut ty = self.get(id)?;
        for _ in 0..MAX_CHAIN {
            if !ty.kind().is_modifier_or_typedef() {
                return Ok(ty);
            }
            ty = self.get(ty.type_id())?;
        }
        Err(BtfError::ChainTooLong { id })
    }

    /// Bytes that a value of this type takes (libbpf: `btf__resolve_size`).
    ///
    /// # Errors
    /// [`BtfError::NoSize`] for void, functions, forward declarations and sizes of 2^32 and more,
    /// [`BtfError::ChainTooLong`] for rings.
    pub fn byte_size(&self, id: TypeId) -> Result<u32, BtfError> {
        let no_size = BtfError::NoSize { id };
        let mut elements = 1u32;
        let mut at = id;
        for _ in 0..MAX_CHAIN {
            let ty = self.get(at)?;
            let size = match ty.kind() {
                Kind::Int | Kind::Struct | Kind::Union | Kind::Enum | Kind::Enum64 | Kind::Datasec | Kind::Float => {
                    ty.byte_size()
                }
                Kind::Ptr => u32::from(self.pointer_size()),
                Kind::Typedef
                | Kind::Volatile
                | Kind::Const
                | Kind::Restrict
                | Kind::TypeTag
                | Kind::Var
                | Kind::DeclTag => {
                    at = ty.type_id();
                    continue;
                }
                Kind::Array => {
                    let Array { element, len, .. } = ty.array().ok_or(no_size)?;
                    elements = elements.checked_mul(len).ok_or(no_size)?;
                    at = element;
                    continue;
                }
                Kind::Void | Kind::Fwd | Kind::Func | Kind::FuncProto | Kind::Unknown(_) => return Err(no_size),
            };
            return elements.checked_mul(size).ok_or(no_size);
        }
        Err(BtfError::ChainTooLong { id })
    }

    /// The innermost element of nested arrays, modifiers skipped at each step; the type itself where it is none.
    pub(crate) fn innermost_element(&self, id: TypeId) -> Result<Type<'a>, BtfError> {
        let mut ty = self.skip_modifiers(id)?;
        for _ in 0..MAX_CHAIN {
            let Some(array) = ty.array() else { return Ok(ty) };
            ty = self.skip_modifiers(array.element)?;
        }
        Err(BtfError::ChainTooLong { id })
    }
}
