//! A record's bytes as the struct that the object declares for it.

use corelo_core::btf::{Kind, Member, Type, TypeId, Types};
use corelo_core::bytes::Endian;
use serde_json::{Map, Value};

use crate::output::text;

/// Structs, arrays and typedefs in each other that are followed.
const MAX_DEPTH: u32 = 32;
/// Elements of an array that are shown.
const MAX_ELEMENTS: u32 = 4096;

/// The struct or union called `name`.
pub(crate) fn find_struct<'l>(types: &Types<'l>, name: &str) -> Option<Type<'l>> {
    let is_it = |ty: &Type<'l>| ty.kind().is_composite() && types.name(ty).is_ok_and(|found| found == name.as_bytes());
    types.btf().iter().map_while(Result::ok).find(is_it)
}

/// `bytes` as a value of type `id`: structs as objects in the order of their members, arrays of `char` as text up to
/// their NUL, pointers as hex text, named enumerators as their names. What lies beyond the bytes is null.
pub(crate) fn decode(types: &Types<'_>, id: TypeId, bytes: &[u8]) -> Value {
    Decoder { types, bytes, endian: types.btf().endian() }.value(id, 0, 0, 0)
}

/// The same on one line of text: `field=value` for each member.
pub(crate) fn line(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, value)| match value {
                    Value::Object(_) => format!("{name}={{{}}}", line(value)),
                    _ => format!("{name}={}", line(value)),
                })
                .collect();
            fields.join(" ")
        }
        Value::Array(items) => format!("[{}]", items.iter().map(line).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

struct Decoder<'d, 't> {
    types: &'d Types<'t>,
    bytes: &'d [u8],
    endian: Endian,
}

impl Decoder<'_, '_> {
    /// The value at `bit_offset`; `bit_size` is that of a bitfield, else 0.
    fn value(&self, id: TypeId, bit_offset: u64, bit_size: u8, depth: u32) -> Value {
        let Ok(ty) = self.types.skip_modifiers(id) else { return Value::Null };
        if depth > MAX_DEPTH {
            return Value::Null;
        }
        match ty.kind() {
            Kind::Int => {
                let bits = if bit_size == 0 { ty.int_bits() } else { bit_size };
                self.integer(&ty, bit_offset + u64::from(ty.int_bit_offset()), bits, ty.is_signed_int())
            }
            Kind::Enum | Kind::Enum64 => {
                let bits = if bit_size == 0 { (ty.byte_size().min(8) * 8) as u8 } else { bit_size };
                let value = self.integer(&ty, bit_offset, bits, ty.kind_flag());
                let number = value.as_i64().map(i64::cast_unsigned).or(value.as_u64());
                let named = ty.enumerators().find(|enumerator| Some(enumerator.value) == number);
                match named.and_then(|enumerator| self.types.string(enumerator.name_off).ok()) {
                    Some(name) => text(name).into(),
                    None => value,
                }
            }
            Kind::Ptr => match self.bits(bit_offset, 64) {
                Some(address) => format!("{address:#x}").into(),
                None => Value::Null,
            },
            Kind::Array => self.array(&ty, bit_offset, depth),
            Kind::Struct | Kind::Union => {
                let mut fields = Map::new();
                self.members(&ty, bit_offset, depth, &mut fields);
                Value::Object(fields)
            }
            // Floats and what is new: the bytes.
            _ => match self.types.byte_size(id).ok().and_then(|size| self.slice(bit_offset, size)) {
                Some(bytes) => crate::output::hex(bytes).into(),
                None => Value::Null,
            },
        }
    }

    fn members(&self, ty: &Type<'_>, bit_offset: u64, depth: u32, fields: &mut Map<String, Value>) {
        for Member { name_off, type_id, bit_offset: offset, bitfield_size } in ty.members() {
            let offset = bit_offset + u64::from(offset);
            let name = self.types.string(name_off).unwrap_or_default();
            let inner = self.types.skip_modifiers(type_id).ok().filter(|inner| inner.kind().is_composite());
            match inner {
                // Members of anonymous structs and unions are members of what holds them, as in C.
                Some(inner) if name.is_empty() && depth < MAX_DEPTH => self.members(&inner, offset, depth + 1, fields),
                _ => {
                    fields.insert(text(name), self.value(type_id, offset, bitfield_size, depth + 1));
                }
            }
        }
    }

    fn array(&self, ty: &Type<'_>, bit_offset: u64, depth: u32) -> Value {
        let Some(array) = ty.array() else { return Value::Null };
        let Ok(element) = self.types.skip_modifiers(array.element) else { return Value::Null };
        let is_char = element.kind() == Kind::Int
            && element.byte_size() == 1
            && self.types.name(&element).is_ok_and(|name| name == b"char");
        if is_char {
            let Some(bytes) = self.slice(bit_offset, array.len) else { return Value::Null };
            return text(bytes.split(|&byte| byte == 0).next().unwrap_or(bytes)).into();
        }
        let Ok(size) = self.types.byte_size(array.element) else { return Value::Null };
        let items = (0..array.len.min(MAX_ELEMENTS)).map(|number| {
            self.value(array.element, bit_offset + u64::from(number) * u64::from(size) * 8, 0, depth + 1)
        });
        Value::Array(items.collect())
    }

    fn integer(&self, ty: &Type<'_>, bit_offset: u64, bits: u8, is_signed: bool) -> Value {
        // Wider than 64 bits (__int128): the bytes.
        if bits > 64 {
            let bytes = self.slice(bit_offset, ty.byte_size());
            return bytes.map_or(Value::Null, |bytes| crate::output::hex(bytes).into());
        }
        match self.bits(bit_offset, bits) {
            None => Value::Null,
            Some(value) if is_signed && bits > 0 => {
                let unused = 64 - u32::from(bits);
                ((value << unused).cast_signed() >> unused).into()
            }
            Some(value) => value.into(),
        }
    }

    fn slice(&self, bit_offset: u64, len: u32) -> Option<&[u8]> {
        let start = usize::try_from(bit_offset / 8).ok()?;
        self.bytes.get(start..start.checked_add(usize::try_from(len).ok()?)?)
    }

    /// `bits` (at most 64) from `bit_offset` on. In big endian, bits are counted from the top of each byte.
    fn bits(&self, bit_offset: u64, bits: u8) -> Option<u64> {
        let (shift, last) = (bit_offset % 8, bit_offset % 8 + u64::from(bits));
        let bytes = self.slice(bit_offset, u32::try_from(last.div_ceil(8)).ok()?)?;
        let joined = |wide: u128, byte: &u8| (wide << 8) | u128::from(*byte);
        let wide = match self.endian {
            Endian::Little => bytes.iter().rev().fold(0, joined) >> shift,
            Endian::Big => bytes.iter().fold(0, joined) >> (bytes.len() as u64 * 8 - last),
        };
        let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        Some(wide as u64 & mask)
    }
}

/// Bytes as a hex dump of one line, with their ASCII beside.
pub(crate) fn hex_and_ascii(bytes: &[u8]) -> String {
    let ascii: String = bytes
        .iter()
        .map(|&byte| if byte.is_ascii_graphic() || byte == b' ' { char::from(byte) } else { '.' })
        .collect();
    format!("{}  {ascii}", crate::output::hex(bytes))
}

#[cfg(test)]
mod tests {
    use corelo_core::arena::{Arena, Part};
    use corelo_core::btf::{Btf, Info};

    use super::*;

    /// struct event { unsigned a; int b:3; unsigned c:5; char comm[8]; enum e { NO, YES = 1 } e; struct { short d; }; void *p; short last[2]; }
    fn blob(endian: Endian) -> Vec<u8> {
        let strings = b"\0unsigned\0char\0e\0YES\0event\0a\0b\0c\0comm\0d\0p\0last\0short\0";
        let at = |name: &str| {
            let wanted = format!("\0{name}\0");
            strings.windows(wanted.len()).position(|window| window == wanted.as_bytes()).unwrap() as u32 + 1
        };
        let info = |kind, vlen, flag| Info::new(kind, vlen, flag).0;
        let words = [
            [at("unsigned"), info(Kind::Int, 0, false), 4, 32].as_slice(),
            &[at("unsigned"), info(Kind::Int, 0, false), 4, 0x0100_0020],
            &[at("char"), info(Kind::Int, 0, false), 1, 0x0100_0008],
            &[0, info(Kind::Array, 0, false), 0, 3, 1, 8],
            &[at("e"), info(Kind::Enum, 1, false), 4, at("YES"), 1],
            &[at("short"), info(Kind::Int, 0, false), 2, 0x0100_0010],
            &[0, info(Kind::Struct, 1, false), 2, at("d"), 6, 0],
            &[0, info(Kind::Ptr, 0, false), 0],
            &[0, info(Kind::Array, 0, false), 0, 6, 1, 2],
            &[at("event"), info(Kind::Struct, 8, true), 44],
            &[at("a"), 1, 0, at("b"), 2, 32 | (3 << 24), at("c"), 1, 35 | (5 << 24), at("comm"), 4, 64],
            &[at("e"), 5, 128, 0, 7, 160, at("p"), 8, 192, at("last"), 9, 256],
        ]
        .concat();
        let order = |word: u32| if endian == Endian::Little { word.to_le_bytes() } else { word.to_be_bytes() };
        let mut blob = if endian == Endian::Little { vec![0x9f, 0xeb, 1, 0] } else { vec![0xeb, 0x9f, 1, 0] };
        let len = words.len() as u32 * 4;
        for word in [24, 0, len, len, strings.len() as u32].into_iter().chain(words) {
            blob.extend(order(word));
        }
        blob.extend(strings);
        blob
    }

    fn decoded(endian: Endian, bytes: &[u8]) -> Value {
        let blob = blob(endian);
        let mut buffer = [0u8; 256];
        let mut arena = Arena::new(&mut buffer);
        let types = Types::index(Btf::parse(&blob).unwrap(), 4, None, &mut arena, Part::LocalIndex).unwrap();
        let ty = find_struct(&types, "event").unwrap();
        assert!(find_struct(&types, "e").is_none());
        decode(&types, ty.id(), bytes)
    }

    #[test]
    fn fields_of_both_byte_orders() {
        let wanted = serde_json::json!({
            "a": 7, "b": -2, "c": 17, "comm": "sh", "e": "YES", "d": -3, "p": "0x1234", "last": [5, -1]
        });
        let mut little = vec![7, 0, 0, 0, 0b1000_1110, 0, 0, 0];
        little.extend(b"sh\0zzzzz");
        little.extend([1, 0, 0, 0, 0xfd, 0xff, 0, 0, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 5, 0, 0xff, 0xff]);
        assert_eq!(decoded(Endian::Little, &little), wanted);
        let mut big = vec![0, 0, 0, 7, 0b1101_0001, 0, 0, 0];
        big.extend(b"sh\0zzzzz");
        big.extend([0, 0, 0, 1, 0xff, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0, 5, 0xff, 0xff]);
        assert_eq!(decoded(Endian::Big, &big), wanted);
    }

    #[test]
    fn what_the_record_lacks_is_null() {
        let value = decoded(Endian::Little, &[7, 0, 0, 0, 1]);
        assert_eq!(value["a"], 7);
        assert_eq!((&value["comm"], &value["p"]), (&Value::Null, &Value::Null));
        assert!(line(&value).starts_with("a=7 b=1 c=0 comm=null "), "{}", line(&value));
    }

    #[test]
    fn hex_beside_ascii() {
        assert_eq!(hex_and_ascii(b"a\0~"), "61007e  a.~");
    }
}
