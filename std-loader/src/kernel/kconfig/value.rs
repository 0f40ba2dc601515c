//! A configuration's value as the bytes of a C type.

use core::fmt;

/// The C types of externs that values go into; their sizes are those of the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KconfigType {
    /// `bool`.
    Bool,
    /// `enum libbpf_tristate`: `TRI_NO` 0, `TRI_YES` 1, `TRI_MODULE` 2.
    Tristate,
    /// `char`, of either signedness: a number, or the letter `y`, `m` or `n`.
    Char {
        /// Negative numbers fit.
        is_signed: bool,
    },
    /// An integer of 2, 4 or 8 bytes.
    Integer {
        /// Negative numbers fit.
        is_signed: bool,
    },
    /// `char[N]`: a string, cut at N - 1 bytes, and a NUL.
    CharArray,
}

/// Why a value is not that of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValueError {
    /// The extern's type is none of [`KconfigType`].
    UnknownType,
    /// The value is `m` (a module), which a bool cannot say: take `enum libbpf_tristate`.
    ModuleIntoBool,
    /// The value is `y`, `m` or `n` and the type is an integer or a string.
    TristateIntoOther,
    /// The value is a string and the type is no char array.
    StringIntoOther,
    /// The value is a number and the type is no integer.
    NumberIntoOther,
    /// The number is out of the type's range.
    OutOfRange,
    /// The value is neither of the three letters, nor a number, nor a string between quotes.
    Malformed,
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ValueError::UnknownType => "its type is none that configuration values go into",
            ValueError::ModuleIntoBool => {
                "the value is m (a module), which a bool cannot say; enum libbpf_tristate can"
            }
            ValueError::TristateIntoOther => {
                "the value is y, m or n, and the type is no bool, char or enum libbpf_tristate"
            }
            ValueError::StringIntoOther => "the value is a string, and the type is no char array",
            ValueError::NumberIntoOther => "the value is a number, and the type is no integer",
            ValueError::OutOfRange => "the value is out of the type's range",
            ValueError::Malformed => "the value is no letter, number or string",
        })
    }
}

impl core::error::Error for ValueError {}

/// Writes a value of the configuration's text (as [`each`](super::each) gives it) into a variable of the type.
///
/// # Errors
/// [`ValueError`]; the variable is as it was then.
pub fn write(ty: Option<KconfigType>, text: &[u8], out: &mut [u8]) -> Result<(), ValueError> {
    let ty = ty.ok_or(ValueError::UnknownType)?;
    match *text {
        [letter @ (b'y' | b'm' | b'n')] => write_letter(ty, letter, out),
        [b'"', ref inside @ .., b'"'] => write_string(ty, inside, out),
        [] | [b'"' | b'y' | b'm' | b'n', ..] => Err(ValueError::Malformed),
        _ => write_number(Some(ty), number(text)?, out),
    }
}

fn write_letter(ty: KconfigType, letter: u8, out: &mut [u8]) -> Result<(), ValueError> {
    let value = match (ty, letter) {
        (KconfigType::Bool, b'm') => return Err(ValueError::ModuleIntoBool),
        (KconfigType::Bool | KconfigType::Tristate, b'n') => 0,
        (KconfigType::Bool | KconfigType::Tristate, b'y') => 1,
        (KconfigType::Tristate, _) => 2,
        (KconfigType::Char { .. }, letter) => u64::from(letter),
        _ => return Err(ValueError::TristateIntoOther),
    };
    store(value, out)
}

fn write_string(ty: KconfigType, text: &[u8], out: &mut [u8]) -> Result<(), ValueError> {
    if ty != KconfigType::CharArray {
        return Err(ValueError::StringIntoOther);
    }
    let room = out.len().checked_sub(1).ok_or(ValueError::UnknownType)?;
    let len = text.len().min(room);
    out[..len].copy_from_slice(&text[..len]);
    out[len..].fill(0);
    Ok(())
}

/// Writes a number, which is what the made-up externs have; negative ones are in two's complement.
pub(super) fn write_number(ty: Option<KconfigType>, value: u64, out: &mut [u8]) -> Result<(), ValueError> {
    let is_signed = match ty.ok_or(ValueError::UnknownType)? {
        KconfigType::Bool if value > 1 => return Err(ValueError::OutOfRange),
        KconfigType::Bool => false,
        KconfigType::Char { is_signed } | KconfigType::Integer { is_signed } => is_signed,
        KconfigType::Tristate | KconfigType::CharArray => return Err(ValueError::NumberIntoOther),
    };
    let bits = 8 * out.len() as u32;
    let fits = match bits {
        // As libbpf: any 64 bits fit in 64 bits.
        64 => true,
        8 | 16 | 32 if is_signed => value.wrapping_add(1 << (bits - 1)) < 1 << bits,
        8 | 16 | 32 => value >> bits == 0,
        _ => return Err(ValueError::UnknownType),
    };
    if !fits {
        return Err(ValueError::OutOfRange);
    }
    store(value, out)
}

/// The low bytes of a value, in the host's order.
fn store(value: u64, out: &mut [u8]) -> Result<(), ValueError> {
    let bytes = value.to_ne_bytes();
    let low = match out.len() {
        0 | 9.. => return Err(ValueError::UnknownType),
        len if cfg!(target_endian = "big") => &bytes[8 - len..],
        len => &bytes[..len],
    };
    out.copy_from_slice(low);
    Ok(())
}

/// A number as C writes them: decimal, hexadecimal after `0x`, octal after `0`, perhaps with a sign.
fn number(text: &[u8]) -> Result<u64, ValueError> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let (radix, digits) = match digits {
        [b'0', b'x' | b'X', rest @ ..] => (16, rest),
        [b'0', rest @ ..] if !rest.is_empty() => (8, rest),
        _ => (10, digits),
    };
    // from_str_radix would take a second sign.
    if !digits.first().is_some_and(u8::is_ascii_hexdigit) {
        return Err(ValueError::Malformed);
    }
    let digits = core::str::from_utf8(digits).map_err(|_| ValueError::Malformed)?;
    match u64::from_str_radix(digits, radix) {
        Ok(value) if negative && value > 1 << 63 => Err(ValueError::OutOfRange),
        Ok(value) if negative => Ok(value.wrapping_neg()),
        Ok(value) => Ok(value),
        Err(error) if *error.kind() == core::num::IntErrorKind::PosOverflow => Err(ValueError::OutOfRange),
        Err(_) => Err(ValueError::Malformed),
    }
}
