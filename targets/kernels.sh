# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
#
# Debian kernels for the boot tests: `. kernels.sh; kernel_image KERNEL` prints the path of a bootable image,
# `kernel_modules KERNEL NAME...` the paths of modules of the same build, `kernel_config KERNEL` that of its configuration, and
# `kernel_btf KERNEL` that of BTF made of its DWARF, for kernels that have none.
#
# KERNEL is ARCH-SERIES: armhf, arm64, amd64, riscv64 or s390x, and 5.10, 6.1, 6.12 or 7.2 (what Debian's bullseye, bookworm,
# trixie and sid ship); or arm64-16k-6.12 and arm64-16k-7.2, whose pages have 16 KiB. The package is fetched once, with an apt
# configuration of its own (nothing of the host's apt is read or changed, and the archive's signatures are checked), and only its
# kernel is kept, under $CORELO_CACHE, and the modules that were asked for, beside it.

CORELO_CACHE=${CORELO_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/corelo}
CORELO_MIRROR=${CORELO_MIRROR:-http://deb.debian.org/debian}
CORELO_SECURITY_MIRROR=${CORELO_SECURITY_MIRROR:-http://deb.debian.org/debian-security}

kernel_fail() {
    echo "kernels.sh: $*" >&2
    return 1
}

kernel_arch() { echo "${1%%-*}"; }

kernel_series() { echo "${1##*-}"; }

kernel_suite() {
    case $1 in
    5.10) echo bullseye ;;
    6.1) echo bookworm ;;
    6.12) echo trixie ;;
    7.*) echo sid ;;
    *) kernel_fail "no Debian suite is known for series '$1' (5.10, 6.1, 6.12, 7.2)" ;;
    esac
}

# The version whose BTF the test corpus holds; taken while the archive has it, so that a test is repeatable.
kernel_preferred() {
    case $1 in
    5.10) echo 5.10.0-32 ;;
    6.1) echo 6.1.0-50 ;;
    6.12) echo 6.12.117+deb13 ;;
    7.2) echo 7.2.13+deb14 ;;
    esac
}

kernel_flavour() {
    case ${1%-*} in
    armhf) echo armmp ;;
    amd64 | arm64 | arm64-16k | riscv64 | s390x) echo "${1%-*}" ;;
    *) kernel_fail "no kernel flavour is known for '${1%-*}' (armhf, arm64, arm64-16k, amd64, riscv64, s390x)" ;;
    esac
}

# kernel_apt ARCH SUITE COMMAND...: apt as if the machine were a bare ARCH with SUITE.
kernel_apt() {
    local arch=$1 suite=$2 root config
    shift 2
    root=$CORELO_CACHE/apt/$arch-$suite
    config=$root/apt.conf
    if [ ! -e "$config" ]; then
        mkdir -p "$root/etc" "$root/state/lists/partial" "$root/cache/archives/partial"
        case $suite in
        *-security) echo "deb $CORELO_SECURITY_MIRROR $suite main" ;;
        *) echo "deb $CORELO_MIRROR $suite main" ;;
        esac >"$root/etc/sources.list"
        # Valid-Until is not looked at: a mirror's snapshot of sid may be weeks old and is still signed.
        cat >"$config" <<CONF
Dir::Etc "$root/etc";
Dir::Etc::SourceList "$root/etc/sources.list";
Dir::Etc::SourceParts "-";
Dir::Etc::Parts "/dev/null";
Dir::Etc::Main "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::Etc::Trusted "/usr/share/keyrings/debian-archive-keyring.gpg";
Dir::Etc::TrustedParts "/etc/apt/trusted.gpg.d";
Dir::State "$root/state";
Dir::State::status "/dev/null";
Dir::Cache "$root/cache";
APT::Architecture "$arch";
APT::Architectures { "$arch"; };
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Check-Valid-Until "false";
Acquire::Retries "3";
CONF
    fi
    APT_CONFIG=$config "$@"
}

# kernel_package KERNEL SUITE: the package there: the preferred version, else the newest.
kernel_package() {
    local kernel=$1 suite=$2 arch series flavour preferred names wanted
    arch=$(kernel_arch "$kernel") series=$(kernel_series "$kernel")
    flavour=$(kernel_flavour "$kernel") || return
    preferred=$(kernel_preferred "$series")
    kernel_apt "$arch" "$suite" apt-get -qq update >&2 || return
    names=$(kernel_apt "$arch" "$suite" apt-cache pkgnames "linux-image-$series" |
        grep -E "^linux-image-${series//./\\.}[.][0-9][^-]*(-[0-9][0-9a-z.]*)?-$flavour(-unsigned)?$" | sort -V)
    for wanted in "linux-image-$preferred-$flavour" "linux-image-$preferred-$flavour-unsigned"; do
        if grep -qxF "$wanted" <<<"$names"; then
            echo "$wanted"
            return
        fi
    done
    wanted=$(tail -n 1 <<<"$names")
    [ -n "$wanted" ] || return 1
    echo "kernels.sh: $suite no longer has $preferred for ${kernel%-*}, taking $wanted" >&2
    echo "$wanted"
}

# kernel_image KERNEL: the path of the image; it lies in a directory named after its package.
kernel_image() {
    local kernel=$1 arch series suite home package from part work image
    arch=$(kernel_arch "$kernel") series=$(kernel_series "$kernel")
    suite=$(kernel_suite "$series") || return
    kernel_flavour "$kernel" >/dev/null || return
    home=$CORELO_CACHE/kernels/$kernel
    image=$(find "$home" -name 'vmlinu[xz]*' -size +1M 2>/dev/null | sort -V | tail -n 1)
    if [ -n "$image" ]; then
        echo "$image"
        return
    fi
    for from in "$suite" "$suite-security"; do
        [ "$from" = sid-security ] && continue
        package=$(kernel_package "$kernel" "$from") && break
        package=
    done
    [ -n "$package" ] || kernel_fail "no linux-image package for $kernel in $suite" || return
    echo "kernels.sh: $kernel is $package ($from)" >&2
    work=$(mktemp -d "$CORELO_CACHE/unpack.XXXXXX") || return
    # Since 7.x linux-image-* is empty and the image is in linux-binary-*.
    for part in "$package" "${package/#linux-image-/linux-binary-}"; do
        (cd "$work" && kernel_apt "$arch" "$from" apt-get -qq download "$part" >&2) || break
        dpkg-deb --fsys-tarfile "$work/${part%%_*}"_*.deb |
            tar -x -C "$work" --wildcards --no-anchored 'vmlinu[xz]*' 'config-*' config 2>/dev/null
        image=$(find "$work" -type f -name 'vmlinu[xz]*' -size +1M | head -n 1)
        [ -z "$image" ] || break
    done
    if [ -z "$image" ]; then
        rm -rf "$work"
        kernel_fail "no kernel image inside $package"
        return
    fi
    mkdir -p "$home/$package"
    mv "$image" "$home/$package/"
    part=$(find "$work" -type f '(' -name 'config-*' -o -name config ')' -size +60k | head -n 1)
    [ -z "$part" ] || mv "$part" "$home/$package/config"
    rm -rf "$work"
    echo "$home/$package/$(basename "$image")"
}

# kernel_download KERNEL DIRECTORY PACKAGE...: into the directory, whichever of these packages the archive has first.
kernel_download() {
    local kernel=$1 into=$2 arch series suite from part
    shift 2
    arch=$(kernel_arch "$kernel") series=$(kernel_series "$kernel")
    suite=$(kernel_suite "$series") || return
    for part; do
        for from in "$suite" "$suite-security"; do
            [ "$from" = sid-security ] && continue
            kernel_apt "$arch" "$from" apt-get -qq update >&2 || continue
            kernel_apt "$arch" "$from" apt-cache show "$part" >/dev/null 2>&1 || continue
            (cd "$into" && kernel_apt "$arch" "$from" apt-get -qq download "$part" >&2) && return
        done
    done
    kernel_fail "none of $* is in $suite"
}

# kernel_btf KERNEL: the path of its BTF as pahole makes it of the DWARF in Debian's -dbg package: 620 MB to fetch and 1.5 GB of
# room for a while, once.
kernel_btf() {
    local image package btf work debug
    image=$(kernel_image "$1") || return
    package=$(basename "$(dirname "$image")") btf=$(dirname "$image")/kernel.btf
    if [ ! -s "$btf" ]; then
        command -v pahole >/dev/null || kernel_fail "pahole is not installed (Debian package: dwarves)" || return
        work=$(mktemp -d "$CORELO_CACHE/unpack.XXXXXX") || return
        if kernel_download "$1" "$work" "$package-dbg" &&
            dpkg-deb --fsys-tarfile "$work"/*.deb | tar -x -C "$work" --wildcards --no-anchored 'vmlinux*'; then
            debug=$(find "$work" -type f -name 'vmlinux*' -size +20M | head -n 1)
            [ -n "$debug" ] && pahole -J --btf_encode_detached="$work/btf" "$debug" >&2 && mv "$work/btf" "$btf"
        fi
        rm -rf "$work"
    fi
    [ -s "$btf" ] || kernel_fail "no BTF of $1 ($package-dbg)" || return
    echo "$btf"
}

# kernel_config KERNEL: the path of its configuration. (An image that was fetched before came without.)
kernel_config() {
    local image package config part work
    image=$(kernel_image "$1") || return
    package=$(basename "$(dirname "$image")") config=$(dirname "$image")/config
    if [ ! -s "$config" ]; then
        work=$(mktemp -d "$CORELO_CACHE/unpack.XXXXXX") || return
        # Since 7.x it is in linux-base-*.
        for part in "${package/#linux-image-/linux-base-}" "$package"; do
            rm -rf "${work:?}"/*
            kernel_download "$1" "$work" "$part" 2>/dev/null || continue
            dpkg-deb --fsys-tarfile "$work"/*.deb | tar -x -C "$work" --wildcards --no-anchored 'config-*' config 2>/dev/null
            part=$(find "$work" -type f '(' -name 'config-*' -o -name config ')' -size +60k | head -n 1)
            [ -z "$part" ] || { mv "$part" "$config" && break; }
        done
        rm -rf "$work"
    fi
    [ -s "$config" ] || kernel_fail "no configuration of $1 ($package)" || return
    echo "$config"
}

# kernel_modules KERNEL NAME...: the paths of these modules in this order, not compressed. The image says which package.
kernel_modules() {
    local kernel=$1 image package home work name missing='' found
    shift
    image=$(kernel_image "$kernel") || return
    package=$(basename "$(dirname "$image")")
    home=$(dirname "$image")/modules
    for name; do
        [ -e "$home/$name.ko" ] || missing=1
    done
    if [ -n "$missing" ]; then
        mkdir -p "$home"
        work=$(mktemp -d "$CORELO_CACHE/unpack.XXXXXX") || return
        # Since 7.x the modules are in a package of their own.
        kernel_download "$kernel" "$work" "${package/#linux-image-/linux-modules-}" "$package"
        # Only these are unpacked: a package has 4,000 modules.
        dpkg-deb --fsys-tarfile "$work"/*.deb |
            tar -x -C "$work" --wildcards --no-anchored "${@/%/.ko*}" 2>/dev/null
        for name; do
            found=$(find "$work" -type f -name "$name.ko*" | head -n 1)
            case $found in
            *.ko) cp "$found" "$home/$name.ko" ;;
            *.xz) xz -dkc "$found" >"$home/$name.ko" ;;
            *.zst) zstd -qdf "$found" -o "$home/$name.ko" ;;
            esac
        done
        rm -rf "$work"
    fi
    for name; do
        [ -s "$home/$name.ko" ] || kernel_fail "no module $name for $kernel ($package)" || return
        echo "$home/$name.ko"
    done
}
