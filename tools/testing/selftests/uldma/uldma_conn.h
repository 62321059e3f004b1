/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Connections as functions. Each returns 0 or the negated errno.
 */
#ifndef __SELFTEST_ULDMA_CONN_H
#define __SELFTEST_ULDMA_CONN_H

#include <sched.h>
#include <sys/epoll.h>

#include "uldma_utils.h"

/* The other end of the link, where both are on this machine. */
static inline const char *uldma_other(void)
{
	return getenv("ULDMA_DEVICE2") ?: "/dev/uldma1";
}

static inline int conn_open_at(const char *node, int flags)
{
	int fd = open(node, O_RDWR | O_CLOEXEC | flags);

	return fd < 0 ? -errno : fd;
}

/* Listens with a ring of so many bytes for each side that connects. */
static inline int conn_listen_as(int fd, __u32 port, __u32 backlog, __u32 flags,
				 __u64 ring)
{
	struct uldma_conn_listen arg = {
		.size = sizeof(arg),
		.flags = flags,
		.port = port,
		.backlog = backlog,
		.offer.ring_length = ring,
	};

	return uldma_ioctl(fd, ULDMA_IOC_CONN_LISTEN, &arg);
}

static inline int conn_listen(int fd, __u32 port, __u32 backlog)
{
	return conn_listen_as(fd, port, backlog, 0, 0);
}

static inline int conn_listen_once(int fd, __u32 port)
{
	return conn_listen_as(fd, port, 0, ULDMA_LISTEN_ONCE, 0);
}

static inline int conn_accept_from(int fd, __u32 port, __u32 *node)
{
	struct uldma_conn_accept arg = { .size = sizeof(arg), .port = port };
	int ret = uldma_ioctl(fd, ULDMA_IOC_CONN_ACCEPT, &arg);

	*node = arg.out_node;
	return ret;
}

static inline int conn_accept(int fd, __u32 port)
{
	__u32 node;

	return conn_accept_from(fd, port, &node);
}

/* The peer as in DOC: peers, that is zero or a node's number plus one. */
static inline int conn_connect_as(int fd, __u32 peer, __u32 port, __u32 flags)
{
	struct uldma_conn_connect arg = {
		.size = sizeof(arg),
		.flags = flags,
		.peer = peer,
		.port = port,
		.timeout_ns = PATIENCE,
	};

	return uldma_ioctl(fd, ULDMA_IOC_CONN_CONNECT, &arg);
}

static inline int conn_connect(int fd, __u32 peer, __u32 port)
{
	return conn_connect_as(fd, peer, port, 0);
}

static inline int conn_disconnect(int fd)
{
	return handle_ioctl(fd, ULDMA_IOC_CONN_DISCONNECT, 0);
}

static inline int conn_give(int fd, unsigned long cmd, const void *addr,
			    __u64 length)
{
	struct uldma_conn_buffer arg = {
		.size = sizeof(arg),
		.addr = (uintptr_t)addr,
		.length = length,
	};

	return uldma_ioctl(fd, cmd, &arg);
}

static inline int conn_prepost(int fd, void *addr, __u64 length)
{
	return conn_give(fd, ULDMA_IOC_CONN_PREPOST, addr, length);
}

static inline int conn_send(int fd, const void *addr, __u64 length)
{
	return conn_give(fd, ULDMA_IOC_CONN_SEND, addr, length);
}

/**
 * struct range - memory that a connection gave back
 * @addr: first byte
 * @length: bytes; zero at the end
 */
struct range {
	char *addr;
	__u64 length;
};

static inline int conn_take_flags(int fd, unsigned long cmd, __u32 flags,
				  __u64 length, struct range *range)
{
	struct uldma_conn_range arg = {
		.size = sizeof(arg),
		.flags = flags,
		.length = length,
	};
	int ret = uldma_ioctl(fd, cmd, &arg);

	*range = (struct range){
		.addr = (char *)(uintptr_t)arg.out_addr,
		.length = arg.out_length,
	};
	return ret;
}

static inline int conn_take(int fd, unsigned long cmd, __u64 length,
			    struct range *range)
{
	return conn_take_flags(fd, cmd, 0, length, range);
}

static inline int conn_recv(int fd, __u64 length, struct range *range)
{
	return conn_take(fd, ULDMA_IOC_CONN_RECV, length, range);
}

static inline int conn_recycle(int fd, __u64 length, struct range *range)
{
	return conn_take(fd, ULDMA_IOC_CONN_RECYCLE, length, range);
}

/* All ones when the query fails, which no test takes for a good answer. */
static inline struct uldma_conn_query conn_query(int fd)
{
	struct uldma_conn_query q = { .size = sizeof(q) };

	if (uldma_ioctl(fd, ULDMA_IOC_CONN_QUERY, &q))
		memset(&q, 0xff, sizeof(q));
	return q;
}

static inline __u32 conn_state(int fd)
{
	return conn_query(fd).out_state;
}

/* Returns the events of poll(), with POLLERR and POLLHUP; 0 after the time limit. */
static inline short conn_poll(int fd, short events, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = events };

	return poll(&p, 1, timeout_ms) > 0 ? p.revents : 0;
}

/*
 * Looks until a condition holds, for as long as there is patience: for what
 * has no event. Whether it holds.
 */
#define eventually(_condition)						\
	({								\
		__u64 _limit = now_ns() + PATIENCE;			\
		bool _holds;						\
		while (!(_holds = (_condition)) && now_ns() < _limit)	\
			sched_yield();					\
		_holds;							\
	})

/* Takes back exactly these bytes, in as many steps as it takes. */
static inline int conn_take_all(int fd, unsigned long cmd, const void *addr,
				__u64 length)
{
	struct range range;
	__u64 done;
	int ret;

	for (done = 0; done < length; done += range.length) {
		ret = conn_take(fd, cmd, length - done, &range);
		if (ret)
			return ret;
		if (!range.length)
			return -EPIPE;
		if (range.addr != (char *)addr + done ||
		    range.length > length - done)
			return -EPROTO;
	}
	return 0;
}

static inline int conn_recv_all(int fd, void *addr, __u64 length)
{
	return conn_take_all(fd, ULDMA_IOC_CONN_RECV, addr, length);
}

static inline int conn_recycle_all(int fd, const void *addr, __u64 length)
{
	return conn_take_all(fd, ULDMA_IOC_CONN_RECYCLE, addr, length);
}

/* A round trip of one buffer, for the control messages of tests. */
static inline int conn_send_wait(int fd, const void *addr, __u64 length)
{
	return conn_send(fd, addr, length) ?:
	       conn_recycle_all(fd, addr, length);
}

static inline int conn_recv_into(int fd, void *addr, __u64 length)
{
	return conn_prepost(fd, addr, length) ?:
	       conn_recv_all(fd, addr, length);
}

/* Returns true if no data can come: the stream has ended, or was reset. */
static inline bool conn_has_ended(int fd)
{
	struct range range;
	int ret = conn_recv(fd, 1, &range);

	return ret == -ECONNRESET || (!ret && !range.length);
}

#endif /* __SELFTEST_ULDMA_CONN_H */
