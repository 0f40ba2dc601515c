//! libbpf itself, as an oracle: what it finds in an object, the instructions it ends with, and its log.
//!
//! [`run`] opens an object and, if asked, prepares or loads it, and copies everything out before it closes it again.
//!
//! | stage | needs |
//! |---|---|
//! | [`Stage::Open`] | nothing |
//! | [`Stage::Prepare`] | root: libbpf first loads a trivial program to see whether bpf(2) works, and in the end creates the maps and loads the object's BTF |
//! | [`Stage::Load`] | root and a kernel that takes the programs |
//!
//! Preparing resolves externs, applies CO-RE relocations, links subprograms and puts map descriptors into instructions, in that
//! order, and creates the maps after that. A failure at the maps therefore leaves the instructions final, and one earlier leaves
//! them as far as libbpf came; [`Outcome::failed`] says what happened. libbpf stops at the first failure and skips programs that
//! are not to be loaded: theirs are the compiled instructions. Descriptors in the immediates of map loads are this process's
//! ([`crate::insn::without_references`] takes them out). No map is pinned, whatever the object asks for.
//!
//! The bindings that come with libbpf-sys are those of x86-64, and so is this module.
#![expect(unsafe_code, reason = "libbpf is a C library: every call is foreign, and this crate ships to nobody")]

mod log;

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Once;

use libbpf_sys as sys;

pub use log::{LogCandidate, LogStatus, ReloLog, parse_core_log};

/// How far to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stage {
    /// `bpf_object__open_file`
    Open,
    /// `bpf_object__prepare`
    #[default]
    Prepare,
    /// `bpf_object__load`
    Load,
}

/// Which programs are to be loaded; the others are neither relocated nor linked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Autoload {
    /// As the object says.
    #[default]
    AsDeclared,
    /// All of them.
    All,
    /// The named ones only.
    Only(Vec<String>),
    /// As the object says, the named ones left out.
    Without(Vec<String>),
}

/// What [`run`] is to do.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// BTF file to relocate against instead of the running kernel's (`btf_custom_path`).
    pub custom_btf: Option<PathBuf>,
    /// How far to go.
    pub stage: Stage,
    /// Which programs.
    pub autoload: Autoload,
    /// Sets `max_entries` to 1 for maps that have 0.
    pub size_maps: bool,
    /// Reads each loaded program back from the kernel (bpftool does it); only with [`Stage::Load`].
    pub xlated: bool,
    /// Text of a kernel configuration for `.kconfig` externs, added to the running kernel's.
    pub kconfig: Option<String>,
}

/// A program as libbpf has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Name.
    pub name: String,
    /// Section, without a leading `?`.
    pub section: String,
    /// `enum bpf_prog_type`
    pub prog_type: u32,
    /// `enum bpf_attach_type`
    pub expected_attach_type: u32,
    /// To be loaded.
    pub autoload: bool,
    /// The instructions, 8 bytes each in the MACHINE's byte order (libbpf swaps when it opens).
    pub insns: Vec<u8>,
    /// What the verifier made of them, if [`Options::xlated`] asked for it and the program is loaded.
    pub xlated: Option<Vec<u8>>,
    /// `struct bpf_func_info`: slot, type; none before the program is relocated.
    pub func_info: Vec<[u32; 2]>,
    /// `struct bpf_line_info`: slot, file, line, line and column; likewise.
    pub line_info: Vec<[u32; 4]>,
}

/// A map as libbpf has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    /// Name.
    pub name: String,
    /// `enum bpf_map_type`
    pub map_type: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Entries.
    pub max_entries: u32,
    /// `map_flags`
    pub flags: u32,
    /// `map_extra`
    pub extra: u64,
}

/// What came of an object.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Programs in libbpf's order, subprograms not among them.
    pub programs: Vec<Program>,
    /// Maps in libbpf's order.
    pub maps: Vec<Map>,
    /// Why preparing or loading failed, as an errno text; `None` when it worked or was not asked for.
    pub failed: Option<String>,
    /// libbpf's log, debug lines included.
    pub log: String,
}

impl Outcome {
    /// The program of that name.
    #[must_use]
    pub fn program(&self, name: &str) -> Option<&Program> {
        self.programs.iter().find(|program| program.name == name)
    }

    /// The CO-RE relocations that the log tells of, in the order in which libbpf made them.
    #[must_use]
    pub fn core_relos(&self) -> Vec<ReloLog> {
        parse_core_log(&self.log)
    }
}

thread_local! {
    static LOG: RefCell<String> = const { RefCell::new(String::new()) };
}

unsafe extern "C" {
    /// C99 `vsnprintf`.
    fn vsnprintf(buf: *mut c_char, size: usize, format: *const c_char, args: *mut sys::__va_list_tag) -> c_int;
}

/// libbpf calls this on the thread that called it.
unsafe extern "C" fn keep_log(
    _level: sys::libbpf_print_level,
    format: *const c_char,
    args: *mut sys::__va_list_tag,
) -> c_int {
    // Longer than libbpf's own limit for its messages except for verifier logs, which are cut here.
    let mut buf = vec![0u8; 1 << 16];
    // SAFETY: `buf` has as many bytes as the size says, and format and arguments are libbpf's own pair, used once.
    let len = unsafe { vsnprintf(buf.as_mut_ptr().cast(), buf.len(), format, args) };
    let len = usize::try_from(len).unwrap_or(0).min(buf.len() - 1);
    let text = String::from_utf8_lossy(&buf[..len]);
    LOG.with(|log| {
        if let Ok(mut log) = log.try_borrow_mut() {
            log.push_str(&text);
        }
    });
    len as c_int
}

fn start_log() {
    static ONCE: Once = Once::new();
    // SAFETY: the function lives as long as the process and has the signature that libbpf asks for.
    ONCE.call_once(|| unsafe {
        sys::libbpf_set_print(Some(keep_log));
    });
    LOG.with_borrow_mut(String::clear);
}

fn take_log() -> String {
    LOG.with_borrow_mut(std::mem::take)
}

/// libbpf's numbers: an errno, or one of its own from 4000 on.
fn error_text(errno: i32) -> String {
    // libbpf hands a size of 2^31 bytes on as an error.
    let errno = errno.saturating_abs();
    let mut buf: [c_char; 256] = [0; 256];
    // SAFETY: the buffer has the size that is passed, and libbpf ends what it writes with a NUL.
    let text = unsafe {
        sys::libbpf_strerror(errno, buf.as_mut_ptr(), buf.len() as _);
        owned(buf.as_ptr())
    };
    format!("{text} ({errno})")
}

/// # Safety
/// `text` is null or ends with a NUL.
unsafe fn owned(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: by the caller.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// # Safety
/// `records` is null or points to as many records.
unsafe fn info<R: Copy>(records: *const R, count: u32) -> Vec<R> {
    if records.is_null() {
        return Vec::new();
    }
    // SAFETY: by the caller.
    unsafe { std::slice::from_raw_parts(records, count as usize) }.to_vec()
}

fn c_path(path: &Path) -> Result<CString, String> {
    CString::new(path.as_os_str().as_encoded_bytes()).map_err(|error| format!("{}: {error}", path.display()))
}

/// An open object, closed when dropped.
struct Object(*mut sys::bpf_object);

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: the pointer came from bpf_object__open_file and is not used again.
        unsafe { sys::bpf_object__close(self.0) };
    }
}

impl Object {
    fn program_pointers(&self) -> Vec<*mut sys::bpf_program> {
        let mut found = Vec::new();
        let mut at = std::ptr::null_mut();
        loop {
            // SAFETY: the object is open, and `at` is null or a program of it.
            at = unsafe { sys::bpf_object__next_program(self.0, at) };
            if at.is_null() {
                return found;
            }
            found.push(at);
        }
    }

    fn map_pointers(&self) -> Vec<*mut sys::bpf_map> {
        let mut found = Vec::new();
        let mut at = std::ptr::null_mut();
        loop {
            // SAFETY: the object is open, and `at` is null or a map of it.
            at = unsafe { sys::bpf_object__next_map(self.0, at) };
            if at.is_null() {
                return found;
            }
            found.push(at);
        }
    }

    fn programs(&self) -> Vec<Program> {
        let copy = |program: *mut sys::bpf_program| {
            // SAFETY: the program belongs to the open object; its strings and instructions live until that is closed, and there
            // are as many instructions of 8 bytes as insn_cnt says.
            unsafe {
                let insns = sys::bpf_program__insns(program).cast::<u8>();
                let bytes = sys::bpf_program__insn_cnt(program) as usize * 8;
                Program {
                    name: owned(sys::bpf_program__name(program)),
                    section: owned(sys::bpf_program__section_name(program)),
                    prog_type: sys::bpf_program__type(program),
                    expected_attach_type: sys::bpf_program__expected_attach_type(program),
                    autoload: sys::bpf_program__autoload(program),
                    insns: if insns.is_null() { Vec::new() } else { std::slice::from_raw_parts(insns, bytes).to_vec() },
                    xlated: None,
                    func_info: info(
                        sys::bpf_program__func_info(program).cast(),
                        sys::bpf_program__func_info_cnt(program),
                    ),
                    line_info: info(
                        sys::bpf_program__line_info(program).cast(),
                        sys::bpf_program__line_info_cnt(program),
                    ),
                }
            }
        };
        self.program_pointers().into_iter().map(copy).collect()
    }

    /// Fills in [`Program::xlated`] of the programs that are loaded.
    fn read_back(&self, programs: &mut [Program]) -> Result<(), String> {
        for (pointer, program) in self.program_pointers().into_iter().zip(programs) {
            // SAFETY: the program belongs to the open object.
            let fd = unsafe { sys::bpf_program__fd(pointer) };
            if fd >= 0 {
                // SAFETY: the object owns the descriptor and stays open in this function.
                let fd = unsafe { BorrowedFd::borrow_raw(fd) };
                program.xlated = Some(crate::kernel::xlated_insns(fd)?);
            }
        }
        Ok(())
    }

    fn maps(&self) -> Vec<Map> {
        let copy = |map: *mut sys::bpf_map| {
            // SAFETY: the map belongs to the open object.
            unsafe {
                Map {
                    name: owned(sys::bpf_map__name(map)),
                    map_type: sys::bpf_map__type(map),
                    key_size: sys::bpf_map__key_size(map),
                    value_size: sys::bpf_map__value_size(map),
                    max_entries: sys::bpf_map__max_entries(map),
                    flags: sys::bpf_map__map_flags(map),
                    extra: sys::bpf_map__map_extra(map),
                }
            }
        };
        self.map_pointers().into_iter().map(copy).collect()
    }

    fn choose_programs(&self, autoload: &Autoload) {
        for program in self.program_pointers() {
            // SAFETY: the program belongs to the open object, which is not loaded yet.
            unsafe {
                let name = owned(sys::bpf_program__name(program));
                let wanted = match autoload {
                    Autoload::AsDeclared => continue,
                    Autoload::All => true,
                    Autoload::Only(names) => names.contains(&name),
                    Autoload::Without(names) => sys::bpf_program__autoload(program) && !names.contains(&name),
                };
                sys::bpf_program__set_autoload(program, wanted);
            }
        }
    }

    /// A test leaves nothing behind in bpffs.
    fn forget_pins(&self) {
        for map in self.map_pointers() {
            // SAFETY: the map belongs to the open object, which is not loaded yet; null is allowed and means no pin.
            unsafe { sys::bpf_map__set_pin_path(map, std::ptr::null()) };
        }
    }

    fn size_maps(&self) {
        for map in self.map_pointers() {
            // SAFETY: the map belongs to the open object, which is not loaded yet.
            unsafe {
                if sys::bpf_map__max_entries(map) == 0 {
                    sys::bpf_map__set_max_entries(map, 1);
                }
            }
        }
    }
}

/// Opens an object and goes on as the options say.
///
/// # Errors
/// If libbpf does not open the object (the error and the log), or if a loaded program cannot be read back. What fails in between
/// is in [`Outcome::failed`].
pub fn run(object: &Path, options: &Options) -> Result<Outcome, String> {
    start_log();
    let path = c_path(object)?;
    let btf = options.custom_btf.as_deref().map(c_path).transpose()?;
    let kconfig = options.kconfig.clone().map(CString::new).transpose().map_err(|error| error.to_string())?;
    let pointer = |text: &Option<CString>| text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
    let open_options = sys::bpf_object_open_opts {
        sz: size_of::<sys::bpf_object_open_opts>() as _,
        btf_custom_path: pointer(&btf),
        kconfig: pointer(&kconfig),
        ..Default::default()
    };
    // SAFETY: the path and the strings in the options outlive the call, and libbpf copies them.
    let opened = unsafe { sys::bpf_object__open_file(path.as_ptr(), &raw const open_options) };
    if opened.is_null() {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        return Err(format!("{}: {}\n{}", object.display(), error_text(errno), take_log()));
    }
    let opened = Object(opened);
    opened.choose_programs(&options.autoload);
    opened.forget_pins();
    if options.size_maps {
        opened.size_maps();
    }
    let result = match options.stage {
        Stage::Open => 0,
        // SAFETY: the object is open and neither prepared nor loaded.
        Stage::Prepare => unsafe { sys::bpf_object__prepare(opened.0) },
        // SAFETY: as above.
        Stage::Load => unsafe { sys::bpf_object__load(opened.0) },
    };
    let mut programs = opened.programs();
    if options.xlated {
        opened.read_back(&mut programs)?;
    }
    Ok(Outcome { programs, maps: opened.maps(), failed: (result != 0).then(|| error_text(result)), log: take_log() })
}

/// Opens and prepares an object against a BTF file, or against the running kernel's. Needs root.
///
/// # Errors
/// As [`run`].
pub fn open_and_prepare(object: &Path, custom_btf: Option<&Path>) -> Result<Outcome, String> {
    let options = Options { custom_btf: custom_btf.map(Path::to_owned), ..Options::default() };
    run(object, &options)
}

/// Opens an object, goes on as far as `stage` says, and closes it, with no log kept and nothing copied out: what there is to
/// measure. Returns how many instructions all programs have.
///
/// # Errors
/// libbpf's.
pub fn quiet(object: &Path, stage: Stage) -> Result<usize, String> {
    // SAFETY: null turns libbpf's messages off.
    unsafe { sys::libbpf_set_print(None) };
    let path = c_path(object)?;
    // SAFETY: the path outlives the call; null stands for no options.
    let opened = unsafe { sys::bpf_object__open_file(path.as_ptr(), std::ptr::null()) };
    if opened.is_null() {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        return Err(error_text(errno));
    }
    let opened = Object(opened);
    let result = match stage {
        Stage::Open => 0,
        // SAFETY: the object is open and neither prepared nor loaded.
        Stage::Prepare => unsafe { sys::bpf_object__prepare(opened.0) },
        // SAFETY: as above.
        Stage::Load => unsafe { sys::bpf_object__load(opened.0) },
    };
    if result != 0 {
        return Err(error_text(result));
    }
    // SAFETY: the programs belong to the open object.
    let counts = opened.program_pointers().into_iter().map(|program| unsafe { sys::bpf_program__insn_cnt(program) });
    Ok(counts.map(|count| count as usize).sum())
}

/// How libbpf classifies a section name: program type and expected attach type, or `None` when it knows no such name. A leading
/// `?` is the object's, not the name's.
#[must_use]
pub fn classify_section(name: &str) -> Option<(u32, u32)> {
    start_log();
    let name = CString::new(name).ok()?;
    let (mut prog_type, mut attach_type) = (0, 0);
    // SAFETY: the name ends with a NUL, and both results have the types that libbpf writes.
    let result = unsafe { sys::libbpf_prog_type_by_name(name.as_ptr(), &raw mut prog_type, &raw mut attach_type) };
    (result == 0).then_some((prog_type, attach_type))
}

/// libbpf's whole SEC() table, as it prints it for a name that it does not know: the names as they stand there, a `+` at the end
/// where a target may follow and a `/` where one must.
///
/// # Panics
/// If this libbpf prints no such list.
#[must_use]
pub fn section_definitions() -> Vec<String> {
    assert_eq!(classify_section("no such section"), None);
    let log = take_log();
    let list = log.lines().find_map(|line| line.split_once("names are:").map(|(_, list)| list.to_owned()));
    let list = list.unwrap_or_else(|| panic!("libbpf lists no section names: {log}"));
    list.split_whitespace().map(str::to_owned).collect()
}

/// The version of the libbpf that is linked, as `v1.7`.
#[must_use]
pub fn version() -> String {
    // SAFETY: a static string.
    unsafe { owned(sys::libbpf_version_string()) }
}
