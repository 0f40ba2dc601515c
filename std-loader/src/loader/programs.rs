//! A loaded program, by its name.

use core::fmt::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use corelo_core::object::section_name::ProgramKind;
use corelo_core::object::{MapId, MapOrigin, ProgramId};
use corelo_core::uapi::{AttachType, ProgType};

use super::error::{Cause, Error};
use super::names::{Names, write_unknown};
use crate::attach::usdt::Usdt;
use crate::attach::{self, Link, LinkError};
use crate::events::IterReader;
use crate::load::{Attached, Collection};
use crate::objects::pin;
use crate::objects::{ProgInfo, TestRun, TestRunResult, prog_info, prog_test_run};
use crate::report::{AttachReport, Name};
use crate::sys::Errno;

/// A program of a collection, in the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Program<'c> {
    collection: &'c Collection<'c>,
    id: ProgramId,
    fd: BorrowedFd<'c>,
}

impl AsFd for Program<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd
    }
}

impl<'a> Collection<'a> {
    /// A loaded program, by the name of its function.
    ///
    /// # Errors
    /// [`Cause::Unknown`], with the names that there are; [`Cause::NotLoaded`].
    pub fn program(&self, name: &str) -> Result<Program<'_>, Error> {
        let names = Names(self.prepared());
        let declared = self.prepared().declared();
        let named = |(id, _): &(ProgramId, _)| names.program(*id) == name.as_bytes();
        let mut found = declared.programs().filter(named).peekable();
        if found.peek().is_none() {
            return Err(Error::new(Cause::Unknown, |text| write_unknown(text, "program", name, names.programs())));
        }
        found.find_map(|(id, _)| self.program_at(id)).ok_or_else(|| {
            Error::new(Cause::NotLoaded, |text| write!(text, "program {name} is not loaded: it was not wanted"))
        })
    }

    /// All loaded programs, in the object's order.
    pub fn programs(&self) -> impl Iterator<Item = Program<'_>> {
        self.prepared().declared().programs().filter_map(|(id, _)| self.program_at(id))
    }

    fn program_at(&self, id: ProgramId) -> Option<Program<'_>> {
        Some(Program { collection: self, id, fd: self.program_fd(id)? })
    }

    /// Attaches every loaded program whose section says where, and registers every struct_ops table, and keeps the links:
    /// they are detached when the collection goes, or by [`Collection::detach_all`]. Programs whose sections name no target
    /// are left (libbpf: `bpf_object__attach_skeleton`), and so is what the collection has attached before. The result is how
    /// many were attached.
    ///
    /// # Errors
    /// [`Cause::Attach`]; what was attached by this call is detached again.
    pub fn attach_all(&mut self) -> Result<usize, Error> {
        let before = self.links().len();
        match self.attach_each() {
            Ok(()) => Ok(self.links().len() - before),
            Err(error) => {
                self.detach_after(before);
                Err(error)
            }
        }
    }

    /// Attaches a loaded program as its section says, and keeps the link as [`Collection::attach_all`] does; false where it
    /// has done so before.
    ///
    /// # Errors
    /// As [`Collection::program`] and [`Program::attach`].
    pub fn attach(&mut self, program: &str) -> Result<bool, Error> {
        let program = self.program(program)?;
        let attached = Attached::Program(program.id());
        if self.is_attached(attached) {
            return Ok(false);
        }
        let link = program.attach()?;
        self.keep(attached, link)?;
        Ok(true)
    }

    fn attach_table_at(&self, id: MapId) -> Result<Option<Link>, Error> {
        let prepared = self.prepared();
        let is_table = prepared.declared().map(id).is_some_and(|map| map.origin() == MapOrigin::StructOps);
        if !is_table || self.map_fd(id).is_none() {
            return Ok(None);
        }
        self.register_table(id).map(Some).map_err(|error| {
            let name = Names(prepared).map(id);
            Error::new(Cause::Attach(error), |text| {
                let report = AttachReport { prog_type: Some(ProgType::STRUCT_OPS), error };
                write!(text, "map {}: cannot be attached: {report}", Name(name))
            })
        })
    }

    /// Registers a struct_ops table with the kernel, by the name of its variable. Dropping the link takes it back.
    ///
    /// # Errors
    /// As [`Collection::raw_map`]; [`Cause::Attach`]; [`Cause::NoTarget`] for a map that is no struct_ops table.
    pub fn attach_table(&self, name: &str) -> Result<Link, Error> {
        let id = self.raw_map(name)?.id();
        self.attach_table_at(id)?
            .ok_or_else(|| Error::new(Cause::NoTarget, |text| write!(text, "map {name}: it is no struct_ops table")))
    }

    fn attach_each(&mut self) -> Result<(), Error> {
        let prepared = *self.prepared();
        for (id, _) in prepared.declared().programs() {
            let attached = Attached::Program(id);
            let Some(program) = self.program_at(id).filter(|_| !self.is_attached(attached)) else { continue };
            if let Some(link) = program.attach_where_it_says()? {
                self.keep(attached, link)?;
            }
        }
        for (id, _) in prepared.declared().maps_by_id() {
            let attached = Attached::Table(id);
            if !self.is_attached(attached)
                && let Some(link) = self.attach_table_at(id)?
            {
                self.keep(attached, link)?;
            }
        }
        Ok(())
    }

    fn keep(&mut self, attached: Attached, link: Link) -> Result<(), Error> {
        self.keep_link(attached, link).map_err(|errno| {
            let names = Names(self.prepared());
            let name = match attached {
                Attached::Program(id) => names.program(id),
                Attached::Table(id) => names.map(id),
            };
            Error::new(Cause::Kernels(errno), |text| write!(text, "{}: no memory for its link: {errno}", Name(name)))
        })
    }
}

impl<'c> Program<'c> {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'c [u8] {
        Names(self.collection.prepared()).program(self.id)
    }

    /// The section that it is in.
    #[must_use]
    pub fn section(&self) -> &'c [u8] {
        let prepared = self.collection.prepared();
        prepared.declared().function(self.id).map_or(&[][..], |function| prepared.section_name(function))
    }

    /// Its descriptor, for as long as the collection is there.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'c> {
        self.fd
    }

    /// Which of the object's functions it is.
    #[must_use]
    pub fn id(&self) -> ProgramId {
        self.id
    }

    /// Where it runs, as its section says.
    #[must_use]
    pub fn kind(&self) -> Option<ProgramKind<'c>> {
        self.collection.program_kind(self.id)
    }

    /// What the kernel says of it.
    ///
    /// # Errors
    /// [`Cause::Kernels`]
    pub fn info(&self) -> Result<ProgInfo, Error> {
        prog_info(self.fd).map_err(|errno| self.refused("the kernel does not describe it", errno))
    }

    /// Whether its section says what to attach it to.
    #[must_use]
    pub fn names_target(&self) -> bool {
        self.kind().is_some_and(|kind| attach::names_target(&kind))
    }

    /// Attaches it as its section says. Dropping the link detaches.
    ///
    /// # Errors
    /// [`Cause::NoTarget`] where the section names no target; [`Cause::Attach`]
    pub fn attach(&self) -> Result<Link, Error> {
        self.attach_where_it_says()?.ok_or_else(|| {
            self.error(Cause::NoTarget, |text| {
                text.write_str("its section names nothing to attach it to: say where, as with `attach_xdp`")
            })
        })
    }

    pub(super) fn attach_where_it_says(&self) -> Result<Option<Link>, Error> {
        self.collection.attach_program(self.id).map_err(|error| self.not_attached(error))
    }

    /// Attaches it in any way that [`attach`](crate::attach) has:
    /// `program.attach_with(|program| attach::netfilter::attach(program, ..))`.
    ///
    /// # Errors
    /// [`Cause::Attach`]
    pub fn attach_with(&self, make: impl FnOnce(BorrowedFd<'c>) -> Result<Link, LinkError>) -> Result<Link, Error> {
        make(self.fd).map_err(|error| self.not_attached(error))
    }

    /// Attaches an XDP program to a network interface, in the driver where that can, else in the network stack (Linux 5.9,
    /// CAP_NET_ADMIN). [`attach::xdp`] has the other modes.
    ///
    /// # Errors
    /// [`Cause::Attach`]
    pub fn attach_xdp(&self, ifindex: u32) -> Result<Link, Error> {
        self.attach_with(|program| attach::xdp::attach(program, ifindex, attach::xdp::Mode::Any))
    }

    /// Attaches a traffic control program to a network interface behind those that are there (tcx: Linux 6.6,
    /// CAP_NET_ADMIN), in the direction that its section says (`tcx/ingress`, `tcx/egress`), which must say one.
    ///
    /// # Errors
    /// [`Cause::NoTarget`], [`Cause::Attach`]
    pub fn attach_tcx(&self, ifindex: u32) -> Result<Link, Error> {
        let said = self.kind().map_or(AttachType::NONE, |kind| kind.expected_attach_type);
        if !matches!(said, AttachType::TCX_INGRESS | AttachType::TCX_EGRESS) {
            return Err(self.error(Cause::NoTarget, |text| {
                text.write_str("its section says no direction: SEC(\"tcx/ingress\") or SEC(\"tcx/egress\")")
            }));
        }
        self.attach_with(|program| attach::tcx::attach(program, ifindex, said.0, attach::tcx::Order::Append))
    }

    /// Attaches a cgroup program to the cgroup in this directory of a cgroup2 mount, behind those that are there (Linux
    /// 4.15, CAP_NET_ADMIN). It is attached as its section says.
    ///
    /// # Errors
    /// [`Cause::Attach`]
    pub fn attach_cgroup(&self, directory: &Path) -> Result<Link, Error> {
        let attach_type = self.kind().map_or(0, |kind| kind.expected_attach_type.0);
        self.attach_with(|program| attach::cgroup::attach(program, directory, attach_type, attach::tcx::Order::Append))
    }

    /// Attaches a uprobe program to a function of a program or library, for all processes: to its entry, or to its return
    /// where the section says so (`uretprobe`). `file` is a path, or a name that is looked for: `libc.so.6`.
    /// [`attach::uprobe`] has offsets, single processes, and many functions at once.
    ///
    /// # Errors
    /// [`Cause::Attach`]
    pub fn attach_uprobe(&self, file: &Path, function: &str) -> Result<Link, Error> {
        let returns = is_on_return(self.section());
        self.attach_with(|program| attach::uprobe::attach_function(program, file, function, 0, returns))
    }

    /// Attaches a USDT program to a static probe: one whose section names none, or to one process only.
    ///
    /// # Errors
    /// [`Cause::Attach`]
    pub fn attach_usdt(&self, probe: &Usdt<'_>) -> Result<Link, Error> {
        self.collection.attach_usdt(self.id, probe).map_err(|error| self.not_attached(error))
    }

    /// Walks over what an iterator (`SEC("iter/task")`, Linux 5.8) is called for, once: the result is a
    /// [`Read`](std::io::Read) of what it writes. [`Program::iter_map`] is for the elements of a map; for tasks by their pid and
    /// for trees of cgroups see [`attach::iter::attach_with`].
    ///
    /// # Errors
    /// [`Cause::NoTarget`] where it is no iterator; [`Cause::Attach`]
    pub fn iter(&self) -> Result<IterReader, Error> {
        self.walk(attach::iter::attach)
    }

    /// As [`Program::iter`], over the elements of a map (`SEC("iter/bpf_map_elem")`, Linux 5.9).
    ///
    /// # Errors
    /// The same.
    pub fn iter_map(&self, map: impl AsFd) -> Result<IterReader, Error> {
        self.walk(|program| attach::iter::attach_map(program, map.as_fd()))
    }

    /// The walk goes on without the link.
    fn walk(&self, make: impl FnOnce(BorrowedFd<'c>) -> Result<Link, LinkError>) -> Result<IterReader, Error> {
        // Another program may be attached by the same call, and would run until it is known that it is none.
        if self.kind().is_none_or(|kind| kind.expected_attach_type != AttachType::TRACE_ITER) {
            return Err(self.error(Cause::NoTarget, |text| {
                text.write_str("its section makes it no iterator: SEC(\"iter/task\") and the like do")
            }));
        }
        IterReader::new(&self.attach_with(make)?).map_err(|error| self.not_attached(error))
    }

    /// Runs it once in the kernel without attaching it (`BPF_PROG_TEST_RUN`).
    ///
    /// # Errors
    /// [`Cause::Kernels`]: ENOTSUPP for types that cannot be run so.
    pub fn test_run(&self, run: &mut TestRun<'_>) -> Result<TestRunResult, Error> {
        prog_test_run(self.fd, run).map_err(|errno| self.refused("it cannot be run", errno))
    }

    /// Gives it a name on a BPF file system.
    ///
    /// # Errors
    /// [`Cause::Pin`]
    pub fn pin(&self, path: &Path) -> Result<(), Error> {
        pin::pin(self.fd, path).map_err(|error| {
            self.error(Cause::Pin(error), |text| write!(text, "{}: {error}", Name(path.as_os_str().as_encoded_bytes())))
        })
    }

    fn not_attached(&self, error: LinkError) -> Error {
        let prog_type = self.kind().map(|kind| kind.prog_type);
        self.error(Cause::Attach(error), |text| {
            write!(text, "cannot be attached: {}", AttachReport { prog_type, error })
        })
    }

    fn refused(&self, what: &str, errno: Errno) -> Error {
        self.error(Cause::Kernels(errno), |text| write!(text, "{what}: {errno}"))
    }

    fn error(&self, cause: Cause, write: impl FnOnce(&mut super::text::Text) -> core::fmt::Result) -> Error {
        Error::new(cause, |text| {
            write!(text, "program {} (section {}): ", Name(self.name()), Name(self.section()))?;
            write(text)
        })
    }
}

/// Whether a section of uprobes that names no function is for returns.
fn is_on_return(section: &[u8]) -> bool {
    section.strip_prefix(b"?").unwrap_or(section).starts_with(b"uretprobe")
}

#[cfg(test)]
mod tests {
    use super::is_on_return;
    use crate::loader::{Cause, Loader};
    use crate::prepare::Kernel;
    use crate::sys::Errno;
    use crate::sys::bpf::cmd;
    use crate::sys::fake::{install, some_fd};
    use corelo_tests::endian::Endian;
    use corelo_tests::fixtures::fixture;

    #[test]
    fn who_may_not_attach_is_told_what_it_takes() {
        let object = fixture("obj_arg_ctx", Endian::native()).read();
        let (kernel, mut buffer) = (Kernel::running(), vec![0; 64 << 10]);
        let _guard = install(|command, _| match command {
            cmd::MAP_CREATE | cmd::PROG_LOAD | cmd::BTF_LOAD => Some(Ok(some_fd())),
            cmd::RAW_TRACEPOINT_OPEN => Some(Err(Errno::EPERM)),
            _ => Some(Err(Errno::EINVAL)),
        });
        let collection = Loader::new(&object).load(&kernel, &mut buffer).unwrap();
        let error = collection.program("on_raw").unwrap().attach().unwrap_err();
        assert!(matches!(error.cause(), Cause::Attach(_)) && error.errno() == Some(Errno::EPERM), "{error}");
        let text = error.to_string();
        let name = "program on_raw (section raw_tp/sched_process_exec): cannot be attached: ";
        assert!(text.starts_with(name), "{text}");
        // Of a user without, with, and on a kernel that is locked down.
        let reasons = ["CAP_BPF and CAP_PERFMON", "a security module", "locked"];
        assert!(reasons.iter().any(|reason| text.contains(reason)), "{text}");
    }

    #[test]
    fn sections_say_entry_or_return() {
        for (section, returns) in
            [("uprobe", false), ("?uprobe.s", false), ("uretprobe", true), ("?uretprobe.s", true), ("kprobe", false)]
        {
            assert_eq!(is_on_return(section.as_bytes()), returns, "{section}");
        }
    }
}
