# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Work beside other work. What was begun ends with this shell at the latest, and
# with all that it has started.

declare -A BESIDE=()

# beside NAME CMD...: begin CMD, which fails for itself and says why.
beside() {
	local name=$1
	shift
	# With job control a process group of its own, which can be ended as one. Locks stay here.
	set -m
	"$@" </dev/null 9>&- &
	set +m
	BESIDE[$name]=$!
	trap beside_end EXIT
}

# beside_wait NAME: wait for its end; its failure is that of this shell.
beside_wait() {
	local pid=${BESIDE[$1]:-}
	[ -n "$pid" ] || return 0
	unset "BESIDE[$1]"
	wait "$pid" || exit 1
}

beside_wait_all() {
	local name
	for name in "${!BESIDE[@]}"; do
		beside_wait "$name"
	done
}

# A shell loses a SIGTERM that comes between its fork and the exec of the command. SIGKILL is not lost.
beside_end() {
	local pid
	for pid in "${BESIDE[@]}"; do
		kill -KILL -- "-$pid" 2>/dev/null || true
	done
}
