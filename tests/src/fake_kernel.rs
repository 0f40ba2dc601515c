//! A kernel older than the one that runs: what it would answer to bpf(2), uname(2) and the opening of files.
//!
//! A thread, and every process that it starts, is given a seccomp filter whose calls wait for an answer of this module
//! (`SECCOMP_RET_USER_NOTIF`; Linux 5.9 for files with contents). A call is judged by tables of what the version knows
//! (`age`); what it would refuse is refused as it would, with a line in the log buffer, and all else is passed on to the
//! real kernel, which then sees only what the old one takes.
//!
//! Not answered as the old one would: results of calls that it takes, but for the length of structs of information; limits
//! of its verifier other than those in the tables; and RLIMIT_MEMLOCK.

mod age;
mod bpf;
mod sys;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

pub use bpf::BpfCall;

/// A version of Linux: 4.14, for example; its patch number is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The first number.
    pub major: u16,
    /// The second.
    pub minor: u16,
}

impl Version {
    /// LINUX_VERSION_CODE.
    #[must_use]
    pub fn code(self) -> u32 {
        u32::from(self.major) << 16 | u32::from(self.minor) << 8
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.0", self.major, self.minor)
    }
}

#[derive(Debug, Clone)]
enum File {
    Error(i32),
    Contents(Vec<u8>),
    Real,
}

type Answer = Arc<dyn Fn(&[u64; 6]) -> Option<Result<i64, i32>> + Send + Sync>;

/// What answers; made with [`FakeKernel::new`], changed by the other functions, and run by [`FakeKernel::with`].
#[derive(Clone)]
pub struct FakeKernel {
    version: Version,
    /// The last one whose path is the file's, or starts it and ends with `/`, counts.
    files: Vec<(String, File)>,
    refused: Vec<(u32, i32)>,
    calls: Vec<(libc::c_long, Answer)>,
}

impl fmt::Debug for FakeKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeKernel").field("version", &self.version).finish_non_exhaustive()
    }
}

/// What happened under a fake kernel.
#[derive(Debug, Clone, Default)]
pub struct Log {
    /// Calls of bpf(2), in order.
    pub bpf: Vec<BpfCall>,
    /// The files that were opened or asked for, by the path given, in order.
    pub files: Vec<String>,
}

impl Log {
    /// The calls with a command (`enum bpf_cmd`) that the fake kernel passed on.
    pub fn taken(&self, cmd: u32) -> impl Iterator<Item = &BpfCall> {
        self.bpf.iter().filter(move |call| call.cmd == cmd && call.refused.is_none())
    }

    /// Why calls with a command were refused, in order.
    pub fn refused(&self, cmd: u32) -> impl Iterator<Item = &str> {
        self.bpf.iter().filter(move |call| call.cmd == cmd).filter_map(|call| Some(call.refused.as_ref()?.1.as_str()))
    }
}

/// Calls that name a file: number, and which argument the path is.
const PATHS: &[(libc::c_long, usize)] = &[
    (libc::SYS_openat, 1),
    (libc::SYS_openat2, 1),
    (libc::SYS_faccessat, 1),
    (libc::SYS_faccessat2, 1),
    (libc::SYS_statx, 1),
    #[cfg(target_pointer_width = "64")]
    (libc::SYS_newfstatat, 1),
    #[cfg(any(target_arch = "x86_64", target_arch = "arm"))]
    (libc::SYS_open, 0),
    #[cfg(any(target_arch = "x86_64", target_arch = "arm"))]
    (libc::SYS_access, 0),
    #[cfg(any(target_arch = "x86_64", target_arch = "arm"))]
    (libc::SYS_stat, 0),
];

fn is_open(number: libc::c_long) -> bool {
    #[cfg(any(target_arch = "x86_64", target_arch = "arm"))]
    if number == libc::SYS_open {
        return true;
    }
    number == libc::SYS_openat || number == libc::SYS_openat2
}

/// Says in a child of [`FakeKernel::run_test`] that it is one.
const INSIDE: &str = "CORELO_INSIDE_FAKE_KERNEL";

impl FakeKernel {
    /// A kernel of a version as it comes: BTF from 5.4 on, BTF of modules from 5.11 on.
    #[must_use]
    pub fn new(major: u16, minor: u16) -> FakeKernel {
        let version = Version { major, minor };
        let mut kernel = FakeKernel { version, files: Vec::new(), refused: Vec::new(), calls: Vec::new() };
        kernel = kernel.file_error("/proc/version_signature", libc::ENOENT);
        if version < age::BTF_NAMES {
            kernel = kernel.file_error("/sys/kernel/btf/", libc::ENOENT);
        }
        if version < age::BTF_NAMES && version >= age::KERNEL_BTF {
            kernel.files.push(("/sys/kernel/btf/vmlinux".into(), File::Real));
        }
        kernel
    }

    /// Opening the file, or asking for it, fails with this error number; a path that ends with `/` is all files below.
    #[must_use]
    pub fn file_error(mut self, path: &str, errno: i32) -> FakeKernel {
        self.files.push((path.into(), File::Error(errno)));
        self
    }

    /// Who opens the file reads these bytes. The file itself must be there for those who ask without opening.
    #[must_use]
    pub fn file(mut self, path: &str, contents: impl Into<Vec<u8>>) -> FakeKernel {
        self.files.push((path.into(), File::Contents(contents.into())));
        self
    }

    /// Every bpf(2) with this command fails with this error number.
    #[must_use]
    pub fn refusing(mut self, cmd: u32, errno: i32) -> FakeKernel {
        self.refused.push((cmd, errno));
        self
    }

    /// Asks `answer` for each call of this number, given its arguments; `None` passes it on. For calls without pointers, or
    /// whose pointers do not matter.
    #[must_use]
    pub fn answering(
        mut self,
        number: libc::c_long,
        answer: impl Fn(&[u64; 6]) -> Option<Result<i64, i32>> + Send + Sync + 'static,
    ) -> FakeKernel {
        self.calls.push((number, Arc::new(answer)));
        self
    }

    /// Why there can be no fake kernel on this machine, if so.
    #[must_use]
    pub fn obstacle() -> Option<String> {
        // There is one already, and no second one below it.
        if std::env::var_os(INSIDE).is_some() {
            return None;
        }
        // A thread of its own is left with the filter, which lets everything pass.
        let tried = std::thread::spawn(|| sys::listen(&[]).map(drop)).join();
        match tried {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(format!("seccomp user notification: {error}")),
            Err(_) => Some("a thread that asked for seccomp user notification panicked".into()),
        }
    }

    /// Runs `body` in a thread under this kernel, with all processes that it starts. What this process has asked the real
    /// kernel before and remembers is not asked again: see [`FakeKernel::run_test`].
    ///
    /// # Panics
    /// Where `body` does, and where the machine has no seccomp user notification ([`FakeKernel::obstacle`]).
    pub fn with<R: Send>(&self, body: impl FnOnce() -> R + Send) -> (R, Log) {
        let mut numbers = vec![libc::SYS_bpf, libc::SYS_uname];
        numbers.extend(PATHS.iter().map(|(number, _)| *number));
        numbers.extend(self.calls.iter().map(|(number, _)| *number));
        let log = Mutex::new(Log::default());
        let is_over = AtomicBool::new(false);
        let result = std::thread::scope(|scope| {
            let (send, listener) = mpsc::channel();
            let filtered = scope.spawn(move || {
                let listener = sys::listen(&numbers).expect("seccomp user notification");
                send.send(listener).expect("the other thread waits for it");
                body()
            });
            let (log, is_over) = (&log, &is_over);
            let supervisor = scope.spawn(move || {
                // An error is that of the other thread, which panics with it.
                let Ok(listener) = listener.recv() else { return };
                self.supervise(listener.as_fd(), log, is_over);
            });
            let result = filtered.join();
            is_over.store(true, Ordering::Release);
            supervisor.join().expect("the supervisor");
            result
        });
        let log = log.into_inner().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(result) => (result, log),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Runs `body` under this kernel in a process of its own: the test `name` (its path in the test program) of this very
    /// program, started anew. Call it once in a test, which is then to do nothing else than judge the log. The result is
    /// `None` in that process.
    ///
    /// # Panics
    /// Where the test fails there.
    pub fn run_test(&self, name: &str, body: impl FnOnce()) -> Option<Log> {
        if std::env::var_os(INSIDE).is_some() {
            body();
            return None;
        }
        let program = std::env::current_exe().expect("the path of this program");
        let (output, log) = self.run(Command::new(program).args(["--exact", name, "--nocapture"]).env(INSIDE, "1"));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "under Linux {}:\n{text}{}",
            self.version,
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(text.contains("1 passed"), "no test {name}:\n{text}");
        Some(log)
    }

    /// Runs a command to its end under this kernel.
    ///
    /// # Panics
    /// Where it cannot be started.
    pub fn run(&self, command: &mut Command) -> (std::process::Output, Log) {
        self.with(|| command.output().expect("the command starts"))
    }

    fn supervise(&self, listener: BorrowedFd<'_>, log: &Mutex<Log>, is_over: &AtomicBool) {
        loop {
            // What is left of processes that the body started and did not wait for ends with the listener: ENOSYS.
            let was_over = is_over.load(Ordering::Acquire);
            match sys::wait(listener, 20) {
                Ok(Some(true)) => {}
                Ok(Some(false)) if !was_over => continue,
                _ => return,
            }
            let Ok(call) = sys::receive(listener) else { continue };
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            // Who does not wait any longer was killed, or interrupted and asks again.
            let _ = match self.judge(listener, &call, &mut log) {
                None => sys::pass_on(listener, call.id),
                Some(result) => sys::answer(listener, call.id, result),
            };
        }
    }

    fn judge(&self, listener: BorrowedFd<'_>, call: &sys::Notification, log: &mut Log) -> Option<Result<i64, i32>> {
        let number = libc::c_long::from(call.number);
        for (of, answer) in &self.calls {
            if *of == number
                && let Some(result) = answer(&call.args)
            {
                return Some(result);
            }
        }
        if number == libc::SYS_bpf {
            return self.judge_bpf(call, log).map(Err);
        }
        if number == libc::SYS_uname {
            return Some(self.uname(call.pid, call.args[0]));
        }
        let (_, path) = PATHS.iter().find(|(of, _)| *of == number)?;
        let path = read_path(call.pid, call.args[*path]);
        log.files.push(path.clone());
        let of_path = |name: &str| if name.ends_with('/') { path.starts_with(name) } else { path == name };
        match &self.files.iter().rev().find(|(name, _)| of_path(name))?.1 {
            File::Error(errno) => Some(Err(*errno)),
            File::Contents(bytes) if is_open(number) => {
                let given = sys::memory_file(bytes).and_then(|file| sys::give(listener, call.id, file.as_fd()));
                Some(given.map(i64::from).map_err(|error| error.raw_os_error().unwrap_or(libc::EIO)))
            }
            File::Contents(_) | File::Real => None,
        }
    }

    fn judge_bpf(&self, notification: &sys::Notification, log: &mut Log) -> Option<i32> {
        let mut call = bpf::read(notification.pid, &notification.args);
        let by_hand = self.refused.iter().find(|(cmd, _)| *cmd == call.cmd);
        call.refused = match by_hand {
            Some((_, errno)) => Some((*errno, "as the test wants it".into())),
            None => bpf::judge(self.version, notification.pid, &call).err(),
        };
        let errno = call.refused.as_ref().map(|(errno, why)| {
            bpf::write_log(notification.pid, &call, why);
            *errno
        });
        if errno.is_none() {
            bpf::cut(self.version, notification.pid, notification.args[1], &call);
        }
        log.bpf.push(call);
        errno
    }

    /// The real answer with another release, and a version that no distribution writes.
    fn uname(&self, pid: u32, address: u64) -> Result<i64, i32> {
        /// Bytes of each of the six texts of `struct new_utsname`.
        const FIELD: usize = 65;
        let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let machine = if cfg!(target_arch = "arm") { "armv7l" } else { std::env::consts::ARCH };
        let texts = ["Linux", hostname.trim_end(), &self.version.to_string(), "#1 SMP", machine, "(none)"];
        let mut names = [0; 6 * FIELD];
        for (field, text) in names.chunks_exact_mut(FIELD).zip(texts) {
            let len = text.len().min(FIELD - 1);
            field[..len].copy_from_slice(&text.as_bytes()[..len]);
        }
        sys::write(pid, address, &names).map(|()| 0).map_err(|error| error.raw_os_error().unwrap_or(libc::EFAULT))
    }
}

/// A path in another process, as far as its memory can be read; what is no UTF-8 is replaced.
fn read_path(pid: u32, mut address: u64) -> String {
    const PAGE: u64 = 4096;
    let mut path = Vec::new();
    while path.len() < PAGE as usize {
        // Never across a page: the next one need not be there.
        let mut piece = vec![0; (PAGE - address % PAGE) as usize];
        let Ok(len) = sys::read(pid, address, &mut piece) else { break };
        if let Some(end) = piece[..len].iter().position(|byte| *byte == 0) {
            path.extend_from_slice(&piece[..end]);
            break;
        }
        path.extend_from_slice(&piece[..len]);
        address += len as u64;
    }
    String::from_utf8_lossy(&path).into_owned()
}

/// Whether this machine can have a fake kernel; where not, says so and what for.
///
/// # Panics
/// Instead of saying so, when `CORELO_REQUIRE_KERNEL=1`.
#[must_use]
pub fn require_fake_kernel(reason: &str) -> bool {
    match FakeKernel::obstacle() {
        None => true,
        Some(obstacle) => {
            crate::kernel::skip(reason, &obstacle);
            false
        }
    }
}
