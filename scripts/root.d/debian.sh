# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2016
#
# Stage "root": the Debian tree.

# The tree goes through tar rather than into a directory, so that an ordinary
# user's root belongs to that user and not to a range of subordinate ids.
build_root() {
	quietly "Debian $SUITE with ${#ROOT_PACKAGES[@]} tools (about 2 min)" \
		debian_unpack "$1"
}

debian_unpack() {
	local dir=$1 include keyring
	include=$(IFS=,; echo "${ROOT_PACKAGES[*]}")
	keyring=$(host_keyring)
	mmdebstrap --variant=apt --format=tar --include="$include" \
		${keyring:+--keyring="$keyring"} \
		--dpkgopt='path-exclude=/usr/share/doc/*' \
		--dpkgopt='path-exclude=/usr/share/man/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' \
		--setup-hook='mkdir -p "$1/etc/apt/preferences.d"' \
		--setup-hook="printf 'Package: src:qemu src:seabios src:ipxe\nPin: release n=$BACKPORTS\nPin-Priority: 600\n' \
			>\"\$1/etc/apt/preferences.d/qemu\"" \
		"" - "deb $MIRROR $SUITE main" "deb $MIRROR $BACKPORTS main" |
		tar -x -C "$dir" --no-same-owner --exclude='./dev/*'
	# Places that enter() puts files of the host on.
	mkdir -p "$dir/etc/ssl/certs"
	rm -f "$dir/etc/resolv.conf" "$dir/etc/hosts"
	touch "$dir/etc/resolv.conf" "$dir/etc/hosts" \
		"$dir/etc/ssl/certs/ca-certificates.crt"
}
