//! What is to be said where a kernel's BTF is needed and is not there.

use core::fmt;

use corelo_core::btf::strings::Name;
use corelo_core::btf::{TypeId, Types};
use corelo_core::object::Object;
use corelo_core::prepare::{Plan, Question};
use corelo_core::relo::format::{LocalSpec, TypeName};

/// The kernel's BTF is needed and there is none: which relocation or target needs it, on which kernel, and the ways out.
#[derive(Clone, Copy, Debug)]
pub struct NoKernelBtf<'r, 'a, E> {
    /// The object.
    pub object: &'r Object<'a>,
    /// What it declares.
    pub plan: &'r Plan<'a>,
    /// Why there is no BTF.
    pub reason: E,
}

impl<E: fmt::Display> fmt::Display for NoKernelBtf<'_, '_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, plan, reason } = self;
        match plan.first_question() {
            Some(Question::Root(root)) => match plan.local() {
                Some(local) => write_first_record(f, object, local, root)?,
                None => f.write_str("a CO-RE relocation")?,
            },
            Some(Question::Attach(id)) => {
                let name =
                    plan.declared().function(id).map_or(&[][..], |function| object.symbol_name(function.symbol()));
                write!(f, "the attach target of program {}", Name(name))?;
            }
            Some(Question::Extern(id)) => {
                let name = plan.declared().external(id).map_or(&[][..], |ext| object.symbol_name(ext.symbol()));
                write!(f, "extern {}", Name(name))?;
            }
            Some(Question::StructOps(id)) => {
                let name = plan.declared().map(id).map_or(&[][..], |map| map.name(object, plan.local()));
                write!(f, "the struct_ops type of map {}", Name(name))?;
            }
            None => f.write_str("the object")?,
        }
        let uname = rustix::system::uname();
        write!(
            f,
            " needs the BTF of kernel {}, but {reason}: give it with --btf FILE, use a kernel built with \
             CONFIG_DEBUG_INFO_BTF, or make a small one of the same kernel with `corelo min-btf`",
            Name(uname.release().to_bytes())
        )
    }
}

fn write_first_record(f: &mut fmt::Formatter<'_>, object: &Object<'_>, local: &Types<'_>, root: TypeId) -> fmt::Result {
    for section in object.ext().core_relos.sections() {
        let records = (0..section.count).filter_map(|id| section.core_relo(id));
        let Some(relo) = records.into_iter().find(|relo| relo.type_id == root) else { continue };
        let name = local.string(section.name_off).unwrap_or(b"?");
        let (kind, spec, slot) = (relo.kind, LocalSpec::new(local, &relo), relo.insn_off / 8);
        return write!(f, "{kind} relocation of {spec} (section {}, instruction {slot})", Name(name));
    }
    write!(f, "a CO-RE relocation of {}", TypeName::new(local, root))
}
