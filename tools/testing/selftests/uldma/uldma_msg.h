/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Message slots, as functions.
 */
#ifndef __SELFTEST_ULDMA_MSG_H
#define __SELFTEST_ULDMA_MSG_H

#include "uldma_endpoint.h"

/**
 * struct slots - message slots of an endpoint
 * @handle: in the open file
 * @index: of the region, in the device's table
 */
struct slots {
	__u32 handle;
	__u32 index;
};

static inline int slots_create(int fd, __u32 flags, __u32 endpoint, __u32 count,
			       __u64 bytes, struct slots *s)
{
	struct uldma_msg_slots arg = {
		.size = sizeof(arg),
		.flags = flags,
		.endpoint = endpoint,
		.count = count,
		.slot_bytes = bytes,
	};
	int ret = uldma_ioctl(fd, ULDMA_IOC_MSG_SLOTS, &arg);

	*s = (struct slots){
		.handle = arg.out_handle,
		.index = arg.out_index,
	};
	return ret;
}

/* Sends by a ticket of the caller's choice. */
static inline int msg_send_as(int fd, const struct slots *s, const void *from,
			      __u64 length, __u64 ticket, __u64 timeout_ns)
{
	struct uldma_msg_send arg = {
		.size = sizeof(arg),
		.slots = s->handle,
		.addr = (uintptr_t)from,
		.length = length,
		.ticket = ticket,
		.timeout_ns = timeout_ns,
	};

	return uldma_ioctl(fd, ULDMA_IOC_MSG_SEND, &arg);
}

/* Sends by the next ticket of the context: the ticket, or a negated errno. */
static inline __s64 msg_send(int fd, struct context *c, const struct slots *s,
			     const void *from, __u64 length, __u64 timeout_ns)
{
	int ret = msg_send_as(fd, s, from, length, c->ticket + 1, timeout_ns);

	if (ret)
		return ret;
	return c->ticket += 1;
}

static inline int msg_recv(int fd, const struct slots *s, void *to,
			   __u64 length, __u64 timeout_ns,
			   struct uldma_msg_recv *got)
{
	*got = (struct uldma_msg_recv){
		.size = sizeof(*got),
		.slots = s->handle,
		.addr = (uintptr_t)to,
		.length = length,
		.timeout_ns = timeout_ns,
	};
	return uldma_ioctl(fd, ULDMA_IOC_MSG_RECV, got);
}

#endif /* __SELFTEST_ULDMA_MSG_H */
