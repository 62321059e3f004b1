/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The messages between the two halves of uldma_conn_peer, over a connection
 * that "run" makes to "serve": an order, and an answer of eight bytes. Orders
 * start and end workers, processes of the serving side that have a connection
 * of their own.
 */
#ifndef __SELFTEST_ULDMA_CONN_ORDER_H
#define __SELFTEST_ULDMA_CONN_ORDER_H

#include "uldma_conn.h"

/* Where orders go. */
#define ORDER_PORT 7000
/* Where a worker listens. */
#define WORKER_PORT(_slot) (ORDER_PORT + 1 + (_slot))
#define WORKERS 8
/* More than any test waits for. */
#define ENDLESS (~0ULL >> 1)

enum order_verb {
	ORDER_QUIT = 1,
	ORDER_WORK,	/* slot, mode, total, seed, chunk, lead */
	ORDER_RESULT,	/* slot: how its work ended */
	ORDER_COPIED,	/* slot: bytes that it says were copied, after a result */
	ORDER_NAME,	/* slot: the name of its connection, after a result */
	ORDER_KILL,	/* slot */
	ORDER_STOP,	/* slot: it does nothing until it goes on */
	ORDER_GO_ON,	/* slot */
};

/**
 * enum work - what a worker does; the first two can be combined, and the last two
 * @WORK_RECEIVE: receives, and checks each byte
 * @WORK_SEND: sends
 * @WORK_ECHO: sends back what it has received, from where it was received
 * @WORK_MATCH: names an endpoint, and waits for the end of the connection
 * @WORK_LEAVE: ends that endpoint before it waits
 */
enum work {
	WORK_RECEIVE = 1,
	WORK_SEND = 2,
	WORK_ECHO = 4,
	WORK_MATCH = 8,
	WORK_LEAVE = 16,
};

struct order {
	__u64 verb;
	__u64 args[7];
};

/* "serve": executes orders until ORDER_QUIT. */
int conn_peer_serve(void);

#endif /* __SELFTEST_ULDMA_CONN_ORDER_H */
