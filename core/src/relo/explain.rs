//! One relocation tried on one candidate alone: for messages that say of each candidate why it was not taken.

use super::calc::{self, End};
use super::compat::Pair;
use super::error::TargetFault;
use super::spec::AccessSpec;
use super::spec_match::spec_match;
use crate::btf::ext::{CoreRelo, ReloKind};
use crate::btf::{TypeId, Types};
use crate::bytes::Endian;

/// What a candidate gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Explanation<'l> {
    /// It matches, and this is the value.
    Value(u64),
    /// It has no such field, enumerator or element, or one of an incompatible type: the name of the step that fails, or
    /// `None` for an array element or a whole type.
    NoMatch {
        /// The local name of the step.
        step: Option<&'l [u8]>,
    },
    /// It cannot be judged, or matches but has no value.
    Fault(TargetFault),
}

/// Tries `relo` on the target type `candidate` alone; `None` where the local side is at fault or the kind of relocation
/// is not known.
#[must_use]
pub fn explain<'l>(
    local: &Types<'l>,
    target: &Types<'_>,
    relo: &CoreRelo,
    candidate: TypeId,
    endian: Endian,
) -> Option<Explanation<'l>> {
    if matches!(relo.kind, ReloKind::Unknown(_)) {
        return None;
    }
    let spec = AccessSpec::parse(local, relo).ok()?;
    let mut pair = Pair::new(local, target);
    Some(match spec_match(&mut pair, &spec, candidate) {
        Err(error) => Explanation::Fault(error.into()),
        Ok(None) => Explanation::NoMatch { step: failing_step(local, target, &spec, candidate) },
        Ok(Some(path)) => {
            let end = End { root: path.root, last: path.last, bit_offset: path.bit_offset };
            match calc::value(target, spec.kind, &end, endian) {
                Ok(value) => Explanation::Value(value.value),
                Err(error) => Explanation::Fault(error.into()),
            }
        }
    })
}

/// The name of the first step at which the candidate and the local type part: the shortest access that does not match.
fn failing_step<'l>(
    local: &Types<'l>,
    target: &Types<'_>,
    spec: &AccessSpec<'l>,
    candidate: TypeId,
) -> Option<&'l [u8]> {
    let mut shorter = spec.clone();
    shorter.accessors.clear();
    for accessor in &spec.accessors {
        shorter.accessors.push(*accessor).ok()?;
        // Existence is all that is asked of a part of the way.
        if spec.kind.is_field() {
            shorter.kind = ReloKind::FieldExists;
        }
        let matches = spec_match(&mut Pair::new(local, target), &shorter, candidate);
        if !matches!(matches, Ok(Some(_))) {
            return accessor.name;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::{Arena, Part};
    use crate::btf::Btf;
    use crate::relo::spec_match::tests::local_struct;

    #[test]
    fn a_kind_that_is_not_known_has_no_value() {
        let blob = local_struct();
        let mut buffer = [0u8; 256];
        let mut arena = Arena::new(&mut buffer);
        let types = Types::index(Btf::parse(&blob).unwrap(), 8, None, &mut arena, Part::LocalIndex).unwrap();
        let explain_kind = |kind| {
            let relo = CoreRelo { insn_off: 0, type_id: TypeId(2), access_str_off: 8, kind };
            explain(&types, &types, &relo, TypeId(2), Endian::Little)
        };
        assert_eq!(explain_kind(ReloKind::FieldByteSize), Some(Explanation::Value(4)));
        assert_eq!(explain_kind(ReloKind::Unknown(99)), None);
    }
}
