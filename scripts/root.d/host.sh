# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What the host itself must have: only what makes and enters the root.

# Debian keeps its keys as .gpg (12) or .pgp (13).
host_keyring() {
	local key
	for key in /usr/share/keyrings/debian-archive-keyring.{pgp,gpg}; do
		if [ -e "$key" ]; then
			echo "$key"
			return
		fi
	done
}

host_tools() {
	local missing=()
	command -v mmdebstrap >/dev/null || missing+=(mmdebstrap)
	command -v bwrap >/dev/null || missing+=(bubblewrap)
	command -v flock >/dev/null || missing+=(util-linux)
	# Keyrings older than $SUITE cannot check its signature.
	compgen -G "/usr/share/keyrings/debian-archive-$SUITE-*" >/dev/null ||
		missing+=(debian-archive-keyring)
	if [ "$(id -u)" != 0 ]; then
		command -v newuidmap >/dev/null || missing+=(uidmap)
	fi
	[ ${#missing[@]} -gt 0 ] || return 0

	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		quietly "host tools (${missing[*]})" host_install "${missing[@]}"
	else
		die "please install: ${missing[*]} (Debian: apt install ${missing[*]})"
	fi
}

host_install() {
	export DEBIAN_FRONTEND=noninteractive
	apt-get update
	apt-get install -y --no-install-recommends "$@"
}
