/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The messages between the two halves of uldma_peer, through a segment of
 * each node's window: "run" writes a command into the segment of "serve",
 * "serve" writes the result into the segment of "run". Each rings after it has
 * written the sequence number, which comes last.
 */
#ifndef __SELFTEST_ULDMA_PEER_H
#define __SELFTEST_ULDMA_PEER_H

#include "uldma_process.h"

/* Name of the segment that takes commands. */
#define PEER_CONTROL 0x6c6f72746e6f63ULL
/* Objects that the serving side can hold at a time. */
#define PEER_SLOTS 8
/* Bytes of a page in front of an exported range, so that it is not aligned. */
#define PEER_LEAD 100
/* Value of the bytes around an exported range. */
#define PEER_GUARD 0x5a

enum peer_verb {
	PEER_HELLO = 1,		/* name of the segment for results */
	PEER_QUIT,
	PEER_NODE,		/* number of the serving node */
	PEER_EXPORT,		/* slot, name, length, access */
	PEER_EXPORT_PAGES,	/* the same, from the start of a page */
	PEER_EXPORT_CHILD,	/* the same, by a process of its own */
	PEER_EXPORT_AGAIN,	/* slot, name, access */
	PEER_REGISTER,		/* slot: the range, by the serving process, too */
	PEER_UNEXPORT,		/* slot */
	PEER_UNREGISTER,	/* slot */
	PEER_CLOSE,		/* slot: close its file or kill its process */
	PEER_UNMAP_PAGES,	/* slot, offset, length: what the range keeps */
	PEER_WORD,		/* slot, number: eight bytes of the range */
	PEER_FILL,		/* slot, seed */
	PEER_CHECK,		/* slot, offset, length, seed: like pattern_check */
	PEER_CHECK_GUARD,	/* slot: 0, or 1 for bytes that have changed */
	PEER_SEGMENT,		/* slot, name, length */
	PEER_SEGMENT_ATTACH,	/* slot, name */
	PEER_SEGMENT_FILL,	/* slot, seed */
	PEER_SEGMENT_CHECK,	/* slot, seed */
	PEER_SEGMENT_RING,	/* slot */
	PEER_SEGMENT_WAIT,	/* slot: for the doorbell */
	PEER_ENDPOINT,		/* slot, length: memory, queue, endpoint; its index */
	PEER_ENDPOINT_NAME,	/* slot: generation */
	PEER_ENDPOINT_CONNECT,	/* slot, node, index, generation */
	PEER_ENDPOINT_POST,	/* slot, offset, length: number */
	PEER_ENDPOINT_RING,	/* slot: wake the device */
	PEER_ENDPOINT_WAIT,	/* slot, count: how many */
	PEER_ENDPOINT_BYTES,	/* slot, number: of a reception */
	PEER_ENDPOINT_STATUS,	/* slot, number: of a reception, flags << 32 */
	PEER_ENDPOINT_SEND,	/* slot, offset, length: how it ended */
	PEER_ENDPOINT_DESTROY,	/* slot */
	PEER_OWN = 1000,	/* from here on: those of one program */
};

struct peer_command {
	__u64 verb;
	__u64 args[4];
	__u64 sequence;
};

struct peer_result {
	__s64 value;
	__u64 sequence;
};

/* "serve": answers until it has to quit or the peer has ended. */
int peer_serve(void);

/* The same, also for commands from PEER_OWN on. */
int peer_serve_with(__s64 (*execute_own)(const struct peer_command *command));

#endif /* __SELFTEST_ULDMA_PEER_H */
