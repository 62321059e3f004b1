# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2016
#
# Stage "root": the Debian tree.

build_root() {
	quietly "Debian $SUITE with ${#ROOT_PACKAGES[@]} tools (about 1 min)" \
		debian_unpack "$1"
}

# What nothing here reads is left out: documents; of Rust's source, which has most files of all, all
# but its libraries; static libraries of clang, which has most bytes. A star is any number of
# directories, too.
DEBIAN_PATHS=(
	'exclude=/usr/share/doc/*'
	'exclude=/usr/share/man/*'
	'exclude=/usr/share/locale/*'
	'exclude=/usr/src/rustc-*'
	'include=/usr/src/rustc-*/library/*'
	'exclude=/usr/lib/llvm-*/lib/libclang[A-Z]*.a'
)

# An ordinary user's tree goes through tar rather than into a directory, so that it belongs to that
# user and not to a range of subordinate ids. Root's has /proc and more on it while it is made: none
# but its makers may see that, as the directory of an interrupted run is deleted.
debian_unpack() {
	local dir=$1
	if [ "$(id -u)" = 0 ]; then
		debian_bootstrap --format=directory "$dir" unshare --mount
		rm -rf "${dir:?}"/dev/*
	else
		debian_bootstrap --format=tar - |
			tar -x -C "$dir" --no-same-owner --exclude='./dev/*'
	fi
	# Places that enter() puts files of the host on.
	mkdir -p "$dir/etc/ssl/certs"
	rm -f "$dir/etc/resolv.conf" "$dir/etc/hosts"
	touch "$dir/etc/resolv.conf" "$dir/etc/hosts" \
		"$dir/etc/ssl/certs/ca-certificates.crt"
}

# debian_bootstrap FORMAT TARGET [WRAPPER...]. No file has to survive a power failure before all is
# there.
debian_bootstrap() {
	local include keyring format=$1 target=$2
	shift 2
	include=$(IFS=,; echo "${ROOT_PACKAGES[*]}")
	keyring=$(host_keyring)
	"$@" mmdebstrap --variant=apt "$format" --include="$include" \
		${keyring:+--keyring="$keyring"} \
		"${DEBIAN_PATHS[@]/#/--dpkgopt=path-}" \
		--dpkgopt=force-unsafe-io \
		--setup-hook='mkdir -p "$1/etc/apt/preferences.d"' \
		--setup-hook="printf 'Package: src:qemu src:seabios src:ipxe\nPin: release n=$BACKPORTS\nPin-Priority: 600\n' \
			>\"\$1/etc/apt/preferences.d/qemu\"" \
		"" "$target" "deb $MIRROR $SUITE main" "deb $MIRROR $BACKPORTS main"
}
