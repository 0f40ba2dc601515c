//! Types by number.

use crate::btf_builder::{BtfBuilder, kind};

/// The number of a type; 0 is void.
pub type Id = usize;

/// A member of a struct or union.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Name; empty for an anonymous member.
    pub name: String,
    /// Its type.
    pub ty: Id,
    /// Offset in bits.
    pub bit_offset: u32,
    /// Width in bits of a bitfield, else 0.
    pub bits: u8,
}

/// A type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ty {
    /// Void.
    Void,
    /// INT: `encoding` and `bit_offset` as in BTF.
    Int {
        /// Name.
        name: String,
        /// Bytes.
        size: u32,
        /// 1 signed, 2 char, 4 bool.
        encoding: u8,
        /// Of an old bitfield-style integer.
        bit_offset: u8,
    },
    /// FLOAT
    Float {
        /// Name.
        name: String,
        /// Bytes.
        size: u32,
    },
    /// PTR
    Ptr(Id),
    /// ARRAY
    Array {
        /// Element type.
        elem: Id,
        /// Number of elements.
        len: u32,
    },
    /// STRUCT or UNION
    Composite {
        /// UNION
        is_union: bool,
        /// Name; empty for none.
        name: String,
        /// Bytes.
        size: u32,
        /// kind_flag; set by bitfields anyway.
        kind_flag: bool,
        /// Members.
        fields: Vec<Field>,
    },
    /// ENUM or ENUM64
    Enum {
        /// ENUM64
        is_wide: bool,
        /// Name; empty for none.
        name: String,
        /// Bytes.
        size: u32,
        /// kind_flag
        is_signed: bool,
        /// Enumerators; the values are kept in the range of the kind, and of an unsigned ENUM below 2^31.
        values: Vec<(String, u64)>,
    },
    /// FWD
    Fwd {
        /// Name.
        name: String,
        /// kind_flag
        is_union: bool,
    },
    /// TYPEDEF, CONST, VOLATILE, RESTRICT or TYPE_TAG
    Alias {
        /// BTF kind.
        kind: u8,
        /// Name of a typedef or tag.
        name: String,
        /// What it stands for.
        to: Id,
    },
    /// VAR, DECL_TAG or FUNC, which no compiler makes a relocation about.
    Decl {
        /// BTF kind.
        kind: u8,
        /// Name.
        name: String,
        /// The type of the variable, what the tag is on, the function's prototype.
        to: Id,
    },
    /// FUNC_PROTO
    Proto {
        /// Result.
        result: Id,
        /// Parameters.
        params: Vec<Id>,
    },
}

/// What a type refers to without a pointer in between is never the type itself, however far one goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    types: Vec<Ty>,
    /// Bytes of a pointer.
    pub pointer_size: u32,
}

impl Default for Graph {
    fn default() -> Self {
        Graph { types: vec![Ty::Void], pointer_size: 8 }
    }
}

impl Graph {
    /// How many types there are, void counted.
    #[must_use]
    pub fn count(&self) -> usize {
        self.types.len()
    }

    /// A type.
    #[must_use]
    pub fn get(&self, id: Id) -> &Ty {
        &self.types[id]
    }

    /// A type, to be changed.
    pub fn get_mut(&mut self, id: Id) -> &mut Ty {
        &mut self.types[id]
    }

    /// Adds a type.
    pub fn add(&mut self, ty: Ty) -> Id {
        self.types.push(ty);
        self.types.len() - 1
    }

    /// The name; empty for none.
    #[must_use]
    pub fn name(&self, id: Id) -> &str {
        match self.get(id) {
            Ty::Int { name, .. }
            | Ty::Float { name, .. }
            | Ty::Composite { name, .. }
            | Ty::Enum { name, .. }
            | Ty::Fwd { name, .. }
            | Ty::Alias { name, .. }
            | Ty::Decl { name, .. } => name,
            Ty::Void | Ty::Ptr(_) | Ty::Array { .. } | Ty::Proto { .. } => "",
        }
    }

    /// Gives a type that can have one another name.
    pub fn rename(&mut self, id: Id, to: &str) {
        match self.get_mut(id) {
            Ty::Int { name, .. }
            | Ty::Float { name, .. }
            | Ty::Composite { name, .. }
            | Ty::Enum { name, .. }
            | Ty::Fwd { name, .. }
            | Ty::Decl { name, .. } => to.clone_into(name),
            Ty::Alias { name, .. } if !name.is_empty() => to.clone_into(name),
            _ => {}
        }
    }

    /// The type behind typedefs and modifiers.
    #[must_use]
    pub fn skip(&self, mut id: Id) -> Id {
        while let Ty::Alias { to, .. } = *self.get(id) {
            id = to;
        }
        id
    }

    /// Bytes of a type that has a size.
    #[must_use]
    pub fn size(&self, id: Id) -> Option<u32> {
        match *self.get(id) {
            Ty::Int { size, .. } | Ty::Float { size, .. } | Ty::Composite { size, .. } | Ty::Enum { size, .. } => {
                Some(size)
            }
            Ty::Ptr(_) => Some(self.pointer_size),
            Ty::Array { elem, len } => self.size(elem)?.checked_mul(len),
            Ty::Alias { to, .. } => self.size(to),
            Ty::Decl { kind, to, .. } if kind != kind::FUNC => self.size(to),
            Ty::Decl { .. } | Ty::Void | Ty::Fwd { .. } | Ty::Proto { .. } => None,
        }
    }

    /// The BTF kind.
    #[must_use]
    pub fn kind(&self, id: Id) -> u8 {
        match *self.get(id) {
            Ty::Void => 0,
            Ty::Int { .. } => kind::INT,
            Ty::Float { .. } => kind::FLOAT,
            Ty::Ptr(_) => kind::PTR,
            Ty::Array { .. } => kind::ARRAY,
            Ty::Composite { is_union, .. } => {
                if is_union {
                    kind::UNION
                } else {
                    kind::STRUCT
                }
            }
            Ty::Enum { is_wide, .. } => {
                if is_wide {
                    kind::ENUM64
                } else {
                    kind::ENUM
                }
            }
            Ty::Fwd { .. } => kind::FWD,
            Ty::Alias { kind, .. } | Ty::Decl { kind, .. } => kind,
            Ty::Proto { .. } => kind::FUNC_PROTO,
        }
    }

    /// Whether `id` is `part` or holds it other than by a pointer.
    #[must_use]
    pub fn holds(&self, id: Id, part: Id) -> bool {
        let is_pointer = matches!(self.get(id), Ty::Ptr(_));
        id == part || !is_pointer && self.parts(id).into_iter().any(|id| self.holds(id, part))
    }

    /// The most typedefs, modifiers and arrays that follow each other in what `id` leads to, through pointers too.
    #[must_use]
    pub fn longest_chain(&self, id: Id) -> usize {
        let length = |mut id: Id| {
            let mut length = 0;
            while let Ty::Alias { to, .. } | Ty::Array { elem: to, .. } | Ty::Decl { to, .. } = *self.get(id) {
                (id, length) = (to, length + 1);
            }
            length
        };
        self.reached(id).into_iter().map(length).max().unwrap_or(0)
    }

    /// Whether `id` leads to a variable, function or tag, through pointers too.
    #[must_use]
    pub fn has_decl(&self, id: Id) -> bool {
        self.reached(id).into_iter().any(|id| matches!(self.get(id), Ty::Decl { .. }))
    }

    /// All types that `id` leads to, itself among them.
    fn reached(&self, id: Id) -> Vec<Id> {
        let mut seen = vec![false; self.count()];
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            if !std::mem::replace(&mut seen[id], true) {
                open.extend(self.parts(id));
            }
        }
        (0..self.count()).filter(|&id| seen[id]).collect()
    }

    /// The types that a type names.
    fn parts(&self, id: Id) -> Vec<Id> {
        match self.get(id) {
            Ty::Ptr(to) | Ty::Array { elem: to, .. } | Ty::Alias { to, .. } | Ty::Decl { to, .. } => vec![*to],
            Ty::Composite { fields, .. } => fields.iter().map(|field| field.ty).collect(),
            Ty::Proto { result, params } => params.iter().chain([result]).copied().collect(),
            Ty::Void | Ty::Int { .. } | Ty::Float { .. } | Ty::Enum { .. } | Ty::Fwd { .. } => Vec::new(),
        }
    }

    /// Brings enumerators into the range of their kind. The reference sign-extends unsigned 32-bit values of 2^31 and more,
    /// which is known and avoided.
    pub fn tame_enums(&mut self) {
        for ty in &mut self.types {
            if let Ty::Enum { is_wide: false, is_signed, values, .. } = ty {
                for (_, value) in values {
                    *value = if *is_signed { *value as i32 as i64 as u64 } else { *value & 0x7fff_ffff };
                }
            }
        }
    }

    /// Writes all types, in the order given by `order`, which has the id of each but void once. Returns the id in the BTF of each.
    pub fn write(&self, btf: &mut BtfBuilder, order: &[Id]) -> Vec<u32> {
        let mut ids = vec![0u32; self.count()];
        for (id, &ty) in (btf.next_id()..).zip(order) {
            ids[ty] = id;
        }
        for &id in order {
            self.write_one(btf, self.get(id), &ids);
        }
        ids
    }

    fn write_one(&self, btf: &mut BtfBuilder, ty: &Ty, ids: &[u32]) {
        match ty {
            Ty::Void => {}
            Ty::Int { name, size, encoding, bit_offset } => {
                let bits = (size * 8).min(255) - u32::from(*bit_offset);
                let word = u32::from(*encoding) << 24 | u32::from(*bit_offset) << 16 | bits;
                btf.raw(kind::INT, name, 0, false, *size, &[word]);
            }
            Ty::Float { name, size } => _ = btf.float(name, *size),
            Ty::Ptr(to) => _ = btf.ptr(ids[*to]),
            // The index type does not matter; the first type is an int.
            Ty::Array { elem, len } => _ = btf.array(ids[*elem], ids[1], *len),
            Ty::Composite { is_union, name, size, kind_flag, fields } => {
                let kind_flag = *kind_flag || fields.iter().any(|field| field.bits != 0);
                let mut words = Vec::new();
                for field in fields {
                    let offset = if kind_flag { u32::from(field.bits) << 24 } else { 0 } | field.bit_offset;
                    words.extend([btf.str_off(&field.name), ids[field.ty], offset]);
                }
                let kind = if *is_union { kind::UNION } else { kind::STRUCT };
                btf.raw(kind, name, fields.len() as u32, kind_flag, *size, &words);
            }
            Ty::Enum { is_wide: true, name, size, is_signed, values } => {
                let mut words = Vec::new();
                for (value_name, value) in values {
                    words.extend([btf.str_off(value_name), *value as u32, (*value >> 32) as u32]);
                }
                btf.raw(kind::ENUM64, name, values.len() as u32, *is_signed, *size, &words);
            }
            Ty::Enum { is_wide: false, name, size, is_signed, values } => {
                let values: Vec<(&str, i32)> =
                    values.iter().map(|(name, value)| (name.as_str(), *value as i32)).collect();
                btf.enum_(name, *size, *is_signed, &values);
            }
            Ty::Fwd { name, is_union } => _ = btf.fwd(name, *is_union),
            Ty::Alias { kind, name, to } => _ = btf.raw(*kind, name, 0, false, ids[*to], &[]),
            Ty::Decl { kind: kind::FUNC, name, to } => _ = btf.func(name, ids[*to], 1),
            Ty::Decl { kind, name, to } => _ = btf.raw(*kind, name, 0, false, ids[*to], &[0]),
            Ty::Proto { result, params } => {
                let params: Vec<(&str, u32)> = params.iter().map(|&param| ("", ids[param])).collect();
                btf.func_proto(ids[*result], &params);
            }
        }
    }
}

/// A name without its flavour: up to the last `___` between two characters that are no underscores.
#[must_use]
pub fn essential(name: &str) -> &str {
    let bytes = name.as_bytes();
    let is_separator = |at: usize| bytes[at] != b'_' && &bytes[at + 1..at + 4] == b"___" && bytes[at + 4] != b'_';
    match (0..bytes.len().saturating_sub(4)).rev().find(|&at| is_separator(at)) {
        Some(at) => &name[..=at],
        None => name,
    }
}
