#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# A shell script with two nodes: node a sends a file to node b by a connection.
# The first of the two scripts boots the pair, the other joins it, and the pair
# ends with the last of them. To be run from the top of the tree:
#
#	make build && samples/uldma/two-nodes.sh

set -eu

# Runs a script from standard input on a node; its output and its exit status are the script's.
shell=${NODE_SHELL:-scripts/shell}
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

$shell b >"$work/received" <<'EOF' &
uldma --timeout 120 listen 7 | sha256sum
EOF
receiver=$!

$shell a >"$work/sent" <<'EOF'
head -c 10000000 /dev/urandom >/tmp/file
uldma --timeout 120 connect 1 7 --wait </tmp/file && sha256sum </tmp/file
EOF

wait "$receiver"
cmp "$work/sent" "$work/received"
echo "the file has arrived unchanged"
