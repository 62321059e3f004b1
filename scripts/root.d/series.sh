# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2034
#
# Which series of the kernel is used: the one that KERNEL_SERIES picks; without it the
# newest that uldma is tested with and the archive offers; where it offers none of
# these, the newest of all. What was chosen without KERNEL_SERIES is kept in the cache,
# so that only the first run asks the archive.

# Set by series_recall() or series_ask(); the latter also sets KREL and KERNEL_VERSION.
SERIES=

# A choice is good for one list of tested series. What the archive says is for kernel_fetch().
SERIES_CHOSEN=${KERNEL_SERIES_TESTED[*]}
SERIES_CHOSEN=$CACHE/chosen-of-${SERIES_CHOSEN// /-}
FETCHED=$CACHE/.new-fetched

# By the cache alone. The kernel of this series need not be there.
series_recall() {
	SERIES=$KERNEL_SERIES
	[ -z "$SERIES" ] || return 0
	if read -r SERIES 2>/dev/null <"$SERIES_CHOSEN" && stage_ready kernel; then
		return
	fi
	SERIES=${KERNEL_SERIES_TESTED[0]}
}

# By the archive.
series_ask() {
	local choice
	mkdir "$FETCHED"
	quietly "package lists for the kernel" kernel_apt "$FETCHED" apt-get update
	choice=$(series_packages | series_choose)
	read -r SERIES KREL KERNEL_VERSION <<<"$choice"
	echo "$choice" >"$FETCHED/choice"
	[ -n "$KERNEL_SERIES" ] || echo "$SERIES" >"$SERIES_CHOSEN"
}

# The archive's packages of kernels: a name per line, then sources with each of their versions.
series_packages() {
	local names sources
	names=$(kernel_apt "$FETCHED" apt-cache pkgnames linux- |
		{ grep -vE -- "${ULDMA_HIDE_KERNELS:-^$}" || true; })
	printf '%s\n' "$names"
	mapfile -t sources < <(grep '^linux-source-[0-9.]*$' <<<"$names")
	[ ${#sources[@]} = 0 ] ||
		kernel_apt "$FETCHED" apt-cache madison "${sources[@]}" | awk '{ print $1, $3 }'
}

# Choose from packages on standard input: print "SERIES RELEASE VERSION", or say why there is none.
series_choose() {
	local packages newest wanted offered=() series kernel
	local -A kernels=()
	packages=$(cat)
	newest=$(series_releases <<<"$packages" | head -n 1)
	while read -r series kernel; do
		[ -z "${kernels[$series]:-}" ] || continue
		kernels[$series]=$kernel
		offered+=("$series")
	done < <(series_complete <<<"$packages")

	wanted=("${KERNEL_SERIES_TESTED[@]}" "${offered[@]:0:1}")
	[ -z "$KERNEL_SERIES" ] || wanted=("$KERNEL_SERIES")
	for series in "${wanted[@]}"; do
		[ -n "${kernels[$series]:-}" ] || continue
		series_note_choice "$series" "$newest" "${offered[@]}" >&2
		echo "$series ${kernels[$series]}"
		return
	done
	die "$BACKPORTS offers no complete kernel${KERNEL_SERIES:+ of series $KERNEL_SERIES}." \
		"Complete series: ${offered[*]:-none}; newest image: ${newest:-none};" \
		"series that uldma is tested with: ${KERNEL_SERIES_TESTED[*]}"
}

# Of packages on standard input, the kernels of which everything is there: image, modules, headers and
# the source of the same version. Prints "SERIES RELEASE VERSION", the newest first. Patch releases
# move and parts arrive one by one.
series_complete() {
	local name version release series
	local -A versions=()
	while read -r name version; do
		[ -z "$name" ] || versions[$name]+=" $version"
	done
	while read -r release; do
		[ -n "${versions[linux-binary-$release]:-}" ] || continue
		[ -n "${versions[linux-modules-$release]:-}" ] || continue
		[ -n "${versions[linux-headers-$release]:-}" ] || continue
		series=${release%%+*}
		series=${series%.*}
		for version in ${versions[linux-source-$series]:-}; do
			[ "${version%-*}" != "${release%%+*}" ] || echo "$series $release $version"
		done
	done < <(printf '%s\n' "${!versions[@]}" | series_releases)
}

# Releases that have an image, the newest first. Older series call the package linux-image.
series_releases() {
	sed -nE "s/^linux-(binary|binary-unsigned|image)-([0-9]+\.[0-9]+\.[0-9]+\+[^-]*-$KERNEL_FLAVOUR)\$/\2/p" |
		sort -Vru
}

# series_note_choice CHOSEN NEWEST-RELEASE OFFERED...: what a person has to know about it.
series_note_choice() {
	local chosen=$1 newest=$2 newer=${2%%+*}
	shift 2
	newer=${newer%.*}
	if ! series_tested "$chosen"; then
		[ -n "$KERNEL_SERIES" ] ||
			say "note: $BACKPORTS offers no kernel that uldma is tested with; the newest is taken"
		series_note_untested "$chosen"
		say "note: KERNEL_SERIES= picks another (offered: $*), \"scripts/root refresh\" looks again," \
			"and Documentation/uldma/CONTRIBUTING.rst tells how to add a series"
	elif [ -n "$KERNEL_SERIES" ] || [ "$newer" = "$chosen" ]; then
		return 0
	elif series_tested "$newer"; then
		say "note: $BACKPORTS also has $newest, but not all of it"
	else
		say "note: $BACKPORTS also has $newest; series $newer is newer and untested"
	fi
}

series_tested() {
	[[ " ${KERNEL_SERIES_TESTED[*]} " = *" $1 "* ]]
}

series_note_untested() {
	series_tested "$1" ||
		say "note: uldma is not tested with series $1, only with ${KERNEL_SERIES_TESTED[*]}:" \
			"it may not build, or fail"
}

# Choose anew, and forget the kernel when the archive has a newer one of that series.
series_refresh() {
	local have
	series_ask
	have=$(sed -n 's/^KREL=//p' "$(stage_dir kernel)/env" 2>/dev/null || true)
	if [ "$have" = "$KREL" ]; then
		say "kernel $have is the newest of series $SERIES"
		stage_remove "$FETCHED"
	else
		[ -z "$have" ] || say "kernel $KREL replaces $have"
		stage_remove "$(stage_dir kernel)"
		kernel_bring
	fi
}

# The tested series that this machine can have, the newest first: the cache has their kernel, or the
# archive offers it.
series_available() {
	local complete='' asked=''
	for SERIES in "${KERNEL_SERIES_TESTED[@]}"; do
		if ! stage_ready kernel; then
			[ -n "$asked" ] || complete=$(series_list)
			asked=yes
			grep -q "^$SERIES " <<<"$complete" || continue
		fi
		echo "$SERIES"
	done
}

# As series_complete(), of the archive.
series_list() {
	{
		host_tools
		stage_begin
		mkdir "$FETCHED"
		quietly "package lists for the kernel" kernel_apt "$FETCHED" apt-get update
	} >&2
	series_packages | series_complete
	stage_remove "$FETCHED"
	stage_end
}

# The series of which the cache keeps stages: all that this tree may use.
series_kept() {
	printf '%s\n' "${KERNEL_SERIES_TESTED[@]}" "$KERNEL_SERIES"
	cat "$SERIES_CHOSEN" 2>/dev/null || true
}
