#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# The `corelo` program, built as it ships to devices, on the kernels that devices run: builds it static for each architecture,
# boots each kernel, and there
#   run       runs `corelo run --for 5 --json` while processes start and end, and looks for their events;
#   probes    attaches the 30 kprobes of an object and finds in its map what they wrote: the init's mount namespace;
#   usdt      amd64, and others from Linux 5.15 on: attaches to static probes of the init's processes (boot/probes.h) and finds in
#             a map what each argument was, in memory and (a second object) in a register; one probe is passed only while it is
#             attached to, and on 32-bit ARM one is in Thumb code and refused;
#   hooks     amd64, and arm64 from Linux 6.4 on: fentry, fexit, fmod_ret, LSM, kprobe, kretprobe and tracepoint programs, each
#             with a count above 0; s390x, whose kernel has no JIT: the last three, and `corelo load` says why not the others;
#   syscalls  amd64, arm64, s390x: a system call by its own name, on entry and return, and LINUX_HAS_SYSCALL_WRAPPER;
#   patterns  amd64, arm64, s390x, all of 7.2: kprobe.multi, kretprobe.multi and kprobe.session programs, by pattern and by name;
#   contexts  amd64-5.10, arm64-6.1: functions with a context that is told by a tag load;
#   arena     amd64-7.2: variables of an arena at its end; a kprobe on a name that several functions bear is refused in words;
#   modules   amd64-7.2, arm64-6.1, s390x-7.2: loads modules of the kernel's package; an object hooks functions (amd64) and a
#             tracepoint of some and reads fields of types that only modules have, a second calls functions of another (but s390x,
#             for want of a JIT); without the modules `corelo load` names what is missing and exits 1, and with them --stream is
#             given up in words; on amd64 the agent in C loads them too;
#   load      runs `corelo load` on the object of 30 programs (exit 0): the kernel's BTF is mapped from Linux 6.16 on, and read
#             piece by piece before; on amd64 within 1,280 KiB of memory, also with --stream;
#   stream    the same with --stream: piece by piece on every kernel;
#   read      the same with --read: the whole in memory where it cannot be mapped;
#   minimal agent   armhf-6.1, arm64-6.1: the events of targets/minimal-agent, within 1,280 KiB of memory;
#   no-btf    where the kernel has no BTF: `corelo run` without --btf says so in one line and exits 1;
#   memory    32-bit ARM: the smallest memory of 48 to 128 MiB that the kernel boots in, and the monitor runs in that.
# A kernel without BTF is given a minimal BTF: that of the repository (boot/KERNEL.btf, made by min-btf.sh), whose build must be the
# booted kernel's. With the corpus, or where Debian has another build by now, `corelo min-btf` makes it here of the whole, and
# `load`, `stream` and `read` are given the whole.
# Every check prints its figures. The last line is `N passed, N failed, N skipped`; exit 0 when none failed and one passed.
#
#     targets/ci-qemu.sh [KERNEL]...        default: armhf-6.1 arm64-6.1 arm64-16k-7.2 amd64-5.10 amd64-7.2 s390x-7.2
#
# The environment: CORELO_LIBC=gnu|musl (default musl), CORELO_BIN_ARMHF, CORELO_BIN_ARM64, CORELO_BIN_AMD64,
# CORELO_BIN_RISCV64, CORELO_BIN_S390X (a program built before, instead of building), CORELO_CORPUS (the test corpus),
# CORELO_REQUIRE_KERNEL=1 (what would be skipped fails), CORELO_QEMU_LOGS (a directory that keeps the consoles).

set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
workspace=$(dirname "$here")
. "$here/kernels.sh"

corpus=${CORELO_CORPUS:-$workspace/../shared/corpus}
fixtures=$workspace/tests/fixtures
logs=${CORELO_QEMU_LOGS:-$(mktemp -d)}
mkdir -p "$logs"
passed=0 failed=0 skipped=0
# What `corelo load` of the object of 30 programs may take on amd64, and the minimal agent anywhere: the kernel's BTF is not read
# into memory.
load_rss_kib=1280
# Where the object with programs in modules connects to, and with how large a buffer.
vsock_port=4242 vsock_bytes=77777

pass() {
    passed=$((passed + 1))
    echo "ok      $*"
}
fail() {
    failed=$((failed + 1))
    echo "FAILED  $*"
}
skip() {
    if [ "${CORELO_REQUIRE_KERNEL:-}" = 1 ]; then
        fail "$* (CORELO_REQUIRE_KERNEL=1)"
    else
        skipped=$((skipped + 1))
        echo "skipped $*"
    fi
}

# program ARCH [PACKAGE]: the path of a static `corelo`, or of another package's program, for it, built when first asked for.
program() {
    local arch=$1 package=${2:-corelo} libc=${CORELO_LIBC:-musl} target given built=$logs/program-$1-${2:-corelo}
    given=CORELO_BIN_${arch^^}
    if [ "$package" = corelo ] && [ -n "${!given:-}" ]; then
        echo "${!given}"
        return
    fi
    case $arch-$libc in
    armhf-gnu) target=armv7-unknown-linux-gnueabihf ;;
    armhf-musl) target=armv7-unknown-linux-musleabihf ;;
    arm64-*) target=aarch64-unknown-linux-$libc ;;
    amd64-*) target=x86_64-unknown-linux-$libc ;;
    riscv64-*) target=riscv64gc-unknown-linux-gnu ;;
    s390x-*) target=s390x-unknown-linux-gnu ;;
    esac
    [ -e "$built" ] || "$here/build.sh" "$target" -p "$package" 2>"$logs/build-$arch.log" >"$built" || rm -f "$built"
    [ -e "$built" ] || return 1
    tail -n 1 "$built"
}

# figure NAME FILE: the number (or word) of "NAME": in the summary of a `corelo run --json`.
figure() {
    grep '"summary"' "$2" | tail -n 1 | grep -oE "\"$1\": *(\"[^\"]*\"|[0-9.]+|null)" | head -n 1 | sed 's/^[^:]*: *//; s/"//g'
}

# figures FILE: those of the summary that every check of `run` prints.
figures() {
    local name
    for name in programs attached patched poisoned btf_source arena_used arena_bytes; do
        printf '%s=%s ' "$name" "$(figure "$name" "$1")"
    done
}

# command_figure NUMBER KEY FILE: of the CORELO-CMD line of a command of the boot.
command_figure() {
    sed -n "s/^CORELO-CMD $1 .*\b$2=\([0-9]*\).*/\1/p" "$3" | head -n 1
}

# section NUMBER LOG: what command NUMBER printed; CORELO-CMD lines come after the output of their commands.
section() {
    awk -v number="$1" '/^CORELO-CMD / { if ($2 == number) exit; text = ""; next } { text = text $0 "\n" }
        END { printf "%s", text }' "$2" | tr -d '\r'
}

# ordered HEX: a number's bytes, from the order of the kernel's machine to the usual one or back; decimal HEX: the number.
ordered() {
    local digits='' i
    for ((i = ${#1} - 2; i >= 0; i -= 2)); do digits+=${1:i:2}; done
    if [ "$endian" = eb ]; then echo "$1"; else echo "$digits"; fi
}
decimal() { echo $((16#$(ordered "${1:-00}"))); }

# element MAP KEY FILE: the value, in hex, under a key of 4 bytes in a dump; hits_of INDEX FILE: that of `hits`, in decimal.
element() {
    grep "\"map\":\"$1\"" "$3" | grep "\"key\":\"$(ordered "$(printf '%08x' "$2")")\"" | grep -oE '"value":"[0-9a-f]*"' | cut -d '"' -f 4
}
hits_of() {
    local value
    value=$(element hits "$1" "$2")
    decimal "$value"
}

# at_least KERNEL SERIES: whether the kernel is of this series or a newer one.
at_least() { [ "$(printf '%s\n' "$2" "$(kernel_series "$1")" | sort -V | head -n 1)" = "$2" ]; }

# tail_of FILE: what a check that failed shows.
tail_of() { grep -v -E '^CORELO-INFO|"event"' "$1" | tail -n 25 | sed 's/^/        /'; }

# minimal_btf BTF OUT: the few types of BTF that the monitor and the object of 30 programs need, made on this host.
minimal_btf() {
    local host
    case $(uname -m) in
    x86_64) host=$(program amd64) ;;
    aarch64) host=$(program arm64) ;;
    *) return 1 ;;
    esac
    [ -n "$host" ] && "$host" min-btf "$fixtures/many_progs-el.o" "$here/agent/bpf/exec_monitor.bpf.o" --btf "$1" -o "$2"
}

# shipped_btf KERNEL: KERNEL.btf and KERNEL.min.btf beside the logs, and in `btf_build` which build they are of, where that is known.
shipped_btf() {
    local kernel=$1 image kept=$here/boot/$1.btf whole out=$logs/$1 package
    btf_build='the corpus'
    rm -f "$out.btf" "$out.min.btf"
    whole=$(find "$corpus/btf" -name "armhf-$(kernel_series "$kernel").*-from-dwarf.btf.zst" 2>/dev/null | head -n 1)
    if [ -n "$whole" ]; then
        zstd -qdf "$whole" -o "$out.btf" || {
            fail "$kernel: zstd does not unpack $whole"
            return 1
        }
    elif [ "${CORELO_REQUIRE_CORPUS:-}" = 1 ]; then
        fail "$kernel: no BTF for it under $corpus/btf (CORELO_REQUIRE_CORPUS=1)"
        return 1
    else
        image=$(kernel_image "$kernel") || {
            fail "$kernel: no kernel"
            return 1
        }
        package=$(basename "$(dirname "$image")")
        if [ -s "$kept" ] && [ "$package" = "linux-image-$(cut -d ' ' -f 1 "$here/boot/$kernel.build")" ]; then
            btf_build=$(cat "$here/boot/$kernel.build")
            cp "$kept" "$out.btf" && cp "$kept" "$out.min.btf"
            return
        fi
        echo "        $kernel: the repository's BTF is not of $package: it is made of $package-dbg"
        btf_build=$package
        whole=$(kernel_btf "$kernel") && cp "$whole" "$out.btf" || {
            fail "$kernel: no BTF for it"
            return 1
        }
    fi
    minimal_btf "$out.btf" "$out.min.btf" || {
        fail "$kernel: no minimal BTF could be made of $whole"
        return 1
    }
}

# check_btf_build KERNEL LOG: the repository's BTF is of the kernel that was booted, and what is made here of the whole.
check_btf_build() {
    local kernel=$1 build said
    [ -e "$here/boot/$kernel.build" ] || return 0
    build=$(cat "$here/boot/$kernel.build") said=$(sed -n 's/^CORELO-INFO build=//p' "$2")
    if [ "$build" != "$said" ]; then
        # Made here, of that build, it is another than the repository's and need not be.
        [ "$btf_build" = "$build" ] && fail "$kernel: the repository's BTF is of $build, this is $said: targets/min-btf.sh $kernel"
    elif [ "$btf_build" = "$said" ] || cmp -s "$logs/$kernel.min.btf" "$here/boot/$kernel.btf"; then
        pass "$kernel minimal BTF: that of the repository, of this build: $build"
    else
        fail "$kernel: the repository's BTF is not what its build gives now: targets/min-btf.sh $kernel"
    fi
}

check_kernel() {
    local kernel=$1 arch log program object name btf='' options='' whole='' arguments=() count=1 endian=el hooks='' no_btf='' syscalls='' patterns='' arena='' contexts=''
    local modules='' c_modules='' agent skip_fentry='' skip_trampolines='' usdt='' usdt_options minimal_agent=''
    arch=$(kernel_arch "$kernel")
    log=$logs/$kernel.log
    [ "$arch" = s390x ] && endian=eb
    object=$fixtures/many_progs-$endian.o name=/many_progs-$endian.o
    [ -e "$object" ] || {
        fail "$kernel: no $object"
        return
    }
    program=$(program "$arch") || {
        fail "$kernel: the program for $arch does not build:"
        tail -n 20 "$logs/build-$arch.log"
        return
    }

    # The 32-bit ARM kernels of Debian carry no BTF: it is shipped beside the program, as on a device.
    if [ "$arch" = armhf ]; then
        shipped_btf "$kernel" || return
        btf=$logs/$kernel.btf options=' --btf /min.btf' whole=' --btf /kernel.btf'
        arguments+=(--file "$btf:/kernel.btf" --file "$logs/$kernel.min.btf:/min.btf")
        echo "        $kernel: minimal BTF $(stat -c %s "$logs/$kernel.min.btf") bytes, $(stat -c %s "$btf") for load, of $btf_build"
    fi
    arguments+=(--file "$program:/corelo" --file "$object:$name" --do info)
    arguments+=(--bg "/corelo run --for 5 --json$options" --do exec-until-done)
    arguments+=(--bg "/corelo run $name --for 3 --json --dump seen$options" --do exec-until-done)
    arguments+=(--run "/corelo load $name$whole" --run "/corelo load $name --stream$whole" --run "/corelo load $name --read$whole")
    count=5
    if [[ $kernel =~ ^(armhf-6.1|arm64-6.1)$ ]]; then
        if agent=$(program "$arch" corelo-minimal-agent); then
            arguments+=(--file "$agent:/minimal-agent" --bg "/minimal-agent --for 2$options" --do exec-until-done)
            count=$((count + 1)) minimal_agent=$count
        else
            fail "$kernel minimal agent: it does not build"
        fi
    fi
    # Without attach cookies the object looks for its program counter where x86-64 has it.
    if [ "$arch" = amd64 ] || at_least "$kernel" 5.15; then
        # Its probes are those of its own process; here others have them, by a path of as many bytes.
        LC_ALL=C sed 's#/proc/self/exe:#//////bin/true:#g; s#corelo_test:no_such#corelo_test:inthumb#g' \
            "$fixtures/obj_usdt-$endian.o" >"$log.usdt"
        LC_ALL=C sed 's#corelo_test:operands#corelo_test:register#g' "$log.usdt" >"$log.usdt-register"
        arguments+=(--file "$log.usdt:/obj_usdt-$endian.o" --file "$log.usdt-register:/obj_usdt_register-$endian.o")
        usdt_options=" --for 2 --json --dump seen --skip unreadable --skip no_probe --skip no_notes$options"
        # Nor can there be two programs of an object at one place then.
        at_least "$kernel" 5.15 || usdt_options+=' --skip also_operands'
        arguments+=(--bg "/corelo run /obj_usdt-$endian.o$usdt_options")
        arguments+=(--bg "/corelo run /obj_usdt_register-$endian.o$usdt_options" --do exec-until-done)
        usdt=$((count + 1)) count=$((count + 2))
        if [ "$arch" = armhf ]; then
            usdt_options=${usdt_options/--skip no_probe/--skip on_operands --skip also_operands --skip on_guarded}
            arguments+=(--bg "/corelo run /obj_usdt-$endian.o$usdt_options" --do exec-until-done)
            count=$((count + 1))
        fi
    fi
    if [ "$arch" = amd64 ] || [ "$arch" = s390x ] || { [ "$arch" = arm64 ] && at_least "$kernel" 6.4; }; then
        # The BPF LSM runs only where the list of LSMs names it.
        arguments+=(--file "$fixtures/obj_trampolines-$endian.o:/obj_trampolines-$endian.o" --append "lsm=lockdown,bpf")
        [ "$arch" = s390x ] && skip_trampolines=' --skip by_fentry --skip by_fexit --skip by_fmod_ret --skip by_lsm'
        arguments+=(--bg "/corelo run /obj_trampolines-$endian.o --for 2 --json --dump hits$skip_trampolines" --do exec-until-done)
        count=$((count + 1)) hooks=$count
        [ -z "$skip_trampolines" ] || { arguments+=(--run "/corelo load /obj_trampolines-$endian.o") && count=$((count + 1)); }
    fi
    if [[ $arch =~ ^(amd64|arm64|s390x)$ ]]; then
        arguments+=(--file "$fixtures/obj_ksyscall-$endian.o:/obj_ksyscall-$endian.o")
        arguments+=(--bg "/corelo run /obj_ksyscall-$endian.o --for 2 --json --dump hits" --do exec-until-done)
        count=$((count + 1)) syscalls=$count
    fi
    # Sessions need Linux 6.10, and CONFIG_FPROBE, which Debian's 6.1 was built without.
    if [[ $arch =~ ^(amd64|arm64|s390x)$ ]] && at_least "$kernel" 7.2; then
        arguments+=(--file "$fixtures/obj_kprobe_multi-$endian.o:/obj_kprobe_multi-$endian.o")
        arguments+=(--bg "/corelo run /obj_kprobe_multi-$endian.o --for 2 --json --dump hits" --do exec-until-done)
        count=$((count + 1)) patterns=$count
    fi
    # Global functions with a context, which kernels before 6.8 do not know by its tag.
    if [[ $kernel =~ ^(amd64-5.10|arm64-6.1)$ ]]; then
        arguments+=(--file "$fixtures/obj_arg_ctx-el.o:/arg_ctx.o" --run "/corelo load /arg_ctx.o")
        contexts=$((count + 1)) count=$((count + 1))
    fi
    if [ "$kernel" = amd64-7.2 ]; then
        arguments+=(--file "$fixtures/obj_arena_fixed-el.o:/obj_arena_fixed.o" --file "$fixtures/told_several_functions-el.o:/several.o")
        arguments+=(--bg "/corelo run /obj_arena_fixed.o --for 2 --json --dump hits" --do exec-until-done --run "/corelo run /several.o --for 1")
        arena=$((count + 1)) count=$((count + 2))
    fi
    # The last of all, so that no other check has modules to look at. On arm64 fentry needs Linux 6.4, and on any machine a JIT.
    if [[ $kernel =~ ^(amd64-7.2|arm64-6.1|s390x-7.2)$ ]]; then
        [ "$arch" = amd64 ] || skip_fentry=' --skip by_fentry --skip by_fexit'
        if with_modules "$kernel" "$skip_fentry"; then
            arguments+=("${module_arguments[@]}")
            modules=$((count + 1)) count=$((count + 5))
            if [ "$arch-$(uname -m)" = amd64-x86_64 ]; then
                agent=$(c_agent) || {
                    fail "$kernel: the C agent does not build:"
                    tail -n 20 "$logs/build-c-agent.log"
                    return
                }
                arguments+=(--file "$agent:/c-agent" --run "/c-agent /obj_modules_kfunc-el.o --for 1")
                count=$((count + 1)) c_modules=$count
            fi
        else
            skip "$kernel modules: the modules of its package cannot be had"
        fi
    fi
    [ -n "$btf" ] && arguments+=(--run "/corelo run --for 1") && count=$((count + 1)) && no_btf=$count
    "$here/boot.sh" "$kernel" "${arguments[@]}" --timeout "${CORELO_QEMU_TIMEOUT:-240}" >"$log" 2>&1
    local ended=$? boot release page number
    boot=$(grep '^CORELO-BOOT' "$log" | tail -n 1 | sed -n 's/.*\bms=\([0-9]*\).*/\1/p')
    release=$(sed -n 's/^CORELO-INFO release=//p' "$log")
    if ! grep -q '^CORELO-EXIT' "$log"; then
        fail "$kernel: did not come to its end (boot.sh gave $ended after ${boot:-?} ms); the console's tail:"
        tail -n 25 "$log" | sed 's/^/        /'
        return
    fi
    for ((number = 1; number <= count; number++)); do section "$number" "$log" >"$log.$number"; done

    page=$(sed -n 's/^CORELO-INFO page_bytes=//p' "$log")
    [ -z "$btf" ] || check_btf_build "$kernel" "$log"
    check_run "$kernel" "$log" "release=$release page_bytes=$page program_bytes=$(stat -L -c %s "$program") boot_ms=$boot"
    check_probes "$kernel" "$log"
    [ -z "$usdt" ] || check_usdt "$kernel" "$log" "$usdt" usdt
    [ -z "$usdt" ] || check_usdt "$kernel" "$log" $((usdt + 1)) "usdt in registers"
    [ -z "$usdt" ] || [ "$arch" != armhf ] ||
        check_said "$kernel" "$log" $((usdt + 2)) "usdt in Thumb" 1 "program no_probe .*: the probe at 0x[0-9a-f]* is in Thumb code"
    local code line said peak sources=(streamed streamed read) checks=(load stream read) wanted source
    [ "$(printf '%s\n' 6.16 "$release" | sort -V | head -n 1)" = 6.16 ] && sources=(mmap streamed mmap)
    [ -z "$btf" ] || sources=(file streamed file)
    for number in 3 4 5; do
        code=$(command_figure "$number" exit "$log")
        wanted=${sources[number - 3]}
        source=$(sed -n 's/.*kernel BTF: \([^;]*\);.*/\1/p' "$log.$number" | tail -n 1)
        line="$kernel ${checks[number - 3]} $(basename "$object"): exit=$code btf_source=${source:-none} wanted=$wanted"
        peak=$(command_figure "$number" rss_kib "$log")
        line+=" ms=$(command_figure "$number" ms "$log") rss_kib=$peak"
        line+=" $(grep -o 'arena: .*' "$log.$number" | tail -n 1)"
        if [ "$arch" = amd64 ] && [ "$wanted" != read ]; then
            line+=" rss_kib_allowed=$load_rss_kib"
            # 0 would be a peak that was not measured.
            [ "${peak:-0}" -gt 0 ] && [ "$peak" -le "$load_rss_kib" ] || code=memory line+="; takes more than it may"
        fi
        if [ "$code" = 0 ] && [ "$source" = "$wanted" ]; then pass "$line"; else fail "$line" && tail_of "$log.$number"; fi
    done
    if [ -n "$skip_trampolines" ]; then
        check_values "$kernel" "$log" "$hooks" hooks \
            fentry=0 fexit=0 fexit_returned_0=0 fmod_ret=0 lsm=0 kprobe=+ kretprobe=+ tracepoint=+
        check_said "$kernel" "$log" $((hooks + 1)) "hooks missing" 1 "by_fentry .*: the kernel has no BPF JIT"
    elif [ -n "$hooks" ]; then
        check_values "$kernel" "$log" "$hooks" hooks \
            fentry=+ fexit=+ fexit_returned_0=+ fmod_ret=+ lsm=+ kprobe=+ kretprobe=+ tracepoint=+
    fi
    [ -z "$minimal_agent" ] || check_minimal_agent "$kernel" "$log" "$minimal_agent"
    [ -z "$syscalls" ] || check_values "$kernel" "$log" "$syscalls" syscalls ksyscall=+ kretsyscall=+ has_wrapper=+
    [ -z "$contexts" ] || check_said "$kernel" "$log" "$contexts" contexts 0 "[0-9]* programs, "
    if [ -n "$arena" ]; then
        # Its address is fixed, it has two pages, and its variable is on the second.
        check_values "$kernel" "$log" "$arena" arena variable=$((0x100000000000 + 4096))
        check_said "$kernel" "$log" $((arena + 1)) "one kprobe on several functions" 1 "several functions of the kernel bear this name"
    fi
    [ -z "$patterns" ] || check_values "$kernel" "$log" "$patterns" patterns by_pattern=+ by_name=+ on_return=+ by_session=+ by_many=+
    [ -z "$modules" ] || check_modules "$kernel" "$log" "$modules" "$skip_fentry"
    [ -z "$c_modules" ] || check_said "$kernel" "$log" "$c_modules" "modules in C" 0 "loaded maps=1 programs=1 "
    [ -n "$no_btf" ] || return 0
    code=$(command_figure "$no_btf" exit "$log")
    said=$(grep -v -E '^CORELO-|^\[ *[0-9]+\.[0-9]+\]' "$log.$no_btf")
    line="$kernel no-btf: exit=$code lines=$(grep -c . <<<"$said") said: $said"
    if [ "$code" = 1 ] && [ "$(grep -c . <<<"$said")" = 1 ]; then pass "$line"; else fail "$line"; fi
    check_memory "$kernel" "$program" "$logs/$kernel.min.btf"
}

# The processes that the init starts are called "true" and have process 1 as their parent. It starts about 15 a second and goes
# on until the program has ended, so that 10 is far below what 5 seconds see.
check_run() {
    local kernel=$1 log=$2 more=$3 said=$2.1 code execs exits ours line
    code=$(command_figure 1 exit "$log")
    execs=$(grep -cE '^\{.*"event": *"exec"' "$said")
    exits=$(grep -cE '^\{.*"event": *"exit"' "$said")
    ours=$(grep -E '"event": *"exec"' "$said" | grep -E '"ppid": *1[,}]' | grep -cE '"comm": *"true"')
    line="$kernel run: exit=$code events=$((execs + exits)) exec=$execs exit_events=$exits"
    line+=" of_init=$ours/$(sed -n 's/^CORELO-INFO execs=//p' "$log" | head -n 1)"
    line+=" $(figures "$said")rss_kib=$(command_figure 1 rss_kib "$log") $more"
    if [ "$code" = 0 ] && [ "$ours" -ge 10 ] && [ "$exits" -ge 10 ] && [ -n "$(figure arena_used "$said")" ]; then
        pass "$line"
    else
        fail "$line"
        tail_of "$said"
    fi
}

# Whoever hits a probe writes under the number of its mount namespace (found through three CO-RE relocations) its pid and tgid, plus
# the program's number: 4 bytes each, and process 1 and its children are all there is.
check_probes() {
    local kernel=$1 log=$2 said=$2.2 code space entries value line
    code=$(command_figure 2 exit "$log")
    space=$(sed -n 's/^CORELO-INFO mount_namespace=mnt:\[\([0-9]*\)\].*/\1/p' "$log")
    entries=$(grep -c '"map":"seen"' "$said")
    value=$(element seen "${space:-0}" "$said")
    line="$kernel probes: exit=$code $(figures "$said")entries=$entries mount_namespace=$space value=${value:-none}"
    line+=" ms_attach=$(figure attach "$said") rss_kib=$(command_figure 2 rss_kib "$log")"
    if [ "$code" = 0 ] && [ "$(figure attached "$said")" = 30 ] && [ -n "$value" ] && [ "${value//0/}" != '' ]; then
        pass "$line"
    else
        fail "$line"
        tail_of "$said"
    fi
}

# What the init's processes pass to the probes is in boot/probes.h: seven arguments, -2 in the first. They pass `operands` at two
# places, the second in memory, and `register`, which the next command's object has, at one.
check_usdt() {
    local kernel=$1 log=$2 said=$2.$3 name=$4 code line hex at words=() also guarded register half=30600 wanted
    code=$(command_figure "$3" exit "$log")
    hex=$(element seen 0 "$said")
    for ((at = 0; at < 160; at += 16)); do words+=("$(decimal "${hex:at:16}")"); done
    hex=$(element seen 1 "$said")
    also=$(decimal "${hex:0:16}")
    hex=$(element seen 2 "$said")
    guarded=$(decimal "${hex:0:16}")
    # A place that is missed shows in the counts. (Those of programs that are detached later may be larger.)
    register=0
    [ "$name" != usdt ] || register=$(decimal "$(element seen 0 "$log.$(($3 + 1))" | cut -c 1-16)")
    [ "$endian" = eb ] && half=4386
    wanted="7 0 -2 254 -30000 4000000000 -9 1885667171979194497 $half"
    line="$kernel $name: exit=$code $(figures "$said")hits=${words[0]} also=$also guarded=$guarded count, cookie, values=${words[*]:1}"
    line+=" rss_kib=$(command_figure "$3" rss_kib "$log")"
    if [ "$code" = 0 ] && [ "${words[*]:1}" = "$wanted" ] && [ "$guarded" -ge 5 ] && [ "${words[0]}" -ge 5 ] &&
        [ $((words[0] * 2)) -ge $((register * 3)) ] && { [ "$also" -ge 5 ] || ! at_least "$kernel" 5.15; }; then
        pass "$line"
    else
        fail "$line; wanted: $wanted"
        tail_of "$said"
    fi
}

# The agent in Rust that firmware is to copy from: its events, in as little memory as `corelo load` may take.
check_minimal_agent() {
    local kernel=$1 log=$2 number=$3 said=$2.$3 code peak records line
    code=$(command_figure "$number" exit "$log")
    peak=$(command_figure "$number" rss_kib "$log")
    records=$(sed -n 's/^end records=//p' "$said")
    line="$kernel minimal agent: exit=$code records=$records $(grep '^ready' "$said") rss_kib=$peak"
    if [ "$code" = 0 ] && [ "${records:-0}" -ge 10 ] && [ "${peak:-9999}" -le "$load_rss_kib" ]; then
        pass "$line"
    else
        fail "$line"
        tail_of "$said"
    fi
}

# c_agent: the path of the agent in C for this host, static.
c_agent() {
    local target_dir=${CARGO_TARGET_DIR:-$workspace/target}
    {
        cargo build -q -p corelo-capi --profile device --manifest-path "$workspace/Cargo.toml" &&
            cc -std=c11 -Os -s -static -I"$here/capi" -o "$logs/c-agent" "$here/capi/agent.c" "$target_dir/device/libcorelo.a"
    } >"$logs/build-c-agent.log" 2>&1 && echo "$logs/c-agent"
}

# with_modules KERNEL OPTIONS: the arguments of boot.sh for the five commands that check_modules looks at, in `module_arguments`.
with_modules() {
    local kernel=$1 options=$2 names files file
    names=(vsock vmw_vsock_virtio_transport_common vsock_loopback)
    # Each behind those it depends on; newer kernels have the checksum built in.
    [ "$(kernel_series "$kernel")" = 7.2 ] || names+=(crc32c_generic libcrc32c)
    names+=(nf_defrag_ipv4 nf_defrag_ipv6 nf_conntrack)
    files=$(kernel_modules "$kernel" "${names[@]}") || return
    module_arguments=(--file "$fixtures/obj_modules-$endian.o:/obj_modules-$endian.o")
    module_arguments+=(--file "$fixtures/obj_modules_kfunc-$endian.o:/obj_modules_kfunc-$endian.o")
    module_arguments+=(--run "/corelo load /obj_modules-$endian.o$options" --run "/corelo load /obj_modules_kfunc-$endian.o")
    while read -r file; do
        module_arguments+=(--file "$file:/modules/$(basename "$file")" --do "insmod /modules/$(basename "$file")")
    done <<<"$files"
    module_arguments+=(--run "/corelo load /obj_modules-$endian.o --stream$options")
    module_arguments+=(--bg "/corelo run /obj_modules-$endian.o --for 2 --json --dump hits$options")
    module_arguments+=(--do "vsock-until-done $vsock_port $vsock_bytes")
    module_arguments+=(--bg "/corelo run /obj_modules_kfunc-$endian.o --for 2 --json --dump hits")
    [ "$endian" = eb ] || module_arguments+=(--do "test-run track")
}

# check_modules KERNEL LOG FIRST OPTIONS: two refusals without the modules, streaming given up with them, and what was written.
check_modules() {
    local kernel=$1 log=$2 first=$3 options=$4 missing=virtio_transport_connect values
    [ -z "$options" ] || missing=btf_trace_virtio_transport_alloc_pkt
    check_said "$kernel" "$log" "$first" "modules missing" 1 "the kernel lacks $missing"
    check_said "$kernel" "$log" $((first + 1)) "modules missing" 1 "extern bpf_ct_[a-z_]*: the kernel does not have it"
    check_said "$kernel" "$log" $((first + 2)) "modules stream" 0 "--stream is given up"
    # What fentry writes; 3: both types of the modules are there, and one that nobody has is not.
    values=(fentry=+ port="$vsock_port" buf_alloc="$vsock_bytes")
    [ -z "$options" ] || values=(fentry=0 port=0 buf_alloc=0)
    values+=(tp_btf=+ tp_port="$vsock_port")
    if [ -n "$options" ]; then values+=(fexit=0 kprobe=+ types=0); else values+=(fexit=+ kprobe=+ types=3); fi
    check_values "$kernel" "$log" $((first + 3)) modules "${values[@]}"
    if [ "$endian" = eb ]; then
        check_said "$kernel" "$log" $((first + 4)) "modules kfunc" 1 "program track .*: JIT is required for calling kernel function"
    else
        # ENOENT; IPS_CONFIRMED.
        check_values "$kernel" "$log" $((first + 4)) "modules kfunc" lookup_error=2 inserted=1 found=1 status=8 weak=1
    fi
}

# check_said KERNEL LOG NUMBER CHECK EXIT PATTERN: how a command ended, and that it printed a line like that, behind its name or not.
check_said() {
    local kernel=$1 log=$2 number=$3 said=$2.$3 code line
    code=$(command_figure "$number" exit "$log")
    line="$kernel $4: exit=$code wanted=$5 said: $(grep -m 1 "^[a-z]*: .*$6\|^$6" "$said")"
    if [ "$code" = "$5" ] && grep -q "^[a-z]*: .*$6\|^$6" "$said"; then
        pass "$line"
    else
        fail "$line"
        tail_of "$said"
    fi
}

# check_values KERNEL LOG NUMBER CHECK NAME=VALUE...: the elements of the array `hits` are these, + for any above 0.
check_values() {
    local kernel=$1 log=$2 number=$3 said=$2.$3 code line index=0 pair value wrong=''
    code=$(command_figure "$number" exit "$log")
    line="$kernel $4: exit=$code $(figures "$said")"
    shift 4
    for pair; do
        value=$(hits_of "$index" "$said")
        index=$((index + 1))
        line+="${pair%%=*}=$value "
        case ${pair#*=} in
        +) [ "$value" -gt 0 ] || wrong+=" $pair" ;;
        *) [ "$value" = "${pair#*=}" ] || wrong+=" $pair" ;;
        esac
    done
    line+="rss_kib=$(command_figure "$number" rss_kib "$log")"
    if [ "$code" = 0 ] && [ -z "$wrong" ]; then
        pass "$line"
    else
        fail "$line${wrong:+; wanted:$wrong}"
        tail_of "$said"
    fi
}

# The smallest of these sizes that the kernel boots in with nothing but the program and its BTF; there the monitor must work.
check_memory() {
    local kernel=$1 program=$2 btf=$3 log=$logs/$1-memory.log mib code events line refused=''
    for mib in 48 64 96 128; do
        "$here/boot.sh" "$kernel" --mem "$mib" --timeout 15 --file "$program:/corelo" --file "$btf:/min.btf" --do "cat /proc/meminfo" \
            --bg "/corelo run --for 2 --json --btf /min.btf" --do exec-until-done >"$log" 2>&1
        # MemTotal is there once the init runs: from then on a failure is ours.
        grep -q '^MemTotal:' "$log" && break
        refused+=" $mib"
    done
    section 1 "$log" >"$log.1"
    code=$(command_figure 1 exit "$log")
    events=$(grep -cE '^\{.*"event": *"ex(ec|it)"' "$log.1")
    line="$kernel memory: boots with $mib MiB (not with${refused:- less, which was not tried}), exit=${code:-none} events=$events"
    line+=" mem_free_kib=$(sed -n 's/^MemFree: *\([0-9]*\).*/\1/p' "$log") of $(sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' "$log")"
    line+=" $(figures "$log.1")rss_kib=$(command_figure 1 rss_kib "$log")"
    if [ "$code" = 0 ] && [ "$events" -ge 10 ]; then
        pass "$line"
    else
        fail "$line"
        tail_of "$log"
    fi
}

# zstd for the corpus, xz for modules.
for tool in zstd xz; do
    command -v "$tool" >/dev/null || { [ "$(id -u)" = 0 ] && apt-get -qq install -y "${tool/%xz/xz-utils}" >/dev/null; }
done
[ $# -gt 0 ] || set -- armhf-6.1 arm64-6.1 arm64-16k-7.2 amd64-5.10 amd64-7.2 s390x-7.2
for kernel in "$@"; do
    check_kernel "$kernel"
done
echo "consoles: $logs"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
