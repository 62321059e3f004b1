#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# PPP over a connection: pppd gives its bytes to `uldma listen` on one node, and to `uldma connect` on the
# other. Needs CAP_NET_ADMIN, pppd, and a kernel with CONFIG_PPP and CONFIG_PPP_ASYNC.
#
#   node 1:  ppp.sh listen PORT 10.0.7.2:10.0.7.1
#   node 0:  ppp.sh connect 1 PORT 10.0.7.1:10.0.7.2
#
# The last argument has the addresses of this node and of the other. pppd makes ppp0, and ends when the
# connection does. ULDMA_DEVICE is the number of the device.

set -eu

usage() {
	echo "usage: $0 listen PORT LOCAL:REMOTE | $0 connect NODE PORT LOCAL:REMOTE" >&2
	exit 2
}

bridge="uldma --device ${ULDMA_DEVICE:-0}"
case "${1:-} $#" in
"listen 3")
	bridge="$bridge listen $2 --once"
	addresses=$3
	;;
"connect 4")
	bridge="$bridge connect $2 $3 --wait"
	addresses=$4
	;;
*)
	usage
	;;
esac

# The connection loses no byte and is no modem: there is nothing to escape or to authenticate.
exec pppd nodetach noauth local nodefaultroute asyncmap 0 mtu 16384 mru 16384 \
	pty "$bridge" "$addresses"
