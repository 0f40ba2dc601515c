//! A whole case: an object file with one program for each relocation, and a target BTF.

use std::collections::HashMap;

use super::graph::{Graph, Id, essential};
use super::relo::{self, Relo};
use super::tape::Tape;
use super::{local, target};
use crate::btf_builder::{BtfBuilder, kind};
use crate::endian::Endian;
use crate::insn::Insn;
use crate::object_builder::ObjectBuilder;

/// How often a local type may be asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Of one that has more than one candidate only one relocation is made (maybe more than once), as libbpf's answer to a
    /// second one would depend on the first.
    Once,
    /// As it comes, but no type that leads to a variable, function or tag: minimal BTFs keep them for externs only.
    Freely,
}

/// An object, a target, and what they were made of.
#[derive(Debug, Clone)]
pub struct Case {
    /// Byte order of both.
    pub endian: Endian,
    /// Types of the object.
    pub local: Graph,
    /// Types of the target.
    pub target: Graph,
    /// Of each target type the id in [`Case::btf`].
    pub target_ids: Vec<u32>,
    /// One for each program; program `number` is named `p<number>` and has the instruction in slot 0.
    pub relos: Vec<Relo>,
    /// The object file.
    pub object: Vec<u8>,
    /// The target BTF.
    pub btf: Vec<u8>,
}

impl Case {
    /// Decodes a case from three runs of numbers: for the local types, for the byte order and the changes, for the
    /// relocations.
    #[must_use]
    pub fn decode(types: &[u16], changes: &[u16], relos: &[u16], asked_about: Asked) -> Case {
        let local = local::random(&mut Tape::new(types));
        let mut tape = Tape::new(changes);
        let endian = if tape.once_in(4) { Endian::Big } else { Endian::Little };
        let (target, order) = target::derive(&mut tape, &local);
        let mut tape = Tape::new(relos);
        let mut relos: Vec<Relo> = Vec::new();
        let mut asked: HashMap<Id, (String, u32)> = HashMap::new();
        for _ in 0..1 + tape.below(16) {
            let relo = relo::random(&mut tape, &local, endian);
            let key = (relo.access.clone(), relo.kind);
            let candidates = candidates(&local, relo.root, &target);
            let may_be_asked = match asked_about {
                Asked::Freely => !local.has_decl(relo.root) && !candidates.iter().any(|&id| target.has_decl(id)),
                Asked::Once => candidates.len() < 2 || *asked.entry(relo.root).or_insert_with(|| key.clone()) == key,
            };
            if may_be_asked {
                relos.push(relo);
            }
        }

        let mut btf = BtfBuilder::new(endian);
        let target_ids = target.write(&mut btf, &order);
        let mut object = ObjectBuilder::new(endian);
        let local_order: Vec<Id> = (1..local.count()).collect();
        let local_ids = local.write(&mut object.btf, &local_order);
        for (number, relo) in relos.iter().enumerate() {
            let name = format!("p{number}");
            let mut insns = relo.insns.clone();
            insns.extend([Insn::mov64_imm(0, 0), Insn::exit()]);
            object.program("socket", &name, &insns);
            object.core_relo(&name, 0, local_ids[relo.root], &relo.access, relo.kind);
        }
        Case { endian, target_ids, relos, object: object.build(), btf: btf.build(), local, target }
    }

    /// The most typedefs, modifiers and arrays in a row that a relocation may come to, on either side.
    #[must_use]
    pub fn longest_chain(&self, relo: &Relo) -> usize {
        let candidates = candidates(&self.local, relo.root, &self.target);
        let target = candidates.into_iter().map(|id| self.target.longest_chain(id)).max().unwrap_or(0);
        target.max(self.local.longest_chain(relo.root))
    }

    /// The case as text: the relocations, then a line for each type.
    #[must_use]
    pub fn text(&self) -> String {
        let mut lines = vec![format!("{:?}", self.endian)];
        for (number, relo) in self.relos.iter().enumerate() {
            lines.push(format!("p{number}: {} {relo:?}", relo::kinds::NAMES[relo.kind as usize]));
        }
        for (name, graph) in [("local", &self.local), ("target", &self.target)] {
            for id in 1..graph.count() {
                let at = if name == "target" { self.target_ids[id] } else { id as u32 };
                // Integers that are as ever say nothing.
                if id >= 12 || self.local.get(id) != self.target.get(id) {
                    lines.push(format!("{name} {id} [{at}] {:?}", graph.get(id)));
                }
            }
        }
        lines.join("\n")
    }
}

/// The candidates for a local type: target types of its name, and of a kind that goes with its kind.
fn candidates(local: &Graph, root: Id, target: &Graph) -> Vec<Id> {
    let general = |kind: u8| if kind == kind::ENUM64 { kind::ENUM } else { kind };
    let (name, wanted) = (essential(local.name(root)), general(local.kind(root)));
    let is_candidate = |&id: &Id| general(target.kind(id)) == wanted && essential(target.name(id)) == name;
    (1..target.count()).filter(is_candidate).collect()
}
