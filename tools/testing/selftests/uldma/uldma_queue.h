/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The operations of descriptors, as functions; each posts one and returns its
 * ticket, and does not ring.
 */
#ifndef __SELFTEST_ULDMA_QUEUE_H
#define __SELFTEST_ULDMA_QUEUE_H

#include "uldma_method.h"

/* A copy from the source to the destination of a party. */
static inline struct uldma_descriptor copy_of(const struct party *p,
					      size_t dst_at, size_t src_at,
					      __u64 bytes)
{
	return (struct uldma_descriptor){
		.op = ULDMA_OP_COPY,
		.src = p->s.index,
		.dst = p->d.index,
		.src_offset = src_at,
		.dst_offset = dst_at,
		.length = bytes,
	};
}

static inline struct uldma_descriptor fetch_add_of(const struct region *r,
						   size_t at, __u64 operand)
{
	return (struct uldma_descriptor){
		.op = ULDMA_OP_FETCH_ADD,
		.dst = r->index,
		.dst_offset = at,
		.length = 8,
		.operand = operand,
	};
}

static inline struct uldma_descriptor compare_swap_of(const struct region *r,
						      size_t at, __u64 compare,
						      __u64 operand)
{
	return (struct uldma_descriptor){
		.op = ULDMA_OP_COMPARE_SWAP,
		.dst = r->index,
		.dst_offset = at,
		.length = 8,
		.operand = operand,
		.compare = compare,
	};
}

static inline struct uldma_descriptor nop_of(__u32 flags)
{
	return (struct uldma_descriptor){
		.op = ULDMA_OP_NOP,
		.flags = flags,
	};
}

/* Posts, rings and waits: the status; and what the record says it moved. */
static inline int queue_do(struct context *c, struct uldma_descriptor d,
			   __u64 *bytes)
{
	__s64 ticket = queue_post(c, &d);
	int ret;

	if (ticket < 0)
		return -ETIMEDOUT;
	queue_ring(c);
	ret = status_of(c, ticket);
	if (bytes)
		*bytes = status_record(c, ticket).bytes;
	return ret;
}

/*
 * Waits until the device polls the queue no more. The device sets the flag and
 * polls once again, which may still find what is posted in between. It answers
 * a load of a counter after that poll.
 */
static inline int queue_sleeps(const struct party *p)
{
	struct timespec now, limit;

	clock_gettime(CLOCK_MONOTONIC, &limit);
	limit.tv_sec += PATIENCE / SECOND;
	while (!READ_ONCE(p->c.status->wakeup)) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec > limit.tv_sec)
			return -ETIMEDOUT;
		sched_yield();
	}
	context_stats(p->fd);
	return 0;
}

#endif /* __SELFTEST_ULDMA_QUEUE_H */
