#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Builds a package of this workspace for a target, static and small; prints the path of what it built on the last line.
#
#     targets/build.sh TARGET [-p PACKAGE] [--profile device|release] [--manifest-path FILE] [-- CARGO-OPTION...]
#     targets/build.sh TARGET [-p PACKAGE] --tests [-- CARGO-OPTION...]
#     targets/build.sh --list
#
# With --tests the package's test programs are built instead, as `cargo test` builds them and linked dynamically, and each is
# printed, `NAME PATH`.
#
# PACKAGE is `corelo` unless given (`corelo-core` for a target without an operating system).
#
# The compiler is rustup's where that target's standard library is installed, else Debian's rustc-web, which builds the standard
# library from rust-web-src (a stable compiler with RUSTC_BOOTSTRAP=1, so nothing but Debian's archive is needed). What is missing
# is installed when this runs as root. CORELO_TOOLCHAIN=rustup|debian forces one.
#
# Exit: 0 built, 1 the build failed, 2 bad usage, 126 something needed is missing.

set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/kernels.sh"

# target; linker; Debian package of the linker; what runs the result on another machine
table() {
    cat <<TABLE
x86_64-unknown-linux-gnu       x86_64-linux-gnu-gcc     gcc                        qemu-x86_64
i686-unknown-linux-gnu         i686-linux-gnu-gcc       gcc-i686-linux-gnu         qemu-i386
aarch64-unknown-linux-gnu      aarch64-linux-gnu-gcc    gcc-aarch64-linux-gnu      qemu-aarch64
armv7-unknown-linux-gnueabihf  arm-linux-gnueabihf-gcc  gcc-arm-linux-gnueabihf    qemu-arm
arm-unknown-linux-gnueabi      arm-linux-gnueabi-gcc    gcc-arm-linux-gnueabi      qemu-arm
riscv64gc-unknown-linux-gnu    riscv64-linux-gnu-gcc    gcc-riscv64-linux-gnu      qemu-riscv64
s390x-unknown-linux-gnu        s390x-linux-gnu-gcc      gcc-s390x-linux-gnu        qemu-s390x
x86_64-unknown-linux-musl      x86_64-linux-gnu-gcc     gcc                        qemu-x86_64
aarch64-unknown-linux-musl     aarch64-linux-gnu-gcc    gcc-aarch64-linux-gnu      qemu-aarch64
armv7-unknown-linux-musleabihf arm-linux-gnueabihf-gcc  gcc-arm-linux-gnueabihf    qemu-arm
thumbv7em-none-eabihf          -                        -                          -
thumbv6m-none-eabi             -                        -                          -
x86_64-unknown-none            -                        -                          -
TABLE
}

usage() {
    sed -n '/^#     targets/,/^$/s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

missing() {
    echo "build.sh: $*" >&2
    exit 126
}

install_packages() {
    [ "$(id -u)" = 0 ] || missing "not installed, and only root can install them: $*"
    echo "build.sh: installing $*" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq install -y --no-install-recommends "$@" >/dev/null 2>&1 ||
        { apt-get -qq update && apt-get -qq install -y --no-install-recommends "$@" >/dev/null; } ||
        missing "could not be installed: $*"
}

# The directory of musl's crt1.o and libc.a for a target: Debian's musl-dev, fetched once, installed nowhere.
musl_libraries() {
    local arch home
    case $1 in
    x86_64*) arch=amd64 ;;
    aarch64*) arch=arm64 ;;
    armv7*) arch=armhf ;;
    esac
    home=$CORELO_CACHE/musl/$arch
    if [ ! -d "$home" ]; then
        mkdir -p "$CORELO_CACHE/musl"
        local work
        work=$(mktemp -d "$CORELO_CACHE/musl/unpack.XXXXXX") || return
        (cd "$work" && kernel_apt "$arch" trixie apt-get -qq update && kernel_apt "$arch" trixie apt-get -qq download musl-dev) >&2 &&
            dpkg-deb -x "$work"/*.deb "$work/tree" && mv "$work/tree" "$home"
        rm -rf "$work"
    fi
    dirname "$(find "$home" -name crt1.o | grep . || return 1)"
}

[ $# -gt 0 ] || usage
if [ "$1" = --list ]; then
    table | awk '{ print $1 }'
    exit 0
fi
target=$1
shift
package=corelo profile=device manifest=$here/../Cargo.toml options=() tests=false
while [ $# -gt 0 ]; do
    if [ "$1" = -- ]; then
        shift
        options=("$@")
        break
    fi
    if [ "$1" = --tests ]; then
        tests=true
        shift
        continue
    fi
    [ $# -ge 2 ] || usage
    case $1 in
    -p | --package) package=$2 ;;
    --profile) profile=$2 ;;
    --manifest-path) manifest=$2 ;;
    *) usage ;;
    esac
    shift 2
done
row=$(table | awk -v target="$target" '$1 == target')
[ -n "$row" ] || missing "unknown target $target (targets/build.sh --list)"
read -r _ linker linker_package _ <<<"$row"

hosted=true
[ "$linker" = - ] && hosted=false
$hosted && ! command -v "$linker" >/dev/null && install_packages "$linker_package"
$hosted && [ "$linker_package" != gcc ] && {
    # A cross gcc without its C library links nothing.
    echo 'int main(void) { return 0; }' | "$linker" -x c -static -o /dev/null - 2>/dev/null ||
        install_packages "$(case $target in
        aarch64*) echo libc6-dev-arm64-cross ;;
        armv7*) echo libc6-dev-armhf-cross ;;
        arm-*) echo libc6-dev-armel-cross ;;
        i686*) echo libc6-dev-i386-cross ;;
        riscv64*) echo libc6-dev-riscv64-cross ;;
        s390x*) echo libc6-dev-s390x-cross ;;
        esac)"
}

# ---- the toolchain ----
rustup_has_target() {
    local libraries
    libraries=$(rustc --print target-libdir --target "$target" 2>/dev/null) || return 1
    compgen -G "$libraries/libcore-*.rlib" >/dev/null
}
toolchain=${CORELO_TOOLCHAIN:-}
[ -n "$toolchain" ] || { rustup_has_target && toolchain=rustup || toolchain=debian; }
job=(build) libraries=std,panic_abort
$tests && job=(test --no-run) libraries=std,panic_unwind,test
cargo=(cargo "${job[@]}")
case $toolchain in
rustup) rustup_has_target || missing "the rustup toolchain has no standard library for $target" ;;
debian)
    if ! [ -x /usr/bin/rustc ] || ! [ -x /usr/bin/cargo ] || ! [ -e /usr/lib/rustlib/src/rust/library/Cargo.lock ]; then
        install_packages rustc-web cargo-web rust-web-src
    fi
    export RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1
    cargo=(/usr/bin/cargo "${job[@]}")
    if $tests; then
        cargo+=("-Zbuild-std=$libraries")
    elif $hosted; then
        # Naming features drops the default ones, backtraces among them.
        cargo+=("-Zbuild-std=$libraries" -Zbuild-std-features=optimize_for_size)
    else
        cargo+=("-Zbuild-std=core,compiler_builtins")
    fi
    ;;
*) usage ;;
esac

# ---- flags ----
# Set per target, so that build scripts and proc macros are left alone.
upper=$(tr 'a-z-' 'A-Z_' <<<"$target")
rustflags=
target_dir=${CARGO_TARGET_DIR:-$(dirname "$manifest")/target}
if $hosted; then
    export "CARGO_TARGET_${upper}_LINKER=$linker"
    $tests || rustflags='-C target-feature=+crt-static -C relocation-model=static'
fi
case $target in
*-musl*)
    # Debian has musl for every architecture, but no cross compiler and no unwinder that go with it. The cross gcc links it all
    # the same: musl's own start files and libc.a, and glibc's libgcc_eh once the one function that only glibc has is there. (It is
    # reached by backtraces alone, which a stripped program that aborts has none of.)
    musl=$(musl_libraries "$target") || missing "no musl for $target"
    shim=$target_dir/$target/musl-shim
    mkdir -p "$shim"
    { echo 'int _dl_find_object(void *pc, void *result) { (void)pc; (void)result; return -1; }' |
        "$linker" -x c -Os -c -o "$shim/stub.o" - && ar rcs "$shim/libunwind_stub.a" "$shim/stub.o"; } || exit 1
    echo 'GROUP ( -lgcc_eh -lgcc -lc -lunwind_stub )' >"$shim/libunwind.a"
    rustflags+=" -C link-self-contained=no -L native=$musl -L native=$shim"
    for object in -nostartfiles "$musl/crt1.o" "$musl/crti.o" -lc "$musl/crtn.o"; do
        rustflags+=" -C link-arg=$object"
    done
    ;;
esac
export "CARGO_TARGET_${upper}_RUSTFLAGS=$rustflags"
unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_TARGET

messages=$(mktemp)
trap 'rm -f "$messages"' EXIT
if $tests; then
    # What `cargo test` built here does for this machine.
    place=(--target "$target" --target-dir "$target_dir/guests")
    [ "$toolchain-$target" = "rustup-$(rustc -vV | sed -n 's/^host: //p')" ] && place=(--target-dir "$target_dir")
    "${cargo[@]}" --manifest-path "$manifest" -p "$package" "${place[@]}" --message-format=json-render-diagnostics \
        "${options[@]+"${options[@]}"}" >"$messages" || exit 1
    grep '"reason":"compiler-artifact"' "$messages" | grep '"test":true}' |
        sed -n 's/.*"target":{[^}]*"name":"\([^"]*\)".*"executable":"\([^"]*\)".*/\1 \2/p' | grep . || missing "cargo named no test that it built"
    exit
fi
"${cargo[@]}" --manifest-path "$manifest" -p "$package" --target "$target" --target-dir "$target_dir" --profile "$profile" \
    --message-format=json-render-diagnostics "${options[@]+"${options[@]}"}" >"$messages" || exit 1

# The last artifact of the package is its program, else its library.
id=$(grep '"reason":"compiler-artifact"' "$messages" | grep -E "\"package_id\":\"path[+][^\"]*(/|#)${package}[@#\"]" | tail -n 1)
[ -n "$id" ] || id=$(grep '"reason":"compiler-artifact"' "$messages" | grep '"package_id":"path+' | tail -n 1)
built=$(sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' <<<"$id")
[ -n "$built" ] || built=$(sed -n 's/.*"filenames":\["\([^"]*\)".*/\1/p' <<<"$id")
[ -e "$built" ] || missing "cargo named no file that it built"
echo "build.sh: $target, $toolchain toolchain, profile $profile, $(stat -c %s "$built") bytes" >&2
echo "$built"
