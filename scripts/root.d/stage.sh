# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Stages of the cache. A stage is a directory NAME-KEY, KEY being a hash of what
# defines it, or NAME-SERIES-KEY where there is one for each series of the kernel.
# It is built under a temporary name and renamed when complete, so what is there
# is whole; one lock keeps two runs apart.

STAGES=(root kernel debug kunit rdma network pytools)

# A key covers the stage's own definition (but for comments) and the key of what it is built on.
stage_key() {
	case $1 in
	root)
		printf '%s\n' "$SUITE" "$BACKPORTS" "${ROOT_PACKAGES[@]}" |
			cat - "$ROOT_D/debian.sh"
		;;
	kernel)
		printf '%s\n' "$(stage_key root)" "$SERIES" "$KERNEL_FLAVOUR" |
			cat - "$ROOT_D/kernel.sh"
		;;
	debug)
		# Patch releases have keys of their own; without a kernel there is none to keep.
		printf '%s\n' "$(stage_key kernel)" "$(debug_fragments)" |
			cat - "$ROOT_D/debug.sh" "$(stage_dir kernel)/env" 2>/dev/null || true
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
	network)
		printf '%s\n' "$(stage_key kernel)" "${NETWORK_PACKAGES[@]}" |
			cat - "$ROOT_D/network.sh" "$(stage_dir kernel)/env" 2>/dev/null || true
		;;
	pytools)
		printf '%s\n' "$(stage_key root)" "${PYTOOLS[@]}" |
			cat - "$ROOT_D/pytools.sh"
		;;
	esac | sed '/^[[:space:]]*#/d' | sha256sum | cut -c1-12
}

declare -A STAGE_DIRS=()

# Sets STAGE_DIR; a subshell could not keep what was found.
stage_find() {
	local name=$1
	case $name in
	root | pytools) ;;
	*) name+=-$SERIES ;;
	esac
	if [ -z "${STAGE_DIRS[$name]:-}" ]; then
		STAGE_DIRS[$name]=$CACHE/$name-$(stage_key "$1")
	fi
	STAGE_DIR=${STAGE_DIRS[$name]}
}

stage_dir() {
	stage_find "$1"
	echo "$STAGE_DIR"
}

stage_ready() {
	stage_find "$1"
	[ -d "$STAGE_DIR" ]
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

# All series that this tree may use are kept.
stage_prune() {
	local SERIES name dir
	local -A kept=()
	for SERIES in $(series_kept); do
		for name in "${STAGES[@]}"; do
			kept[$(stage_dir "$name")]=1
		done
	done
	for name in "${STAGES[@]}"; do
		for dir in "$CACHE/$name"-*; do
			[ -n "${kept[$dir]:-}" ] || [ ! -d "$dir" ] ||
				quietly "delete ${dir##*/}" stage_remove "$dir"
		done
	done
	for dir in "$CACHE"/chosen-of-*; do
		[ "$dir" = "$SERIES_CHOSEN" ] || rm -f "$dir"
	done
}
