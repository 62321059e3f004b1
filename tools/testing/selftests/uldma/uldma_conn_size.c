// SPDX-License-Identifier: GPL-2.0
/*
 * Arguments of the calls of connections and peers: sizes and flags, and
 * that the structures are the same for programs of 32 bits.
 */
#include <assert.h>

#include "uldma_calls.h"
#include "uldma_conn.h"

/* No listener has this port. */
#define NO_PORT 0x7fffffff
/* Of the protocol of the link. */
#define LINK_VERSION 3

enum call_id {
	PEER_QUERY,
	LISTEN,
	ACCEPT,
	CONNECT,
	DISCONNECT,
	PREPOST,
	SEND,
	RECV,
	RECYCLE,
	CONN_QUERY,
	CONN_STREAM,
	CONN_RING,
};

/* The number of the other node is filled in by main(). */
static struct uldma_call calls[] = {
	[PEER_QUERY] = {
		.cmd = ULDMA_IOC_PEER_QUERY,
		FIRST(peer_query, out_doorbell_ns),
		.asks = true,
		.args.peer_query = { SIZED(peer_query) },
	},
	[LISTEN] = {
		.cmd = ULDMA_IOC_CONN_LISTEN,
		FIRST(conn_listen, offer),
		.args.conn_listen = {
			SIZED(conn_listen),
			.port = NO_PORT,
			.backlog = 1,
		},
		.undo = ULDMA_IOC_CONN_DISCONNECT,
		.known_flags = ULDMA_LISTEN_ONCE,
	},
	[ACCEPT] = {
		.cmd = ULDMA_IOC_CONN_ACCEPT,
		.args.conn_accept = { SIZED(conn_accept), .port = NO_PORT },
		.result = -ENOENT,
	},
	[CONNECT] = {
		.cmd = ULDMA_IOC_CONN_CONNECT,
		FIRST(conn_connect, offer),
		.args.conn_connect = {
			SIZED(conn_connect),
			.port = NO_PORT,
			.timeout_ns = PATIENCE,
		},
		.result = -ECONNREFUSED,
		.peer = true,
		.known_flags = ULDMA_CONNECT_PULL,
	},
	[DISCONNECT] = {
		.cmd = ULDMA_IOC_CONN_DISCONNECT,
		.args.handle = { SIZED(handle) },
		.result = -ENOTCONN,
		.reserved_at = { offsetof(struct uldma_handle, handle) },
	},
	[PREPOST] = {
		.cmd = ULDMA_IOC_CONN_PREPOST,
		.args.conn_buffer = {
			SIZED(conn_buffer),
			.addr = 4096,
			.length = 1,
		},
		.result = -ENOTCONN,
	},
	[SEND] = {
		.cmd = ULDMA_IOC_CONN_SEND,
		.args.conn_buffer = {
			SIZED(conn_buffer),
			.addr = 4096,
			.length = 1,
		},
		.result = -ENOTCONN,
	},
	[RECV] = {
		.cmd = ULDMA_IOC_CONN_RECV,
		.known_flags = ULDMA_RANGE_SPIN,
		.args.conn_range = { SIZED(conn_range), .length = 1 },
		.result = -ENOTCONN,
	},
	[RECYCLE] = {
		.cmd = ULDMA_IOC_CONN_RECYCLE,
		.known_flags = ULDMA_RANGE_SPIN,
		.args.conn_range = { SIZED(conn_range), .length = 1 },
		.result = -ENOTCONN,
	},
	[CONN_QUERY] = {
		.cmd = ULDMA_IOC_CONN_QUERY,
		FIRST(conn_query, out_offer),
		.asks = true,
		.args.conn_query = { SIZED(conn_query) },
	},
	[CONN_STREAM] = {
		.cmd = ULDMA_IOC_CONN_STREAM,
		.known_flags = ULDMA_STREAM_MATCHED | ULDMA_STREAM_REFUSED |
			       ULDMA_STREAM_ENDED,
		.args.conn_stream = { SIZED(conn_stream) },
		.result = -ENOENT,
	},
	[CONN_RING] = {
		.cmd = ULDMA_IOC_CONN_RING,
		.known_flags = ULDMA_RING_PEER,
		.args.conn_ring = { SIZED(conn_ring) },
		.result = -ENOTCONN,
		.reserved_at = { offsetof(struct uldma_conn_ring, reserved) },
	},
};

FIXTURE_VARIANT_ADD(call, peer_query) { &calls[PEER_QUERY] };
FIXTURE_VARIANT_ADD(call, listen) { &calls[LISTEN] };
FIXTURE_VARIANT_ADD(call, accept) { &calls[ACCEPT] };
FIXTURE_VARIANT_ADD(call, connect) { &calls[CONNECT] };
FIXTURE_VARIANT_ADD(call, disconnect) { &calls[DISCONNECT] };
FIXTURE_VARIANT_ADD(call, prepost) { &calls[PREPOST] };
FIXTURE_VARIANT_ADD(call, send) { &calls[SEND] };
FIXTURE_VARIANT_ADD(call, recv) { &calls[RECV] };
FIXTURE_VARIANT_ADD(call, recycle) { &calls[RECYCLE] };
FIXTURE_VARIANT_ADD(call, conn_query) { &calls[CONN_QUERY] };
FIXTURE_VARIANT_ADD(call, conn_stream) { &calls[CONN_STREAM] };
FIXTURE_VARIANT_ADD(call, conn_ring) { &calls[CONN_RING] };

FIXTURE_VARIANT_ADD(flags, peer_query) { &calls[PEER_QUERY] };
FIXTURE_VARIANT_ADD(flags, listen) { &calls[LISTEN] };
FIXTURE_VARIANT_ADD(flags, accept) { &calls[ACCEPT] };
FIXTURE_VARIANT_ADD(flags, connect) { &calls[CONNECT] };
FIXTURE_VARIANT_ADD(flags, prepost) { &calls[PREPOST] };
FIXTURE_VARIANT_ADD(flags, send) { &calls[SEND] };
FIXTURE_VARIANT_ADD(flags, recv) { &calls[RECV] };
FIXTURE_VARIANT_ADD(flags, recycle) { &calls[RECYCLE] };
FIXTURE_VARIANT_ADD(flags, conn_query) { &calls[CONN_QUERY] };
FIXTURE_VARIANT_ADD(flags, conn_stream) { &calls[CONN_STREAM] };
FIXTURE_VARIANT_ADD(flags, conn_ring) { &calls[CONN_RING] };

/* None of these structures has a field that is reserved, but this one is. */
FIXTURE_VARIANT_ADD(reserved, disconnect) { &calls[DISCONNECT] };
FIXTURE_VARIANT_ADD(reserved, conn_ring) { &calls[CONN_RING] };

FIXTURE(peers) {
	int fd;
	struct uldma_query q;
};

FIXTURE_SETUP(peers)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->q = query(self->fd);
}

FIXTURE_TEARDOWN(peers)
{
	close(self->fd);
}

/* Bits of the handshake. */
#define FEATURES 0xfU

static int peer_query(int fd, __u32 node, struct uldma_peer_query *p)
{
	*p = (struct uldma_peer_query){ .size = sizeof(*p), .node = node };
	return uldma_ioctl(fd, ULDMA_IOC_PEER_QUERY, p);
}

/* Each node of the link but this one can be asked about. */
TEST_F(peers, query)
{
	struct uldma_peer_query p;

	for (__u32 node = 0; node < self->q.out_nodes; node++) {
		if (node == self->q.out_node) {
			EXPECT_EQ(-EINVAL, peer_query(self->fd, node, &p));
			continue;
		}
		ASSERT_EQ(0, peer_query(self->fd, node, &p));
		EXPECT_EQ(node, p.node);
		EXPECT_EQ(!!(self->q.out_peers & 1U << node), p.out_link);
		EXPECT_EQ(p.out_link ? LINK_VERSION : 0, p.out_version);
		EXPECT_EQ(0, p.out_features & ~FEATURES);
		if (!p.out_link) {
			EXPECT_EQ(0, p.out_features);
			continue;
		}
		EXPECT_LT(0, p.out_generation);
		EXPECT_LE(1, p.out_slots);
		EXPECT_LE(p.out_slots, 64);
		EXPECT_EQ(0, p.out_violations);
		EXPECT_LT(0, p.out_doorbell_ns);
	}
	EXPECT_EQ(-EINVAL, peer_query(self->fd, self->q.out_nodes, &p));
	EXPECT_EQ(-EINVAL, peer_query(self->fd, ~0U, &p));
}

/* A question that is answered costs a message each way. */
TEST_F(peers, messages)
{
	__u32 node = calls[PEER_QUERY].args.peer_query.node;
	struct uldma_peer_query before, after;

	ASSERT_EQ(0, peer_query(self->fd, node, &before));
	if (!before.out_link)
		SKIP(return, "the link is down");
	EXPECT_EQ(-ECONNREFUSED,
		  conn_connect(self->fd, node + 1, NO_PORT));
	ASSERT_EQ(0, peer_query(self->fd, node, &after));
	EXPECT_LT(before.out_sent, after.out_sent);
	EXPECT_LT(before.out_received, after.out_received);
	EXPECT_EQ(before.out_generation, after.out_generation);
}

int main(int argc, char **argv)
{
	int fd = uldma_open(0);

	if (fd >= 0) {
		calls[PEER_QUERY].args.peer_query.node = !query(fd).out_node;
		close(fd);
	}
	return uldma_main(argc, argv);
}
