//! From ids to names: what went wrong, in one line that a person can act on.
//!
//! The core's errors are small values that name sections, symbols and types by number. Here they meet the object they
//! came from. Nothing is decided here and nothing allocated: each report is a [`Display`](core::fmt::Display) value.
//!
//! - `object`: what is wrong with an object ([`ObjectReport`])
//! - `no_btf`: what needs a kernel's BTF that is not there ([`NoKernelBtf`])
//! - `relocation`: where a CO-RE relocation is, and why it failed ([`RelocationReport`])
//! - `candidates`: its candidates, and what each of them gives ([`candidates`])
//! - `link`: why a program cannot be linked ([`LinkReport`])
//! - `load`: why an object is not loaded ([`LoadReport`])
//! - `attach`: why a program is not attached ([`AttachReport`])
//! - `privileges`: who refuses something with EPERM
//! - `log`: what a verifier log says ([`verdict_line`], [`PoisonReport`])
//! - `names`: names out of an object

mod attach;
mod candidates;
mod link;
mod load;
mod log;
mod names;
mod no_btf;
mod object;
mod privileges;
mod relocation;

pub use attach::AttachReport;
pub use candidates::{CandidateReport, btf_name, candidates};
pub use corelo_core::btf::strings::Name;
pub use link::LinkReport;
pub use load::LoadReport;
pub use log::{PoisonReport, verdict_line};
pub use no_btf::NoKernelBtf;
pub use object::ObjectReport;
pub use relocation::{RelocationPlace, RelocationReport};
