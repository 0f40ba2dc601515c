//! BTF blobs of a handful of types, one for each kind that kernels learned later than the rest.
//!
//! The layouts are those of Documentation/bpf/btf.rst; all numbers are in the host's byte order.

use corelo_core::btf::{Info, Kind};

use super::Feature;

/// Bytes of the header.
const HEADER: usize = 24;
/// Room for the largest of the blobs.
pub(super) const MAX_BLOB: usize = 192;

/// Type ids count from 1; a string's offset is where it stands here. `?` starts a section name only.
const STRINGS: &[u8] = b"\0x\0.data\0?.data\0arg:ctx\0";
const NAME: u32 = 1;
const SECTION: u32 = 3;
const QMARK_SECTION: u32 = 9;
const CONTEXT_TAG: u32 = 16;

const fn info(kind: Kind, vlen: u32) -> u32 {
    Info::new(kind, vlen, false).0
}

/// `int`: signed, 32 bits.
const A_INT: [u32; 4] = [NAME, info(Kind::Int, 0), 4, 1 << 24 | 32];

/// A blob in a buffer.
pub(super) struct Blob {
    bytes: [u8; MAX_BLOB],
    len: usize,
}

impl Blob {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn words(&mut self, words: &[u32]) {
        for word in words {
            self.push(&word.to_ne_bytes());
        }
    }

    /// The types of id 1 and so on, one after the other.
    fn new(types: &[&[u32]]) -> Blob {
        let mut blob = Blob { bytes: [0; MAX_BLOB], len: 0 };
        let type_len: usize = types.iter().map(|words| 4 * words.len()).sum();
        blob.push(&0xeb9fu16.to_ne_bytes());
        // Version 1, no flags.
        blob.push(&[1, 0]);
        let type_len = type_len as u32;
        blob.words(&[HEADER as u32, 0, type_len, type_len, STRINGS.len() as u32]);
        for words in types {
            blob.words(words);
        }
        blob.push(STRINGS);
        blob
    }
}

/// The smallest blob that only kernels with the feature take; `None` for features that are not about loading BTF.
pub(super) fn blob(feature: Feature) -> Option<Blob> {
    let proto = [0, info(Kind::FuncProto, 1), 0, NAME, 1];
    // Static linkage for the function, so that the kernel must not know another.
    let func = |linkage| [NAME, info(Kind::Func, linkage), 2];
    let var = [NAME, info(Kind::Var, 0), 1, 0];
    let section = |name| [name, info(Kind::Datasec, 1), 4, 2, 0, 4];
    Some(match feature {
        Feature::Btf => Blob::new(&[&A_INT]),
        Feature::BtfFunc => Blob::new(&[&A_INT, &proto, &func(0)]),
        Feature::BtfFuncGlobal => Blob::new(&[&A_INT, &proto, &func(1)]),
        Feature::BtfDatasec => Blob::new(&[&A_INT, &var, &section(SECTION)]),
        Feature::BtfQmarkDatasec => Blob::new(&[&A_INT, &var, &section(QMARK_SECTION)]),
        Feature::BtfFloat => Blob::new(&[&[NAME, info(Kind::Float, 0), 4]]),
        // Of the whole variable: component -1.
        Feature::BtfDeclTag => Blob::new(&[&A_INT, &var, &[NAME, info(Kind::DeclTag, 0), 2, u32::MAX]]),
        Feature::BtfTypeTag => Blob::new(&[&A_INT, &[NAME, info(Kind::TypeTag, 0), 1], &[0, info(Kind::Ptr, 0), 2]]),
        // What runs it is in probes.rs: x [4] calls x [6], whose parameter is the context.
        Feature::ArgCtx => {
            let proto = [0, info(Kind::FuncProto, 1), 1, NAME, 2];
            let func = |proto| [NAME, info(Kind::Func, 1), proto];
            let tag = [CONTEXT_TAG, info(Kind::DeclTag, 0), 6, 0];
            Blob::new(&[&A_INT, &[0, info(Kind::Ptr, 0), 0], &proto, &func(3), &proto, &func(5), &tag])
        }
        Feature::BtfEnum64 => Blob::new(&[&[NAME, info(Kind::Enum64, 1), 8, NAME, 1, 1]]),
        _ => return None,
    })
}
