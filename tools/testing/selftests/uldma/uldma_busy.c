// SPDX-License-Identifier: GPL-2.0
/*
 * Programs that keep the engine of a device busy:
 *
 *	uldma_busy serve		# prints "ready"
 *	uldma_busy flood PEER ROUNDS	# on the other node; prints "done"
 *	uldma_busy copy			# prints "copying", until it is killed
 *
 * A flood is bulk data on connections and queues of long copies, and beside it
 * connections that end while the device still writes to their buffers. PEER is
 * as in DOC: peers.
 */
#include <pthread.h>

#include "uldma_conn.h"
#include "uldma_process.h"
#include "uldma_queue.h"

#define BULK_PORT 786
#define SMALL_PORT 787
/* Connections with bulk data, and contexts with copies. */
#define STREAMS 8
#define QUEUES 3
#define LONG (1024UL * 1024)
/* Buffers of a stream, and of a connection that ends. */
#define DEPTH 32
#define SMALL 64

static int say(const char *what)
{
	printf("%s\n", what);
	fflush(stdout);
	return 0;
}

/* Gives one long buffer again and again; the bytes do not matter. */
static int move(int fd, unsigned long give, unsigned long take)
{
	char *memory = buffer(LONG);
	int ret = memory ? 0 : -ENOMEM;

	for (int i = 0; i < DEPTH && !ret; i++)
		ret = conn_give(fd, give, memory, LONG);
	while (!ret)
		ret = conn_take_all(fd, take, memory, LONG) ?:
		      conn_give(fd, give, memory, LONG);
	return ret;
}

static void *receive_bulk(void *arg)
{
	move((intptr_t)arg, ULDMA_IOC_CONN_PREPOST, ULDMA_IOC_CONN_RECV);
	return NULL;
}

static void send_bulk(int to, void *arg)
{
	int fd = uldma_open(0);

	if (fd >= 0 && !conn_connect(fd, *(__u32 *)arg, BULK_PORT) &&
	    write(to, "", 1) == 1)
		move(fd, ULDMA_IOC_CONN_SEND, ULDMA_IOC_CONN_RECYCLE);
	_exit(1);
}

/* Keeps a queue of long copies full. */
static int copy_long(int to)
{
	struct party p = { .length = LONG };
	__s64 ticket = 0;
	int ret;

	p.fd = uldma_open(0);
	if (p.fd < 0)
		return p.fd;
	p.src = buffer(LONG);
	p.dst = buffer(LONG);
	if (!p.src || !p.dst)
		return -ENOMEM;
	ret = region_register(p.fd, p.src, LONG, RW, &p.s) ?:
	      region_register(p.fd, p.dst, LONG, RW, &p.d) ?:
	      party_context(&p, ULDMA_METHOD_QUEUE, 0);
	for (int i = 0; !ret && ticket >= 0; i++) {
		struct job job = party_job(&p, 0, 0, LONG);

		ticket = queue_start(&p.c, &job);
		if (i == SMALL && write(to, "", 1) != 1)
			ret = -EPIPE;
	}
	return ret ?: -ETIMEDOUT;
}

static void fill_queue(int to, void *arg)
{
	copy_long(to);
	_exit(1);
}

/* Waits until a child is at work. */
static int at_work(struct helper *h)
{
	char byte;

	return read(h->fd, &byte, 1) == 1 ? 0 : -EPIPE;
}

static int serve(void)
{
	int bulk = uldma_open(0), small = uldma_open(0);
	char *memory = buffer(SMALL * page_size());
	pthread_t receiver;
	int fd, ret;

	if (bulk < 0 || small < 0 || !memory)
		return -ENODEV;
	memset(memory, 1, SMALL * page_size());
	ret = conn_listen(bulk, BULK_PORT, STREAMS) ?:
	      conn_listen(small, SMALL_PORT, 1) ?: say("ready");
	for (int i = 0; i < STREAMS && !ret; i++) {
		fd = uldma_open(0);
		ret = fd < 0 ? fd : conn_accept(fd, BULK_PORT) ?:
		      -pthread_create(&receiver, NULL, receive_bulk,
				      (void *)(intptr_t)fd);
	}
	while (!ret) {
		fd = uldma_open(0);
		ret = fd < 0 ? fd : conn_accept(fd, SMALL_PORT);
		/* The other end may be gone at any time. */
		for (int i = 0; i < SMALL && !ret; i++)
			if (conn_send(fd, memory + i * page_size(),
				      page_size()))
				break;
		if (!ret)
			conn_poll(fd, 0, PARTNER_PATIENCE);
		close(fd);
	}
	return ret;
}

/* Posts pages, and closes while the driver takes those back that were filled. */
static int end_while_filled(__u32 peer, char *memory)
{
	__u64 bytes = SMALL * page_size();
	int fd = uldma_open(0);
	int ret;

	if (fd < 0)
		return fd;
	ret = conn_connect(fd, peer, SMALL_PORT);
	for (int i = 0; i < SMALL && !ret; i++)
		ret = conn_prepost(fd, memory + i * page_size(), page_size());
	if (!ret && !eventually(conn_query(fd).out_received >= bytes))
		ret = -ETIMEDOUT;
	close(fd);
	return ret;
}

static int flood(__u32 peer, int rounds)
{
	char *memory = buffer(SMALL * page_size());
	struct helper h[STREAMS + QUEUES];
	int ret = memory ? 0 : -ENOMEM;

	/* They end with this process, and not before. */
	for (int i = 0; i < STREAMS + QUEUES && !ret; i++)
		ret = helper_start(&h[i], i < STREAMS ? send_bulk : fill_queue,
				   &peer) ?: at_work(&h[i]);
	for (int i = 0; i < rounds && !ret; i++)
		ret = end_while_filled(peer, memory);
	for (int i = 0; i < STREAMS + QUEUES && !ret; i++)
		ret = waitpid(h[i].pid, NULL, WNOHANG) ? -EPIPE : 0;
	return ret ?: say("done");
}

static int copy(void)
{
	struct helper h;
	int ret = helper_start(&h, fill_queue, NULL) ?: at_work(&h) ?:
		  say("copying");

	if (!ret)
		waitpid(h.pid, NULL, 0);
	return ret;
}

int main(int argc, char **argv)
{
	int ret = -EINVAL;

	if (argc == 2 && !strcmp(argv[1], "serve"))
		ret = serve();
	else if (argc == 4 && !strcmp(argv[1], "flood"))
		ret = flood(atoi(argv[2]), atoi(argv[3]));
	else if (argc == 2 && !strcmp(argv[1], "copy"))
		ret = copy();
	if (ret)
		fprintf(stderr, "%s\n", strerror(-ret));
	return !!ret;
}
