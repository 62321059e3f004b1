# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Stages of the cache. A stage is a directory NAME-KEY, KEY being a hash of what
# defines it. It is built under a temporary name and renamed when complete, so
# what is there is whole; one lock keeps two runs apart.

# A key covers the stage's own definition (but for comments) and the key of what it is built on.
stage_key() {
	case $1 in
	root)
		printf '%s\n' "$SUITE" "$BACKPORTS" "${ROOT_PACKAGES[@]}" |
			cat - "$ROOT_D/debian.sh"
		;;
	kernel)
		printf '%s\n' "$(stage_key root)" "$KERNEL_SERIES" "$KERNEL_FLAVOUR" |
			cat - "$ROOT_D/kernel.sh"
		;;
	debug)
		# Patch releases have keys of their own; without a kernel there is none to keep.
		printf '%s\n' "$(stage_key kernel)" |
			cat - "$DEBUG_CONFIG" "$ROOT_D/debug.sh" "$(stage_dir kernel)/env" 2>/dev/null || true
		;;
	kunit)
		printf '%s\n' "$(stage_key kernel)" |
			cat - "${KUNIT_CONFIGS[@]/#/$REPO/}" "$ROOT_D/kunit.sh" \
				"$(stage_dir kernel)/env" 2>/dev/null || true
		;;
	rdma)
		printf '%s\n' "$(stage_key kernel)" "${RDMA_PACKAGES[@]}" |
			cat - "$ROOT_D/rdma.sh" "$(stage_dir kernel)/env" 2>/dev/null || true
		;;
	pytools)
		printf '%s\n' "$(stage_key root)" "${PYTOOLS[@]}" |
			cat - "$ROOT_D/pytools.sh"
		;;
	esac | sed '/^[[:space:]]*#/d' | sha256sum | cut -c1-12
}

declare -A STAGE_DIRS=()

stage_dir() {
	if [ -z "${STAGE_DIRS[$1]:-}" ]; then
		STAGE_DIRS[$1]=$CACHE/$1-$(stage_key "$1")
	fi
	echo "${STAGE_DIRS[$1]}"
}

stage_ready() {
	[ -d "$(stage_dir "$1")" ]
}

# Trees unpacked from packages may hold directories that their owner cannot write.
stage_remove() {
	local dir
	for dir in "$@"; do
		[ -e "$dir" ] || continue
		chmod -R u+w "$dir" 2>/dev/null || true
		rm -rf "$dir"
	done
}

stage_begin() {
	mkdir -p "$CACHE"
	exec 9>"$CACHE/lock"
	if ! flock -n 9; then
		say "another run is preparing the root; waiting for it ..."
		flock 9
	fi
	# With the lock held, a temporary directory is what an interrupted run left.
	stage_remove "$CACHE"/.new-*
}

stage_end() {
	exec 9>&-
}

# stage NAME BUILDER: BUILDER gets a directory to fill.
stage() {
	local name=$1 builder=$2 final new
	final=$(stage_dir "$name")
	[ ! -d "$final" ] || return 0
	new=$CACHE/.new-${final##*/}
	mkdir "$new"
	"$builder" "$new" 9>&-
	mv "$new" "$final"
}

stage_prune() {
	local name dir
	for name in root kernel debug kunit rdma pytools; do
		for dir in "$CACHE/$name"-*; do
			[ "$dir" = "$(stage_dir "$name")" ] || [ ! -d "$dir" ] ||
				quietly "delete ${dir##*/}" stage_remove "$dir"
		done
	done
}
