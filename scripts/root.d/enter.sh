# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Run a command inside the root, in mount and process namespaces of its own: the
# root is read-only, the repository and the cache are at their own paths, and
# whatever the command started dies with it.

# in_root NEW CMD...: the bare root with the directory of a stage in the making, which CMD sees under
# its final name: compilers and Python write absolute paths down.
in_root() {
	local new=$1 final
	final=$CACHE/${new##*/.new-}
	shift
	(bwrap_root --bind "$new" "$final" --chdir "$final" -- "$@")
}

# bwrap_root ARGS...: become bwrap, so that ending this process ends its contents.
bwrap_root() {
	local root args=() item
	root=$(stage_dir root)
	args+=(--die-with-parent --unshare-pid --unshare-ipc --tmpfs /)
	for item in "$root"/*; do
		if [ -L "$item" ]; then
			args+=(--symlink "$(readlink "$item")" "/${item##*/}")
		fi
	done
	args+=(
		--ro-bind "$root/usr" /usr
		--ro-bind "$root/etc" /etc
		--ro-bind "$root/var" /var
		--dev-bind /dev /dev
		--proc /proc
		--ro-bind-try /sys /sys
		--tmpfs /tmp
		--tmpfs /run
		--dir /root
		--ro-bind-try /etc/resolv.conf /etc/resolv.conf
		--ro-bind-try /etc/hosts /etc/hosts
		--ro-bind-try /etc/ssl/certs/ca-certificates.crt
		/etc/ssl/certs/ca-certificates.crt
		--clearenv
		--setenv PATH /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
		--setenv HOME /root
		--setenv LANG C.UTF-8
		--setenv LC_ALL C.UTF-8
	)
	for item in TERM COLUMNS LINES NO_COLOR CI ULDMA_ACCEL \
		http_proxy https_proxy no_proxy; do
		[ -z "${!item:-}" ] || args+=(--setenv "$item" "${!item}")
	done
	exec bwrap "${args[@]}" "$@"
}

# enter [--debug|--kunit|--no-kernel] [--rdma] [--network] [--bind PATH | --bind-rw PATH]... CMD...
enter() {
	local args=() linked=() kernel pytools gitdir item value
	kernel=$(stage_dir kernel)
	while :; do
		case ${1:-} in
		--debug)
			kernel=$(stage_dir debug)
			args+=(--setenv ULDMA_KERNEL debug)
			;;
		--kunit)
			kernel=$(stage_dir kunit)
			mkdir -p "$REPO/build/$SERIES/kunit"
			linked=(
				--ro-bind "$REPO" "$kernel/src/uldma"
				--bind "$REPO/build/$SERIES/kunit" "$kernel/build"
			)
			;;
		--rdma)
			! stage_ready rdma || args+=(--setenv ULDMA_RDMA "$(stage_dir rdma)")
			;;
		--network)
			args+=(--setenv ULDMA_NETWORK "$(stage_dir network)")
			;;
		--no-kernel)
			kernel=
			;;
		*)
			break
			;;
		esac
		shift
	done
	pytools=$(stage_dir pytools)
	mkdir -p "$REPO/build/run" "$CACHE/cargo"
	args+=(--bind "$CACHE" "$CACHE")
	if [ -n "$kernel" ]; then
		args+=(--ro-bind "$kernel" "$kernel")
		while IFS='=' read -r item value; do
			args+=(--setenv "$item" "$value")
		done <"$kernel/env"
	fi
	args+=(
		--bind "$REPO" "$REPO"
		"${linked[@]}"
		# A short path: the names of sockets may have 107 characters.
		--bind "$REPO/build/run" /run/uldma
		--setenv PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:$pytools/bin"
		--setenv CARGO_HOME "$CACHE/cargo"
		--setenv CARGO_HTTP_CAINFO /etc/ssl/certs/ca-certificates.crt
		--setenv ULDMA_REPO "$REPO"
		--setenv ULDMA_CACHE "$CACHE"
		--setenv PYTHONDONTWRITEBYTECODE 1
		--setenv GIT_CONFIG_COUNT 1
		--setenv GIT_CONFIG_KEY_0 safe.directory
		--setenv GIT_CONFIG_VALUE_0 '*'
	)
	# In a git work tree the repository's data is elsewhere.
	if gitdir=$(git -C "$REPO" rev-parse --path-format=absolute --git-common-dir 2>/dev/null); then
		args+=(--bind-try "$gitdir" "$gitdir")
	fi
	while [ "${1:-}" = --bind ] || [ "${1:-}" = --bind-rw ]; do
		item=$(realpath -e "$2") || die "no such file: $2"
		case $1 in
		--bind) args+=(--ro-bind "$item" "$item") ;;
		--bind-rw) args+=(--bind "$item" "$item") ;;
		esac
		shift 2
	done
	bwrap_root "${args[@]}" --chdir "$REPO" -- "$@"
}
