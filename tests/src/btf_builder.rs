//! Raw BTF written by hand, so that a test knows every byte of a target (`include/uapi/linux/btf.h`,
//! `Documentation/bpf/btf.rst`).
//!
//! Types get their ids in the order of the calls, the first one 1 (or the one after the base's last, for split BTF). Nothing is
//! checked that a hostile test might want wrong: an id may point anywhere, [`BtfBuilder::next_id`] makes a type that names itself,
//! and [`BtfBuilder::raw`] writes any kind at all. The bytes of [`BtfBuilder::build`] are the caller's to spoil further.

use std::collections::HashMap;

use crate::endian::Endian;

/// BTF kind numbers, as in the uapi header.
pub mod kind {
    /// `BTF_KIND_INT`
    pub const INT: u8 = 1;
    /// `BTF_KIND_PTR`
    pub const PTR: u8 = 2;
    /// `BTF_KIND_ARRAY`
    pub const ARRAY: u8 = 3;
    /// `BTF_KIND_STRUCT`
    pub const STRUCT: u8 = 4;
    /// `BTF_KIND_UNION`
    pub const UNION: u8 = 5;
    /// `BTF_KIND_ENUM`
    pub const ENUM: u8 = 6;
    /// `BTF_KIND_FWD`
    pub const FWD: u8 = 7;
    /// `BTF_KIND_TYPEDEF`
    pub const TYPEDEF: u8 = 8;
    /// `BTF_KIND_VOLATILE`
    pub const VOLATILE: u8 = 9;
    /// `BTF_KIND_CONST`
    pub const CONST: u8 = 10;
    /// `BTF_KIND_RESTRICT`
    pub const RESTRICT: u8 = 11;
    /// `BTF_KIND_FUNC`
    pub const FUNC: u8 = 12;
    /// `BTF_KIND_FUNC_PROTO`
    pub const FUNC_PROTO: u8 = 13;
    /// `BTF_KIND_VAR`
    pub const VAR: u8 = 14;
    /// `BTF_KIND_DATASEC`
    pub const DATASEC: u8 = 15;
    /// `BTF_KIND_FLOAT`
    pub const FLOAT: u8 = 16;
    /// `BTF_KIND_DECL_TAG`
    pub const DECL_TAG: u8 = 17;
    /// `BTF_KIND_TYPE_TAG`
    pub const TYPE_TAG: u8 = 18;
    /// `BTF_KIND_ENUM64`
    pub const ENUM64: u8 = 19;
}

/// How an integer is to be shown and extended (`BTF_INT_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntEncoding {
    /// No flag: unsigned.
    Unsigned,
    /// `BTF_INT_SIGNED`
    Signed,
    /// `BTF_INT_CHAR`
    Char,
    /// `BTF_INT_BOOL`
    Bool,
}

impl IntEncoding {
    fn bits(self) -> u32 {
        match self {
            IntEncoding::Unsigned => 0,
            IntEncoding::Signed => 1,
            IntEncoding::Char => 2,
            IntEncoding::Bool => 4,
        }
    }
}

/// One member of a struct or union.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member<'a> {
    /// Name, empty for an anonymous member.
    pub name: &'a str,
    /// Type of the member.
    pub type_id: u32,
    /// Offset from the start of the struct, in bits.
    pub bit_offset: u32,
    /// Width in bits of a bitfield, 0 for any other member. Any non-zero width sets the struct's kind_flag.
    pub bitfield_size: u8,
}

impl<'a> Member<'a> {
    /// A plain member at a byte offset.
    #[must_use]
    pub fn at(name: &'a str, type_id: u32, byte_offset: u32) -> Self {
        Member { name, type_id, bit_offset: byte_offset * 8, bitfield_size: 0 }
    }

    /// A bitfield at a bit offset.
    #[must_use]
    pub fn bits(name: &'a str, type_id: u32, bit_offset: u32, bitfield_size: u8) -> Self {
        Member { name, type_id, bit_offset, bitfield_size }
    }
}

/// One kind's row of the layout section: `{info_sz u8, elem_sz u8, flags u16}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KindLayout {
    /// Bytes after the 12-byte type, once.
    pub info_size: u8,
    /// Bytes after those, `vlen` times.
    pub elem_size: u8,
    /// Flags of the kind.
    pub flags: u16,
}

impl KindLayout {
    /// A row without flags.
    #[must_use]
    pub fn new(info_size: u8, elem_size: u8) -> Self {
        KindLayout { info_size, elem_size, flags: 0 }
    }

    /// The rows of kinds 0 to 19; the sizes are those of the uapi structs that follow `struct btf_type`.
    #[must_use]
    pub fn known() -> Vec<KindLayout> {
        const SIZES: [(u8, u8); 20] = [
            (0, 0),  // void
            (4, 0),  // INT: u32
            (0, 0),  // PTR
            (12, 0), // ARRAY: struct btf_array
            (0, 12), // STRUCT: struct btf_member
            (0, 12), // UNION
            (0, 8),  // ENUM: struct btf_enum
            (0, 0),  // FWD
            (0, 0),  // TYPEDEF
            (0, 0),  // VOLATILE
            (0, 0),  // CONST
            (0, 0),  // RESTRICT
            (0, 0),  // FUNC
            (0, 8),  // FUNC_PROTO: struct btf_param
            (4, 0),  // VAR: struct btf_var
            (0, 12), // DATASEC: struct btf_var_secinfo
            (0, 0),  // FLOAT
            (4, 0),  // DECL_TAG: struct btf_decl_tag
            (0, 0),  // TYPE_TAG
            (0, 12), // ENUM64: struct btf_enum64
        ];
        SIZES.iter().map(|&(info, elem)| KindLayout::new(info, elem)).collect()
    }
}

/// Writes BTF. See the module's documentation.
#[derive(Debug, Clone)]
pub struct BtfBuilder {
    endian: Endian,
    types: Vec<u8>,
    /// Offset in `types` of each type, for [`BtfBuilder::set_size_or_type`].
    starts: Vec<usize>,
    strings: Vec<u8>,
    known_strings: HashMap<String, u32>,
    base_types: u32,
    base_str_len: u32,
    wide: bool,
    layout: Option<Vec<KindLayout>>,
    tail: Option<Vec<u8>>,
}

impl BtfBuilder {
    /// An empty BTF of its own.
    #[must_use]
    pub fn new(endian: Endian) -> Self {
        BtfBuilder {
            endian,
            types: Vec::new(),
            starts: Vec::new(),
            strings: vec![0],
            known_strings: HashMap::new(),
            base_types: 0,
            base_str_len: 0,
            wide: false,
            layout: None,
            tail: None,
        }
    }

    /// An empty BTF that goes on after a base: `base_types` is how many types the base has, void not counted (the first new id is
    /// one more), `base_str_len` how many bytes its string section has.
    #[must_use]
    pub fn split(endian: Endian, base_types: u32, base_str_len: u32) -> Self {
        BtfBuilder { strings: Vec::new(), base_types, base_str_len, ..BtfBuilder::new(endian) }
    }

    /// An empty BTF split on this one.
    #[must_use]
    pub fn split_on(&self) -> Self {
        BtfBuilder::split(self.endian, self.next_id() - 1, self.base_str_len + self.strings.len() as u32)
    }

    /// The byte order.
    #[must_use]
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// Allows the newer info word: vlen in bits 0 to 23 and kind in bits 24 to 30, instead of 16 and 5 bits.
    pub fn wide_info(&mut self) -> &mut Self {
        self.wide = true;
        self
    }

    /// Adds a layout section (a 32-byte header) with these rows, the first one for kind 0.
    pub fn layout(&mut self, rows: Vec<KindLayout>) -> &mut Self {
        self.layout = Some(rows);
        self
    }

    /// Adds these bytes to the end of the header, after `layout_off` and `layout_len` (zero unless [`BtfBuilder::layout`] sets
    /// them): eight bytes make a header of 40.
    pub fn header_tail(&mut self, tail: &[u8]) -> &mut Self {
        self.tail = Some(tail.to_vec());
        self
    }

    /// The id that the next type will have.
    #[must_use]
    pub fn next_id(&self) -> u32 {
        self.base_types + self.starts.len() as u32 + 1
    }

    /// The offset of a string, which is added unless it is there; the empty string is 0.
    pub fn str_off(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(&off) = self.known_strings.get(text) {
            return off;
        }
        let off = self.base_str_len + self.strings.len() as u32;
        self.strings.extend_from_slice(text.as_bytes());
        self.strings.push(0);
        self.known_strings.insert(text.to_owned(), off);
        off
    }

    /// Any kind at all: name, vlen, kind_flag, the word that is a size or a type, and the words that follow.
    ///
    /// # Panics
    /// If kind or vlen do not fit the info word in use.
    pub fn raw(&mut self, kind: u8, name: &str, vlen: u32, kind_flag: bool, size_or_type: u32, words: &[u32]) -> u32 {
        let (max_vlen, max_kind) = if self.wide { (0x00ff_ffff, 0x7f) } else { (0xffff, 0x1f) };
        assert!(vlen <= max_vlen && kind <= max_kind, "kind {kind} with vlen {vlen} needs wide_info()");
        let id = self.next_id();
        let name_off = self.str_off(name);
        self.starts.push(self.types.len());
        let info = vlen | u32::from(kind) << 24 | u32::from(kind_flag) << 31;
        for word in [name_off, info, size_or_type].iter().chain(words) {
            self.types.extend_from_slice(&self.endian.u32(*word));
        }
        id
    }

    /// Rewrites the size or type word of a type made earlier, to close a ring.
    ///
    /// # Panics
    /// If this builder made no such type.
    pub fn set_size_or_type(&mut self, id: u32, value: u32) {
        let start = self.starts[(id - self.base_types - 1) as usize];
        self.types[start + 8..start + 12].copy_from_slice(&self.endian.u32(value));
    }

    /// INT of `byte_size` bytes, all its bits used.
    pub fn int(&mut self, name: &str, byte_size: u32, encoding: IntEncoding) -> u32 {
        self.int_bits(name, byte_size, encoding, 0, byte_size as u8 * 8)
    }

    /// INT with the old way of saying bitfield: a bit offset and a number of bits.
    pub fn int_bits(&mut self, name: &str, byte_size: u32, encoding: IntEncoding, bit_offset: u8, bits: u8) -> u32 {
        let word = encoding.bits() << 24 | u32::from(bit_offset) << 16 | u32::from(bits);
        self.raw(kind::INT, name, 0, false, byte_size, &[word])
    }

    /// PTR to a type (0: void).
    pub fn ptr(&mut self, type_id: u32) -> u32 {
        self.raw(kind::PTR, "", 0, false, type_id, &[])
    }

    /// ARRAY of `elements` elements.
    pub fn array(&mut self, elem_type: u32, index_type: u32, elements: u32) -> u32 {
        self.raw(kind::ARRAY, "", 0, false, 0, &[elem_type, index_type, elements])
    }

    /// STRUCT; kind_flag is set if any member is a bitfield.
    pub fn struct_(&mut self, name: &str, byte_size: u32, members: &[Member<'_>]) -> u32 {
        self.composite(kind::STRUCT, name, byte_size, members)
    }

    /// UNION; kind_flag is set if any member is a bitfield.
    pub fn union_(&mut self, name: &str, byte_size: u32, members: &[Member<'_>]) -> u32 {
        self.composite(kind::UNION, name, byte_size, members)
    }

    fn composite(&mut self, kind: u8, name: &str, byte_size: u32, members: &[Member<'_>]) -> u32 {
        let kind_flag = members.iter().any(|m| m.bitfield_size != 0);
        let mut words = Vec::with_capacity(members.len() * 3);
        for member in members {
            let offset = if kind_flag {
                u32::from(member.bitfield_size) << 24 | member.bit_offset & 0x00ff_ffff
            } else {
                member.bit_offset
            };
            words.extend([self.str_off(member.name), member.type_id, offset]);
        }
        self.raw(kind, name, members.len() as u32, kind_flag, byte_size, &words)
    }

    /// ENUM with 32-bit values; `signed` sets kind_flag.
    pub fn enum_(&mut self, name: &str, byte_size: u32, signed: bool, values: &[(&str, i32)]) -> u32 {
        let mut words = Vec::with_capacity(values.len() * 2);
        for &(value_name, value) in values {
            words.extend([self.str_off(value_name), value as u32]);
        }
        self.raw(kind::ENUM, name, values.len() as u32, signed, byte_size, &words)
    }

    /// ENUM64 of 8 bytes; `signed` sets kind_flag.
    pub fn enum64(&mut self, name: &str, signed: bool, values: &[(&str, u64)]) -> u32 {
        let mut words = Vec::with_capacity(values.len() * 3);
        for &(value_name, value) in values {
            words.extend([self.str_off(value_name), value as u32, (value >> 32) as u32]);
        }
        self.raw(kind::ENUM64, name, values.len() as u32, signed, 8, &words)
    }

    /// FWD of a struct, or of a union (kind_flag).
    pub fn fwd(&mut self, name: &str, is_union: bool) -> u32 {
        self.raw(kind::FWD, name, 0, is_union, 0, &[])
    }

    /// TYPEDEF
    pub fn typedef(&mut self, name: &str, type_id: u32) -> u32 {
        self.raw(kind::TYPEDEF, name, 0, false, type_id, &[])
    }

    /// VOLATILE
    pub fn volatile(&mut self, type_id: u32) -> u32 {
        self.raw(kind::VOLATILE, "", 0, false, type_id, &[])
    }

    /// CONST
    pub fn const_(&mut self, type_id: u32) -> u32 {
        self.raw(kind::CONST, "", 0, false, type_id, &[])
    }

    /// RESTRICT
    pub fn restrict(&mut self, type_id: u32) -> u32 {
        self.raw(kind::RESTRICT, "", 0, false, type_id, &[])
    }

    /// FUNC; linkage is 0 static, 1 global, 2 extern and stands where vlen does.
    pub fn func(&mut self, name: &str, proto: u32, linkage: u32) -> u32 {
        self.raw(kind::FUNC, name, linkage, false, proto, &[])
    }

    /// FUNC_PROTO with named parameters.
    pub fn func_proto(&mut self, return_type: u32, params: &[(&str, u32)]) -> u32 {
        let mut words = Vec::with_capacity(params.len() * 2);
        for &(name, type_id) in params {
            words.extend([self.str_off(name), type_id]);
        }
        self.raw(kind::FUNC_PROTO, "", params.len() as u32, false, return_type, &words)
    }

    /// VAR; linkage is 0 static, 1 global, 2 extern.
    pub fn var(&mut self, name: &str, type_id: u32, linkage: u32) -> u32 {
        self.raw(kind::VAR, name, 0, false, type_id, &[linkage])
    }

    /// DATASEC with (variable, offset, size) entries.
    pub fn datasec(&mut self, name: &str, byte_size: u32, vars: &[(u32, u32, u32)]) -> u32 {
        let words: Vec<u32> = vars.iter().flat_map(|&(var, offset, size)| [var, offset, size]).collect();
        self.raw(kind::DATASEC, name, vars.len() as u32, false, byte_size, &words)
    }

    /// FLOAT
    pub fn float(&mut self, name: &str, byte_size: u32) -> u32 {
        self.raw(kind::FLOAT, name, 0, false, byte_size, &[])
    }

    /// DECL_TAG; `component_idx` is -1 for the whole of the type, `attribute` sets kind_flag.
    pub fn decl_tag(&mut self, value: &str, type_id: u32, component_idx: i32, attribute: bool) -> u32 {
        self.raw(kind::DECL_TAG, value, 0, attribute, type_id, &[component_idx as u32])
    }

    /// TYPE_TAG; `attribute` sets kind_flag.
    pub fn type_tag(&mut self, value: &str, type_id: u32, attribute: bool) -> u32 {
        self.raw(kind::TYPE_TAG, value, 0, attribute, type_id, &[])
    }

    /// The string section's length in bytes.
    #[must_use]
    pub fn str_len(&self) -> u32 {
        self.strings.len() as u32
    }

    /// The bytes: header, types, layout section if any, strings.
    #[must_use]
    pub fn build(&self) -> Vec<u8> {
        let e = self.endian;
        let tail = self.tail.as_deref().unwrap_or_default();
        let extended = self.layout.is_some() || self.tail.is_some();
        let header_len = if extended { 32 + tail.len() } else { 24 } as u32;
        let rows = self.layout.as_deref().unwrap_or_default();
        let type_len = self.types.len() as u32;
        let layout_len = rows.len() as u32 * 4;
        let layout_off = if layout_len == 0 { 0 } else { type_len };

        let mut out = Vec::new();
        out.extend_from_slice(&e.u16(0xeb9f));
        out.extend_from_slice(&[1, 0]);
        for word in [header_len, 0, type_len, type_len + layout_len, self.str_len()] {
            out.extend_from_slice(&e.u32(word));
        }
        if extended {
            out.extend_from_slice(&e.u32(layout_off));
            out.extend_from_slice(&e.u32(layout_len));
            out.extend_from_slice(tail);
        }
        out.extend_from_slice(&self.types);
        for row in rows {
            out.extend_from_slice(&[row.info_size, row.elem_size]);
            out.extend_from_slice(&e.u16(row.flags));
        }
        out.extend_from_slice(&self.strings);
        out
    }
}
