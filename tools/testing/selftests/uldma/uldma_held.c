// SPDX-License-Identifier: GPL-2.0
/*
 * A buffer of a connection that the peer has filled, while a transfer that names
 * only its page is under way: once the program has the buffer back, the device
 * no longer writes to it.
 *
 * The runner holds the device between looking the page up and writing to it. It
 * makes and fills the connection, and says when to go on: "uldma_held FIFO PORT"
 * says what it has done, and reads FIFO to wait.
 */
#include "uldma_conn.h"
#include "uldma_method.h"
#include "uldma_process.h"
#include "uldma_steps.h"

#define STAMP 0x5a

static int wait_for(int fd, short events)
{
	return conn_poll(fd, events, PARTNER_PATIENCE) & events ? 0 :
								  -ETIMEDOUT;
}

static int held(int fifo, __u32 port)
{
	size_t page = page_size();
	struct party p;
	__s64 ticket;
	int fd, ret;

	fd = uldma_open(0);
	if (fd < 0)
		return fd;
	ret = party_open(&p) ?:
	      party_context(&p, ULDMA_METHOD_SHRIMP_1, 0) ?:
	      conn_listen_once(fd, port) ?:
	      go_on(fifo, "listening") ?:
	      wait_for(fd, POLLOUT) ?:
	      conn_prepost(fd, p.dst, page) ?:
	      wait_for(fd, POLLIN);
	if (ret)
		return ret;
	/* The buffer keeps the page entry, to which the source is mapped out. */
	ret = region_unregister(p.fd, p.d.handle) ?: go_on(fifo, "filled");
	if (ret)
		return ret;
	ticket = device_load((uintptr_t)p.s.shadow + page - 8);
	if (ticket <= 0)
		return ticket ? (int)ticket : -EPROTO;
	ret = go_on(fifo, "started") ?: conn_recv_all(fd, p.dst, page);
	if (ret)
		return ret;
	memset(p.dst, STAMP, page);
	ret = go_on(fifo, "returned");
	for (size_t i = 0; i < page && !ret; i++)
		if (p.dst[i] != STAMP)
			ret = -EFAULT;
	return ret;
}

int main(int argc, char **argv)
{
	int fifo, ret;

	if (argc != 3) {
		fprintf(stderr, "usage: %s FIFO PORT\n", argv[0]);
		return 2;
	}
	fifo = steps_open(argv[1]);
	ret = fifo < 0 ? fifo : held(fifo, atoi(argv[2]));
	if (ret)
		fprintf(stderr, "%s\n", strerror(-ret));
	return ret ? 1 : 0;
}
