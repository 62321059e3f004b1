/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Endpoints of message connections, as functions.
 */
#ifndef __SELFTEST_ULDMA_ENDPOINT_H
#define __SELFTEST_ULDMA_ENDPOINT_H

#include "uldma_queue.h"

/* The peer is waited for without a limit. */
#define NO_LIMIT (~0U)

/**
 * struct endpoint - an endpoint and its pages
 * @handle: in the open file
 * @index: of the device's table
 * @generation: of the entry
 * @ring: receive descriptors
 * @status: receptions
 * @posted: the last receive descriptor
 */
struct endpoint {
	__u32 handle;
	__u32 index;
	__u64 generation;
	struct uldma_descriptor *ring;
	struct uldma_status_page *status;
	__u64 posted;
};

static inline int endpoint_create_as(int fd, __u32 flags, __u32 timeout_ms,
				     __u64 max_message, struct endpoint *e)
{
	struct uldma_endpoint_create arg = {
		.size = sizeof(arg),
		.flags = flags,
		.timeout_ms = timeout_ms,
		.max_message = max_message,
	};
	int ret = uldma_ioctl(fd, ULDMA_IOC_ENDPOINT_CREATE, &arg);

	if (ret)
		return ret;
	*e = (struct endpoint){
		.handle = arg.out_handle,
		.index = arg.out_index,
		.generation = arg.out_generation,
	};
	return map(fd, arg.out_ring_offset, page_size(), PROT_READ | PROT_WRITE,
		   MAP_SHARED, &e->ring) ?:
	       map(fd, arg.out_status_offset, page_size(), PROT_READ,
		   MAP_SHARED, &e->status);
}

static inline int endpoint_create(int fd, __u32 timeout_ms, __u64 max_message,
				  struct endpoint *e)
{
	return endpoint_create_as(fd, 0, timeout_ms, max_message, e);
}

static inline int endpoint_connect(int fd, const struct endpoint *e, __u32 node,
				   __u32 index, __u64 generation)
{
	struct uldma_endpoint_connect arg = {
		.size = sizeof(arg),
		.handle = e->handle,
		.node = node,
		.peer_index = index,
		.peer_generation = generation,
	};

	return uldma_ioctl(fd, ULDMA_IOC_ENDPOINT_CONNECT, &arg);
}

static inline int endpoint_destroy(int fd, const struct endpoint *e)
{
	return handle_ioctl(fd, ULDMA_IOC_ENDPOINT_DESTROY, e->handle);
}

/* Waits until as many messages have come: how many have, or a negated errno. */
static inline __s64 endpoint_wait(int fd, const struct endpoint *e, __u64 count,
				  __u64 timeout_ns)
{
	struct uldma_endpoint_wait arg = {
		.size = sizeof(arg),
		.handle = e->handle,
		.count = count,
		.timeout_ns = timeout_ns,
	};
	int ret = uldma_ioctl(fd, ULDMA_IOC_ENDPOINT_WAIT, &arg);

	return ret ?: (__s64)arg.out_completed;
}

/* Posts room for a message; there is a free place. Does not wake the device. */
static inline __u64 endpoint_post(struct endpoint *e, __u32 region, __u64 at,
				  __u64 length)
{
	__u64 ticket = e->posted + 1;
	struct uldma_descriptor *to = &e->ring[ticket % ULDMA_STATUS_RECORDS];

	to->op = ULDMA_OP_RECV;
	to->flags = 0;
	to->dst = region;
	to->dst_offset = at;
	to->length = length;
	__atomic_store_n(&to->ticket, ticket, __ATOMIC_RELEASE);
	return e->posted = ticket;
}

/* Wakes the device if it does not poll for what was posted. */
static inline void endpoint_ring(const struct endpoint *e, struct context *c)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (READ_ONCE(e->status->wakeup))
		device_store((uintptr_t)c->page, 0);
}

static inline struct uldma_completion endpoint_record(const struct endpoint *e,
						      __u64 ticket)
{
	return *(volatile struct uldma_completion *)
		&e->status->records[ticket % ULDMA_STATUS_RECORDS];
}

static inline struct uldma_descriptor message_of(const struct endpoint *e,
						 __u32 region, __u64 at,
						 __u64 length)
{
	return (struct uldma_descriptor){
		.op = ULDMA_OP_SEND,
		.src = region,
		.src_offset = at,
		.dst = e->index,
		.length = length,
	};
}

#endif /* __SELFTEST_ULDMA_ENDPOINT_H */
