/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Connections whose data goes from endpoint to endpoint, by ioctls.
 */
#ifndef __SELFTEST_ULDMA_CONN_MATCH_H
#define __SELFTEST_ULDMA_CONN_MATCH_H

#include "uldma_conn.h"
#include "uldma_endpoint.h"

/**
 * struct matched - this side of a connection whose data the device matches
 * @endpoint: the endpoint
 * @flags: what the driver has last said of it, ULDMA_STREAM_*
 */
struct matched {
	struct endpoint endpoint;
	__u32 flags;
};

/* Waits until the flags change, or as many tickets of the context have ended. */
static inline int matched_wait(int fd, struct matched *m, __u64 ticket,
			       __u64 timeout_ns)
{
	struct uldma_conn_stream arg = {
		.size = sizeof(arg),
		.flags = m->flags,
		.handle = m->endpoint.handle,
		.ticket = ticket,
		.timeout_ns = timeout_ns,
	};
	int ret = uldma_ioctl(fd, ULDMA_IOC_CONN_STREAM, &arg);

	if (!ret)
		m->flags = arg.out_flags;
	return ret;
}

/*
 * Names an endpoint, and waits until the peer has named its own. The peer may have
 * ended the connection before this process ran again.
 */
static inline int matched_begin(int fd, struct matched *m)
{
	int ret;

	*m = (struct matched){ };
	ret = endpoint_create_as(fd, ULDMA_ENDPOINT_STREAM, NO_LIMIT,
				 page_size(), &m->endpoint) ?:
	      matched_wait(fd, m, 0, PATIENCE);
	if (!ret && !(m->flags & ULDMA_STREAM_MATCHED))
		ret = -EPROTO;
	return ret;
}

/* A file that is closed ends when nothing of it is mapped any more. */
static inline int matched_unmap(struct matched *m)
{
	if (munmap(m->endpoint.ring, page_size()) ||
	    munmap(m->endpoint.status, page_size()))
		return -errno;
	return 0;
}

#endif /* __SELFTEST_ULDMA_CONN_MATCH_H */
