//! Which types and members an access or a comparison looks at.
//!
//! The walks go where `spec_match`, the comparisons and `calc` go, and a little further where that is simpler: what is
//! kept without need does no harm. They do not judge. Where a type is not there yet ([`Graph::get`] gives `None`) they go
//! on elsewhere; whoever fetches types walks again when it has more.

use core::cell::Cell;

use crate::arena::ArenaFull;
use crate::btf::ext::ReloKind;
use crate::btf::strings::same_essential;
use crate::btf::{Kind, Type, TypeId, Types};
use crate::limits::{MAX_ACCESS_STEPS, MAX_CHAIN, MAX_COMPARISONS, MAX_TYPE_DEPTH};
use crate::prepare::{Needs, is_open};
use crate::relo::decision::Decision;
use crate::relo::spec::{AccessSpec, Accessor};

/// Target types, and what is noted of them.
pub(super) trait Graph<'t> {
    /// The type of this id, without a note that it is needed; `None` where it is not there.
    fn get(&mut self, id: TypeId) -> Result<Option<Type<'t>>, ArenaFull>;
    /// Notes that it is needed.
    fn keep(&mut self, ty: &Type<'t>) -> Result<(), ArenaFull>;
    /// Notes that a member or enumerator of it is needed.
    fn keep_item(&mut self, ty: &Type<'t>, index: u32) -> Result<(), ArenaFull>;
    /// Notes that all of them are.
    fn keep_all(&mut self, ty: &Type<'t>) -> Result<(), ArenaFull>;
    /// The string at this offset, or one that is no name.
    fn string(&self, offset: u32) -> &[u8];
}

/// One walk, and how many more types it may look at.
pub(super) struct Walk<'g, G> {
    graph: &'g mut G,
    left: u32,
    /// Some anonymous member's type is not there (yet), or leads too deep: whoever looks for a name ends there.
    is_broken: bool,
    /// The same for all walks together.
    all_left: &'g Cell<u32>,
}

type Noted = Result<(), ArenaFull>;
type Found<'t> = Result<Option<(Type<'t>, TypeId, usize)>, ArenaFull>;

impl<'g, 't, G: Graph<'t>> Walk<'g, G> {
    pub(super) fn new(graph: &'g mut G, all_left: &'g Cell<u32>) -> Self {
        Self { graph, left: MAX_COMPARISONS, is_broken: false, all_left }
    }

    /// Notes what deciding `run`, the relocations of one root type, looks at in a candidate. Where nothing is left of
    /// `all_left` afterwards, not all of it is noted.
    pub(super) fn decisions(
        graph: &'g mut G,
        needs: Needs<'_>,
        run: &[Decision],
        candidate: TypeId,
        all_left: &'g Cell<u32>,
    ) -> Noted {
        let Some(local) = needs.local else { return Ok(()) };
        for decision in run.iter().filter(|decision| is_open(decision)) {
            let mut walk = Walk::new(graph, all_left);
            if !walk.spend() {
                return Ok(());
            }
            let Ok(spec) = AccessSpec::parse(local, &decision.record()) else { continue };
            walk.spec(local, &spec, candidate)?;
        }
        Ok(())
    }

    /// Notes what a query that is not about a root type needs of its answer.
    pub(super) fn answer(graph: &'g mut G, id: TypeId, all_left: &'g Cell<u32>) -> Noted {
        let mut walk = Walk::new(graph, all_left);
        let Some(ty) = walk.graph.get(id)? else { return Ok(()) };
        if !ty.kind().is_composite() {
            return walk.shape(id, MAX_TYPE_DEPTH);
        }
        // What the kernel wraps around a struct_ops type: its members and theirs.
        walk.graph.keep_all(&ty)?;
        for member in ty.members() {
            if let Some(inner) = walk.chain(member.type_id)?.filter(|inner| inner.kind().is_composite()) {
                walk.graph.keep_all(&inner)?;
                for member in inner.members() {
                    walk.chain(member.type_id)?;
                }
            }
        }
        Ok(())
    }

    fn spec(&mut self, local: &Types<'_>, spec: &AccessSpec<'_>, root: TypeId) -> Noted {
        if spec.kind == ReloKind::TypeMatches {
            self.matching(local, spec.root, root, false, MAX_TYPE_DEPTH)
        } else if spec.kind.is_type() {
            self.shape(root, MAX_TYPE_DEPTH)
        } else if spec.kind.is_enumval() {
            match self.skip(root)? {
                Some(ty) => self.graph.keep_all(&ty),
                None => Ok(()),
            }
        } else {
            self.field(spec, root)
        }
    }

    fn field(&mut self, spec: &AccessSpec<'_>, root: TypeId) -> Noted {
        let mut at = root;
        let (mut holder, mut steps) = (None, 0usize);
        for (index, Accessor { name, .. }) in spec.accessors.iter().enumerate() {
            // Its size may count, and that of what an array holds.
            self.chain(at)?;
            let Some(target) = self.skip(at)? else { return Ok(()) };
            at = match name {
                Some(name) => match self.member(name, target, steps)? {
                    Some((found, type_id, steps_to)) => {
                        (holder, steps) = (Some(found), steps_to);
                        type_id
                    }
                    None => return Ok(()),
                },
                None if index == 0 => {
                    steps = 1;
                    target.id()
                }
                None => {
                    steps = steps.saturating_add(1);
                    let Some(array) = target.array() else { return Ok(()) };
                    // Whether the array is the last member decides whether it is flexible.
                    if let (0, Some(holder)) = (array.len, &holder) {
                        self.graph.keep_item(holder, holder.vlen().saturating_sub(1))?;
                    }
                    array.element
                }
            };
        }
        self.chain(at).map(|_| ())
    }

    /// Looks for a member by name as `match_member` does, after as many steps; the way to it is noted. Returns what holds
    /// it, its type, and the steps so far.
    fn member(&mut self, name: &[u8], target: Type<'t>, steps: usize) -> Found<'t> {
        if !target.kind().is_composite() {
            return Ok(None);
        }
        if steps >= MAX_ACCESS_STEPS || !self.spend() {
            self.is_broken = true;
            return Ok(None);
        }
        let steps = steps.saturating_add(1);
        for (index, member) in (0..).zip(target.members()) {
            let found = self.graph.string(member.name_off);
            if found.is_empty() {
                let found = match self.peek(member.type_id)? {
                    Some(inner) => self.member(name, inner, steps)?,
                    None => {
                        self.is_broken = true;
                        None
                    }
                };
                if found.is_some() || self.is_broken {
                    self.skip(member.type_id)?;
                    self.graph.keep_item(&target, index)?;
                }
                if found.is_some() {
                    return Ok(found);
                }
            } else if found == name {
                self.graph.keep_item(&target, index)?;
                self.chain(member.type_id)?;
                return Ok(Some((target, member.type_id, steps)));
            }
        }
        Ok(None)
    }

    /// What `id` stands for; it and the modifiers and typedefs on the way are kept.
    fn skip(&mut self, id: TypeId) -> Result<Option<Type<'t>>, ArenaFull> {
        let mut at = id;
        for _ in 0..=MAX_CHAIN {
            let Some(ty) = self.graph.get(at)? else { return Ok(None) };
            self.graph.keep(&ty)?;
            if !ty.kind().is_modifier_or_typedef() {
                return Ok(Some(ty));
            }
            at = ty.type_id();
        }
        Ok(None)
    }

    /// The same, with nothing kept.
    fn peek(&mut self, id: TypeId) -> Result<Option<Type<'t>>, ArenaFull> {
        let mut at = id;
        for _ in 0..=MAX_CHAIN {
            match self.graph.get(at)? {
                Some(ty) if ty.kind().is_modifier_or_typedef() => at = ty.type_id(),
                other => return Ok(other),
            }
        }
        Ok(None)
    }

    /// Keeps a type and what it is made of: modifiers, typedefs, elements of arrays. Returns the end.
    fn chain(&mut self, id: TypeId) -> Result<Option<Type<'t>>, ArenaFull> {
        let mut at = id;
        for _ in 0..=2 * MAX_CHAIN {
            let Some(ty) = self.graph.get(at)? else { return Ok(None) };
            self.graph.keep(&ty)?;
            at = match (ty.kind(), ty.array()) {
                (kind, _) if kind.is_modifier_or_typedef() => ty.type_id(),
                (_, Some(array)) => array.element,
                _ => return Ok(Some(ty)),
            };
        }
        Ok(None)
    }

    /// Keeps what a comparison by shape may look at.
    fn shape(&mut self, id: TypeId, level: u32) -> Noted {
        let mut at = id;
        for _ in 0..=2 * MAX_TYPE_DEPTH {
            if !self.spend() {
                return Ok(());
            }
            let Some(ty) = self.chain(at)? else { return Ok(()) };
            at = match ty.kind() {
                Kind::Ptr | Kind::Func | Kind::Var => ty.type_id(),
                Kind::FuncProto => {
                    for param in ty.params().take_while(|_| level > 0) {
                        self.shape(param.type_id, level.saturating_sub(1))?;
                    }
                    ty.type_id()
                }
                _ => return Ok(()),
            };
        }
        Ok(())
    }

    /// Keeps what the comparison in full with a local type looks at.
    fn matching(
        &mut self,
        local: &Types<'_>,
        local_id: TypeId,
        target_id: TypeId,
        mut behind_pointer: bool,
        level: u32,
    ) -> Noted {
        let (mut local_id, mut target_id) = (local_id, target_id);
        for _ in 0..MAX_TYPE_DEPTH {
            if level == 0 || !self.spend() {
                return Ok(());
            }
            let Ok(local_type) = local.skip_modifiers(local_id) else { return Ok(()) };
            let Some(target) = self.skip(target_id)? else { return Ok(()) };
            // Kept as a whole even where names or kinds part: the difference must stay.
            (local_id, target_id) = match (local_type.kind(), target.kind()) {
                (Kind::Enum | Kind::Enum64, Kind::Enum | Kind::Enum64) => return self.graph.keep_all(&target),
                (Kind::Struct | Kind::Union, Kind::Struct | Kind::Union) if !behind_pointer => {
                    return self.matching_members(local, &local_type, &target, level);
                }
                (Kind::Ptr, Kind::Ptr) => {
                    behind_pointer = true;
                    (local_type.type_id(), target.type_id())
                }
                (Kind::Array, Kind::Array) => match (local_type.array(), target.array()) {
                    (Some(local), Some(target)) => (local.element, target.element),
                    _ => return Ok(()),
                },
                (Kind::FuncProto, Kind::FuncProto) => {
                    for (one, other) in local_type.params().zip(target.params()) {
                        let level = level.saturating_sub(1);
                        self.matching(local, one.type_id, other.type_id, behind_pointer, level)?;
                    }
                    (local_type.type_id(), target.type_id())
                }
                _ => return Ok(()),
            };
        }
        Ok(())
    }

    fn matching_members(&mut self, local: &Types<'_>, local_type: &Type<'_>, target: &Type<'t>, level: u32) -> Noted {
        self.graph.keep_all(target)?;
        for local_member in local_type.members() {
            let Ok(name) = local.identifier(local_member.name_off) else { return Ok(()) };
            for member in target.members() {
                if !self.spend() {
                    return Ok(());
                }
                if same_essential(name, self.graph.string(member.name_off)) {
                    let level = level.saturating_sub(1);
                    self.matching(local, local_member.type_id, member.type_id, false, level)?;
                }
            }
        }
        Ok(())
    }

    fn spend(&mut self) -> bool {
        let (left, all_left) = (self.left.checked_sub(1), self.all_left.get().checked_sub(1));
        self.left = left.unwrap_or(0);
        self.all_left.set(all_left.unwrap_or(0));
        left.is_some() && all_left.is_some()
    }
}
