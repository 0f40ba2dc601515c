//! Whether a BTF is one that a compiler could have written: what holds for those only is tested on those only.

use corelo_core::btf::{Btf, Kind, Type, TypeId, Types};

/// Whether every name, reference and size of it leads somewhere, and none in a circle that has no end.
#[must_use]
pub fn is_sound(types: &Types<'_>) -> bool {
    let btf: Btf<'_> = types.btf();
    let strings = btf.strings();
    let starts = |offset: u32| {
        let at = offset as usize;
        at < strings.len() && (at == 0 || strings[at - 1] == 0)
    };
    btf.iter().all(|ty| {
        let Ok(ty) = ty else { return false };
        starts(ty.name_off())
            && ty.members().all(|member| starts(member.name_off))
            && ty.enumerators().all(|enumerator| starts(enumerator.name_off))
            && ty.params().all(|param| starts(param.name_off))
            && references(&ty).all(|id| types.get(id).is_ok() && types.skip_modifiers(id).is_ok())
            && !matches!(ty.kind(), Kind::Void | Kind::Unknown(_))
    })
}

fn references<'t>(ty: &Type<'t>) -> impl Iterator<Item = TypeId> + use<'t> {
    let is_reference = ty.kind().is_modifier_or_typedef()
        || matches!(ty.kind(), Kind::Ptr | Kind::Func | Kind::FuncProto | Kind::Var | Kind::DeclTag);
    let own = is_reference.then(|| ty.type_id());
    let array = ty.array().map(|array| [array.element, array.index]);
    own.into_iter()
        .chain(array.into_iter().flatten())
        .chain(ty.members().map(|member| member.type_id))
        .chain(ty.params().map(|param| param.type_id))
        .chain(ty.section_vars().map(|var| var.type_id))
}
