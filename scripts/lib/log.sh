# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Progress for people; the output of quiet tools goes to a log in LOGS and is
# shown only where they fail.

say() {
	printf '%s\n' "uldma: $*"
}

die() {
	printf '%s\n' "uldma: error: $*" >&2
	exit 1
}

# quietly WHAT CMD...: run CMD, say what it does and how long it took.
quietly() {
	local what=$1 began=$SECONDS log rc
	shift
	log=$LOGS/$(tr -cs '[:alnum:].\n' - <<<"$what").log
	mkdir -p "$LOGS"
	say "$what ..."
	# A condition would switch errexit off inside CMD.
	set +e
	(
		set -e
		"$@"
	) >"$log" 2>&1
	rc=$?
	set -e
	if [ $rc != 0 ]; then
		tail -n 40 "$log" >&2
		die "$what failed; the whole log is $log"
	fi
	say "$what: $((SECONDS - began)) s"
}
