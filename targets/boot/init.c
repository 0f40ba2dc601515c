// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The whole user space of the boot tests: process 1 of an initramfs that holds nothing else but the files under test.
// It mounts what a BPF loader looks for, runs /run.list, says how each command ended and what it cost, and powers off.
//
// A line of /run.list is a command (words split at spaces, no shell), or
//     &COMMAND       started, and waited for at the end; its output is printed then, so that it is never mixed up
//     @info          what this kernel offers a BPF loader, one fact a line
//     @exec N        N short-lived processes, 50 ms apart (exec, fork and exit events; each passes the probes of probes.h)
//     @exec-until-done   the same, until every background command has ended
//     @sleep MS      a pause
//     @env NAME=VALUE    for the commands that follow
//     @config        moves /config to where configurations of kernels lie, under the name of this one
//     @cat FILE      the file's bytes
//     @insmod FILE   a kernel module, not compressed; those it depends on come before it
//     @test-run NAME     runs the loaded XDP program of this name on a packet of zeros; waits up to 20 s for it to be loaded
//     @vsock-until-done PORT BYTES   connects to that port of this machine, where nobody listens, with a buffer of that size
//     #...           a comment
//
// Printed, each at the start of a line:
//     CORELO-INFO key=value
//     CORELO-CMD N exit=E rss_kib=R ms=T cmd=...     E is 128 + the signal's number for a killed command
//     CORELO-EXIT: E                                 the first E that is not 0, else 0
//
// rss_kib is the command's own peak: the larger of VmHWM and of what is resident when it is about to end (for which it is
// traced). The ru_maxrss of wait4 would not do: the kernel carries this process's size over into it. The kernel counts VmHWM in
// batches, so a peak before the end may be up to some 256 KiB higher than the figure.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Older ones do not bring along what they need of sys/socket.h.
#include <linux/vm_sockets.h>

#include "probes.h"

enum { MAX_LINE = 1024, MAX_WORDS = 64, MAX_BACKGROUND = 16, GAP_MS = 50 };

static struct background {
    pid_t pid;
    int number;
    long started_ms;
    char command[MAX_LINE];
} background[MAX_BACKGROUND];

static int background_running;
static int first_failure;

// The peaks of commands that are about to end, until they are reported.
static struct peak {
    pid_t pid;
    long kib;
} peaks[MAX_BACKGROUND + 1];

// Something other than a command went wrong.
static void failed(void) {
    first_failure = first_failure ? first_failure : 2;
}

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000L + now.tv_nsec / 1000000L;
}

static void pause_ms(long ms) {
    struct timespec gap = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&gap, NULL);
}

// One write per line, so that lines of two processes never interleave within a line.
static void say(const char *format, ...) {
    char line[MAX_LINE + 128];
    va_list values;
    va_start(values, format);
    int length = vsnprintf(line, sizeof line, format, values);
    va_end(values);
    if (length >= (int)sizeof line) {
        length = sizeof line - 1;
        line[length - 1] = '\n';
    }
    if (write(1, line, length) < 0)
        return;
}

static void cat(const char *path) {
    char chunk[4096];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        say("%s: %s\n", path, strerror(errno));
        return;
    }
    ssize_t got;
    while ((got = read(file, chunk, sizeof chunk)) > 0)
        for (ssize_t done = 0, wrote; done < got; done += wrote)
            if ((wrote = write(1, chunk + done, got - done)) <= 0)
                break;
    close(file);
}

static void mount_at(const char *type, const char *path) {
    mkdir(path, 0755);
    int result = mount(type, path, type, 0, NULL);
    // The kernel mounts devtmpfs by itself in some configurations, and debugfs brings tracefs along.
    say("CORELO-INFO mount.%s=%s\n", type, result == 0 || errno == EBUSY ? "ok" : strerror(errno));
}

// ---- @info ------------------------------------------------------------------------------------

static void say_result(const char *key, long result) {
    say("CORELO-INFO %s=%s\n", key, result < 0 ? strerror(errno) : "ok");
}

static void say_exists(const char *key, const char *path) {
    say("CORELO-INFO %s=%s\n", key, access(path, F_OK) == 0 ? "yes" : "no");
}

static void say_first_line(const char *key, const char *path) {
    char text[128] = "";
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        if (read(file, text, sizeof text - 1) < 0)
            text[0] = 0;
        close(file);
        text[strcspn(text, "\n")] = 0;
    }
    say("CORELO-INFO %s=%s\n", key, file < 0 ? "absent" : text);
}

static long bpf(int command, union bpf_attr *attr) {
    return syscall(SYS_bpf, command, attr, sizeof *attr);
}

// `key` says which program type: the smallest program there is, `r0 = 0; exit`.
static void say_program(const char *key, int type) {
    struct bpf_insn program[2] = {
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = 0},
        {.code = BPF_JMP | BPF_EXIT},
    };
    struct utsname name;
    unsigned major = 0, minor = 0, patch = 0;
    uname(&name);
    sscanf(name.release, "%u.%u.%u", &major, &minor, &patch);
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.prog_type = type;
    attr.insn_cnt = 2;
    attr.insns = (unsigned long)program;
    attr.license = (unsigned long)"GPL";
    attr.kern_version = major << 16 | minor << 8 | (patch > 255 ? 255 : patch);
    long fd = bpf(BPF_PROG_LOAD, &attr);
    say_result(key, fd);
    if (fd >= 0)
        close(fd);
}

static void say_map(const char *key, int type, unsigned key_size, unsigned value_size, unsigned entries) {
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.map_type = type;
    attr.key_size = key_size;
    attr.value_size = value_size;
    attr.max_entries = entries;
    long fd = bpf(BPF_MAP_CREATE, &attr);
    say_result(key, fd);
    if (fd >= 0)
        close(fd);
}

static void info(void) {
    struct utsname name;
    uname(&name);
    say("CORELO-INFO release=%s\nCORELO-INFO machine=%s\n", name.release, name.machine);
    say("CORELO-INFO build=%s %s\n", name.release, name.version);
    say("CORELO-INFO page_bytes=%ld\n", sysconf(_SC_PAGESIZE));

    struct stat btf;
    if (stat("/sys/kernel/btf/vmlinux", &btf) == 0) {
        say("CORELO-INFO btf.vmlinux_bytes=%ld\n", (long)btf.st_size);
        int file = open("/sys/kernel/btf/vmlinux", O_RDONLY | O_CLOEXEC);
        void *at = mmap(NULL, btf.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        say_result("btf.mmap", at == MAP_FAILED ? -1 : 0);
        if (at != MAP_FAILED)
            munmap(at, btf.st_size);
        close(file);
    } else {
        say("CORELO-INFO btf.vmlinux_bytes=absent\n");
    }

    say_program("bpf.prog.socket_filter", BPF_PROG_TYPE_SOCKET_FILTER);
    say_program("bpf.prog.kprobe", BPF_PROG_TYPE_KPROBE);
    say_program("bpf.prog.tracepoint", BPF_PROG_TYPE_TRACEPOINT);
    say_program("bpf.prog.raw_tracepoint", BPF_PROG_TYPE_RAW_TRACEPOINT);
    say_map("bpf.map.hash", BPF_MAP_TYPE_HASH, 4, 4, 8);
    say_map("bpf.map.ringbuf", 27 /* BPF_MAP_TYPE_RINGBUF */, 0, 0, 65536);

    say_exists("tracefs.kprobe_events", "/sys/kernel/tracing/kprobe_events");
    say_exists("tracefs.uprobe_events", "/sys/kernel/tracing/uprobe_events");
    say_exists("tracefs.sched_process_exec", "/sys/kernel/tracing/events/sched/sched_process_exec/id");
    say_exists("tracefs.sys_enter_execve", "/sys/kernel/tracing/events/syscalls/sys_enter_execve/id");
    say_exists("pmu.kprobe", "/sys/bus/event_source/devices/kprobe/type");
    say_exists("kallsyms", "/proc/kallsyms");
    say_first_line("sysctl.kptr_restrict", "/proc/sys/kernel/kptr_restrict");
    say_first_line("sysctl.perf_event_paranoid", "/proc/sys/kernel/perf_event_paranoid");
    say_first_line("sysctl.unprivileged_bpf_disabled", "/proc/sys/kernel/unprivileged_bpf_disabled");
    say_first_line("sysctl.bpf_jit_enable", "/proc/sys/net/core/bpf_jit_enable");
    say_first_line("lockdown", "/sys/kernel/security/lockdown");
    say_first_line("uptime_s", "/proc/uptime");
    char space[64] = "";
    if (readlink("/proc/self/ns/mnt", space, sizeof space - 1) > 0)
        say("CORELO-INFO mount_namespace=%s\n", space);

    struct rlimit memlock;
    getrlimit(RLIMIT_MEMLOCK, &memlock);
    say("CORELO-INFO memlock_kib=%ld\n", (long)(memlock.rlim_cur / 1024));
}

// ---- commands ---------------------------------------------------------------------------------

static void output_path(char path[32], int number) {
    snprintf(path, 32, "/tmp/out.%d", number);
}

// The number of KiB that the line `key` of /proc/PID/`file` gives.
static long read_kib(pid_t pid, const char *file, const char *key) {
    char path[64], line[256];
    long kib = 0;
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    FILE *lines = fopen(path, "re");
    while (lines && fgets(line, sizeof line, lines))
        if (strncmp(line, key, strlen(key)) == 0) {
            kib = atol(line + strlen(key));
            break;
        }
    if (lines)
        fclose(lines);
    return kib;
}

// The counted peak lags behind (pages are counted in batches); what is resident at the end is exact.
static long read_peak_kib(pid_t pid) {
    long peak = read_kib(pid, "status", "VmHWM:"), at_end = read_kib(pid, "smaps_rollup", "Rss:");
    return peak > at_end ? peak : at_end;
}

// A traced command has stopped: at its end, after its exec, or because a signal came, which it is then given.
static void go_on(pid_t pid, int status) {
    long signal = WSTOPSIG(status);
    if (status >> 8 == (SIGTRAP | PTRACE_EVENT_EXIT << 8)) {
        for (int i = 0; i <= MAX_BACKGROUND; i++)
            if (peaks[i].pid == 0) {
                peaks[i] = (struct peak){pid, read_peak_kib(pid)};
                break;
            }
        signal = 0;
    } else if (signal == SIGTRAP) {
        ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACEEXIT);
        signal = 0;
    }
    ptrace(PTRACE_CONT, pid, NULL, signal);
}

static long take_peak_kib(pid_t pid) {
    for (int i = 0; i <= MAX_BACKGROUND; i++)
        if (peaks[i].pid == pid) {
            peaks[i].pid = 0;
            return peaks[i].kib;
        }
    return 0;
}

// `to` is where the command's output goes, or NULL for the console. `traced` asks for its peak.
static pid_t start(char *command, const char *to, int traced) {
    pid_t pid = fork();
    if (pid > 0 && traced) {
        // Past its exec before anything else happens; if that failed, its end is left for reap().
        siginfo_t event;
        int status;
        if (waitid(P_PID, pid, &event, WSTOPPED | WEXITED | WNOWAIT) == 0 && event.si_code == CLD_TRAPPED &&
            waitpid(pid, &status, 0) == pid)
            go_on(pid, status);
    }
    if (pid != 0)
        return pid;
    char *words[MAX_WORDS + 1];
    int count = 0;
    for (char *word = strtok(command, " "); word && count < MAX_WORDS; word = strtok(NULL, " "))
        words[count++] = word;
    words[count] = NULL;
    if (to) {
        int file = open(to, O_WRONLY | O_CREAT | O_APPEND, 0600);
        dup2(file, 1);
        dup2(file, 2);
    }
    if (traced)
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    if (count > 0)
        execv(words[0], words);
    say("%s: %s\n", count > 0 ? words[0] : "empty command", strerror(errno));
    _exit(127);
}

static void report(int number, pid_t pid, const char *command, int status, long started_ms) {
    int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (code != 0 && first_failure == 0)
        first_failure = code;
    say("CORELO-CMD %d exit=%d rss_kib=%ld ms=%ld cmd=%s\n", number, code, take_peak_kib(pid), now_ms() - started_ms,
        command);
}

// Takes in what children have done: until `pid` has ended (1; its status is in *status), until no background command runs
// (`pid` 0), or, without `block`, until nothing more is to be taken in.
static int reap(pid_t pid, int block, int *status) {
    for (;;) {
        pid_t child = waitpid(-1, status, block ? 0 : WNOHANG);
        if (child <= 0)
            return 0;
        if (WIFSTOPPED(*status)) {
            go_on(child, *status);
            continue;
        }
        for (int i = 0; i < MAX_BACKGROUND; i++) {
            struct background *job = &background[i];
            if (job->pid != child)
                continue;
            char path[32];
            output_path(path, job->number);
            cat(path);
            report(job->number, child, job->command, *status, job->started_ms);
            job->pid = 0;
            background_running--;
        }
        if (child == pid)
            return 1;
        if (pid == 0 && background_running == 0)
            return 0;
    }
}

static void run(int number, const char *command) {
    char words[MAX_LINE];
    snprintf(words, sizeof words, "%s", command);
    long started_ms = now_ms();
    int status;
    pid_t pid = start(words, NULL, 1);
    if (pid > 0 && reap(pid, 1, &status))
        report(number, pid, command, status, started_ms);
}

static void run_in_background(int number, const char *command) {
    for (int i = 0; i < MAX_BACKGROUND; i++) {
        struct background *job = &background[i];
        if (job->pid != 0)
            continue;
        char words[MAX_LINE], path[32];
        snprintf(words, sizeof words, "%s", command);
        snprintf(job->command, sizeof job->command, "%s", command);
        output_path(path, number);
        job->number = number;
        job->started_ms = now_ms();
        job->pid = start(words, path, 1);
        background_running++;
        return;
    }
    say("too many background commands: %s\n", command);
    failed();
}

// One short-lived process: this program again, under a name of its own.
static void exec_once(void) {
    char command[] = "/bin/true";
    int status;
    pid_t pid = start(command, NULL, 0);
    if (pid > 0)
        reap(pid, 1, &status);
}

// ---- kernel modules ---------------------------------------------------------------------------

static void insmod(const char *path) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    long result = file < 0 ? -1 : syscall(SYS_finit_module, file, "", 0);
    say("CORELO-INFO insmod %s=%s\n", path, result == 0 ? "ok" : strerror(errno));
    if (result != 0)
        failed();
    if (file >= 0)
        close(file);
}

// A descriptor of the newest loaded program of this name, or -1.
static int program_named(const char *name) {
    int found = -1;
    union bpf_attr attr;
    for (unsigned id = 0;; id = attr.next_id) {
        memset(&attr, 0, sizeof attr);
        attr.start_id = id;
        if (bpf(BPF_PROG_GET_NEXT_ID, &attr) != 0)
            return found;
        union bpf_attr by_id, of_info;
        struct bpf_prog_info info;
        memset(&by_id, 0, sizeof by_id);
        memset(&of_info, 0, sizeof of_info);
        memset(&info, 0, sizeof info);
        by_id.prog_id = attr.next_id;
        int fd = bpf(BPF_PROG_GET_FD_BY_ID, &by_id);
        if (fd < 0)
            continue;
        of_info.info.bpf_fd = fd;
        of_info.info.info_len = sizeof info;
        of_info.info.info = (unsigned long)&info;
        if (bpf(BPF_OBJ_GET_INFO_BY_FD, &of_info) == 0 && strncmp(info.name, name, sizeof info.name) == 0) {
            if (found >= 0)
                close(found);
            found = fd;
        } else {
            close(fd);
        }
    }
}

static void test_run(const char *name) {
    int program = -1, status;
    for (long until = now_ms() + 20000; program < 0 && now_ms() < until && background_running > 0;) {
        program = program_named(name);
        if (program < 0)
            pause_ms(GAP_MS);
        reap(0, 0, &status);
    }
    char packet[64] = "";
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.test.prog_fd = program;
    attr.test.data_in = (unsigned long)packet;
    attr.test.data_size_in = sizeof packet;
    if (program >= 0 && bpf(BPF_PROG_TEST_RUN, &attr) == 0) {
        say("CORELO-INFO test_run.%s=%u\n", name, attr.test.retval);
    } else {
        say("CORELO-INFO test_run.%s=%s\n", name, program < 0 ? "not loaded" : strerror(errno));
        failed();
    }
    if (program >= 0)
        close(program);
}

// One attempt to connect: refused, as nobody listens.
static const char *vsock_connect(unsigned port, unsigned long long bytes) {
    struct sockaddr_vm address = {.svm_family = AF_VSOCK, .svm_port = port, .svm_cid = 1 /* this machine */};
    int socket_fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket_fd < 0)
        return strerror(errno);
    int failure = 0;
    if (setsockopt(socket_fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_SIZE, &bytes, sizeof bytes) != 0 ||
        connect(socket_fd, (struct sockaddr *)&address, sizeof address) != 0)
        failure = errno;
    close(socket_fd);
    return failure ? strerror(failure) : "ok";
}

static void vsock_until_done(const char *words) {
    unsigned port = 0;
    unsigned long long bytes = 0;
    long done = 0;
    const char *last = "none";
    sscanf(words, "%u %llu", &port, &bytes);
    for (; background_running > 0; done++) {
        int status;
        last = vsock_connect(port, bytes);
        pause_ms(GAP_MS);
        reap(0, 0, &status);
    }
    say("CORELO-INFO connects=%ld (%s)\n", done, last);
}

// The release is known to the kernel alone.
static void place_config(void) {
    struct utsname name;
    char path[sizeof name.release + 16];
    uname(&name);
    snprintf(path, sizeof path, "/boot/config-%s", name.release);
    mkdir("/boot", 0755);
    if (rename("/config", path) != 0) {
        say("%s: %s\n", path, strerror(errno));
        failed();
    }
}

// ---- the list ---------------------------------------------------------------------------------

static long activity(long count) {
    long done = 0;
    for (; count < 0 ? background_running > 0 : done < count; done++) {
        int status;
        exec_once();
        pause_ms(GAP_MS);
        reap(0, 0, &status);
    }
    return done;
}

static void run_list(void) {
    FILE *list = fopen("/run.list", "re");
    if (!list) {
        say("/run.list: %s\n", strerror(errno));
        first_failure = 2;
        return;
    }
    char line[MAX_LINE];
    for (int number = 1; fgets(line, sizeof line, list);) {
        line[strcspn(line, "\n")] = 0;
        if (line[0] == 0 || line[0] == '#')
            continue;
        if (line[0] == '&')
            run_in_background(number++, line + 1);
        else if (strcmp(line, "@info") == 0)
            info();
        else if (strcmp(line, "@exec-until-done") == 0)
            say("CORELO-INFO execs=%ld\n", activity(-1));
        else if (strncmp(line, "@exec ", 6) == 0)
            say("CORELO-INFO execs=%ld\n", activity(atol(line + 6)));
        else if (strncmp(line, "@sleep ", 7) == 0)
            pause_ms(atol(line + 7));
        else if (strcmp(line, "@config") == 0)
            place_config();
        else if (strncmp(line, "@env ", 5) == 0) {
            if (putenv(strdup(line + 5)) != 0)
                failed();
        } else if (strncmp(line, "@cat ", 5) == 0)
            cat(line + 5);
        else if (strncmp(line, "@insmod ", 8) == 0)
            insmod(line + 8);
        else if (strncmp(line, "@test-run ", 10) == 0)
            test_run(line + 10);
        else if (strncmp(line, "@vsock-until-done ", 18) == 0)
            vsock_until_done(line + 18);
        else if (line[0] == '@') {
            say("unknown directive: %s\n", line);
            failed();
        } else
            run(number++, line);
    }
    fclose(list);
    int status;
    if (background_running > 0)
        reap(0, 1, &status);
}

int main(int argc, char **argv) {
    (void)argc;
    // /bin/true is a link to this file.
    if (getpid() != 1) {
        pass_probes();
        return strstr(argv[0], "false") != NULL;
    }

    mkdir("/dev", 0755);
    mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
    int console = open("/dev/console", O_RDWR);
    for (int fd = 0; fd < 3 && console >= 0; fd++)
        dup2(console, fd);
    if (console > 2)
        close(console);

    mkdir("/tmp", 01777);
    mount_at("proc", "/proc");
    mount_at("sysfs", "/sys");
    mount_at("tmpfs", "/run");
    mount_at("tracefs", "/sys/kernel/tracing");
    mount_at("debugfs", "/sys/kernel/debug");
    mount_at("securityfs", "/sys/kernel/security");
    mount_at("bpf", "/sys/fs/bpf");
    mount_at("cgroup2", "/sys/fs/cgroup");
    setenv("PATH", "/bin", 1);
    setenv("HOME", "/tmp", 1);

    run_list();
    say("CORELO-EXIT: %d\n", first_failure);
    sync();
    reboot(RB_POWER_OFF);
    // Where there is no power to switch off, a restart ends the emulator just as well.
    reboot(RB_AUTOBOOT);
    return 1;
}
