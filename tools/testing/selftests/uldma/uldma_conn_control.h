/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The half of uldma_conn_peer that gives orders: the connection that carries
 * them, and connections to workers.
 *
 * A program includes this once.
 */
#ifndef __SELFTEST_ULDMA_CONN_CONTROL_H
#define __SELFTEST_ULDMA_CONN_CONTROL_H

#include "uldma_conn_order.h"
#include "uldma_conn_stream.h"
#include "uldma_process.h"

/* Of the bytes that the worker of slot 0 receives. */
#define SEED 100

/* The peer, as in DOC: peers. */
static inline __u32 the_peer(void)
{
	const char *number = getenv("ULDMA_PEER");

	return number ? strtoul(number, NULL, 10) + 1 : 0;
}

/**
 * struct control - the connection that orders go over
 * @fd: its open file
 * @order: what is sent
 * @answer: what comes
 */
struct control {
	int fd;
	struct order *order;
	__s64 *answer;
};

static inline int control_open(struct control *control)
{
	int ret;

	control->fd = uldma_open(0);
	control->order = buffer(page_size());
	control->answer = buffer(page_size());
	if (control->fd < 0)
		return control->fd;
	if (!control->order || !control->answer)
		return -ENOMEM;
	/* The queue of the listener may still be full of what was given up. */
	eventually((ret = conn_connect(control->fd, the_peer(), ORDER_PORT)) !=
		   -ECONNREFUSED);
	return ret;
}

#define give_order(_control, ...) \
	_give_order(_control, &(struct order){ __VA_ARGS__ })

static inline __s64 _give_order(struct control *control, const struct order *order)
{
	int ret;

	*control->order = *order;
	ret = conn_prepost(control->fd, control->answer,
			   sizeof(*control->answer)) ?:
	      conn_send_wait(control->fd, control->order,
			     sizeof(*control->order)) ?:
	      conn_recv_all(control->fd, control->answer,
			    sizeof(*control->answer));
	return ret ?: *control->answer;
}

/* A worker, and a connection to it: the file, or a negated errno. */
static inline int worker_connect(struct control *control, __u64 slot, __u64 mode,
				 __u64 total, size_t chunk, size_t lead, __u32 flags)
{
	int fd = uldma_open(0);
	int ret;

	if (fd < 0)
		return fd;
	ret = give_order(control, ORDER_WORK,
			 { slot, mode, total, SEED + slot, chunk, lead }) ?:
	      conn_connect_as(fd, the_peer(), WORKER_PORT(slot), flags);
	if (!ret)
		return fd;
	close(fd);
	return ret;
}

/* The side of a stream that is here. */
static inline struct stream here(int fd, unsigned long cmd, __u64 slot, __u64 total,
				 size_t chunk, size_t lead)
{
	return (struct stream){
		.fd = fd,
		.cmd = cmd,
		/* A worker receives bytes of its seed, and sends those of the next. */
		.seed = SEED + slot + (cmd == ULDMA_IOC_CONN_PREPOST),
		.total = total,
		.chunk = chunk,
		.lead = lead,
		.slots = 8,
	};
}

static inline struct uldma_peer_query to_peer(int fd)
{
	struct uldma_query q = query(fd);
	struct uldma_peer_query p = {
		.size = sizeof(p),
		.node = the_peer() ? the_peer() - 1 : !q.out_node,
	};

	if (uldma_ioctl(fd, ULDMA_IOC_PEER_QUERY, &p))
		memset(&p, 0xff, sizeof(p));
	return p;
}

/* Ends the serving side, unless the link to it is down. */
static inline void quit(void)
{
	struct control control = { };
	__s64 ret = control_open(&control) ?: give_order(&control, ORDER_QUIT);

	if (ret)
		fprintf(stderr, "# cannot end the serving side: %s\n", strerror(-ret));
}

#endif /* __SELFTEST_ULDMA_CONN_CONTROL_H */
