// SPDX-License-Identifier: GPL-2.0
/*
 * Connections between two processes on two nodes, over whatever joins these. On
 * one:
 *
 *	uldma_conn_peer serve	# prints "ready"
 *
 * and then on the other, or with ULDMA_DEVICE set to another end on the same
 * machine:
 *
 *	uldma_conn_peer run	# KTAP; ends the first at the end
 *
 * On a link of more than two nodes, ULDMA_PEER is the number of the first.
 */
#include <pthread.h>

#include "uldma_conn_control.h"
#include "uldma_conn_match.h"
#include "uldma_harness.h"
#include "uldma_process.h"
#include "uldma_two_nodes.h"

#define MEGABYTE (1024UL * 1024)
#define ROUNDS 10
/* More than a section of the window has parts for connections. */
#define GIVEN_UP 80

FIXTURE(peer) {
	struct control control;
	__u64 violations;
	int fd;
};

FIXTURE_VARIANT(peer) {
	__u32 flags;
};

FIXTURE_SETUP(peer)
{
	int probe = uldma_open(0);

	ASSERT_LE(0, probe);
	if (!link_up(probe))
		SKIP(return, "the link is down");
	if (variant->flags &&
	    query(probe).out_backend == ULDMA_BACKEND_IVSHMEM)
		SKIP(return, "data goes through the window, so pushed only");
	close(probe);
	self->fd = -1;
	ASSERT_EQ(0, control_open(&self->control));
	self->violations = to_peer(self->control.fd).out_violations;
}

/* No peer broke the rules, the link stayed up, no object is left. */
FIXTURE_TEARDOWN(peer)
{
	struct uldma_peer_query p = to_peer(self->control.fd);

	EXPECT_EQ(self->violations, p.out_violations);
	EXPECT_EQ(ULDMA_LINK_UP, p.out_link);
	close(self->fd);
	close(self->control.fd);
	EXPECT_TRUE(eventually(!vm_pin()));
}

FIXTURE_VARIANT_ADD(peer, push) { 0 };
FIXTURE_VARIANT_ADD(peer, pull) { ULDMA_CONNECT_PULL };

TEST_F(peer, refused)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	EXPECT_EQ(-ECONNREFUSED, conn_connect_as(self->fd, the_peer(),
						 WORKER_PORT(WORKERS),
						 variant->flags));
	EXPECT_EQ(ULDMA_CONN_NONE, conn_state(self->fd));
}

/* Bytes of a buffer, here and there. */
static const struct {
	size_t here;
	size_t there;
	__u64 total;
} chunks[] = {
	{ 1, 1, 500 },
	{ 7, 64, 2000 },
	{ 4096, 4096, MEGABYTE / 2 },
	{ 10007, 4096, MEGABYTE / 2 },
	{ 4096, 30011, MEGABYTE },
	{ 262144, 65536, 4 * MEGABYTE },
	{ 2 * MEGABYTE, MEGABYTE + 1, 8 * MEGABYTE },
};

TEST_F_TIMEOUT(peer, sink, 240)
{
	struct stream s;
	__u64 copies;

	for (int i = 0; i < ARRAY_SIZE(chunks); i++) {
		__u64 total = chunks[i].total;

		self->fd = worker_connect(&self->control, 0, WORK_RECEIVE,
					  total, chunks[i].there, i,
					  variant->flags);
		ASSERT_LE(0, self->fd);
		s = here(self->fd, ULDMA_IOC_CONN_SEND, 0, total,
			 chunks[i].here, i);
		EXPECT_EQ(0, streams_run(&s, 1))
			TH_LOG("%zu into %zu", chunks[i].here, chunks[i].there);
		EXPECT_EQ(0, give_order(&self->control, ORDER_RESULT, { 0 }));
		EXPECT_EQ(conn_query(self->fd).out_name,
			  give_order(&self->control, ORDER_NAME, { 0 }));
		copies = conn_query(self->fd).out_flags & ULDMA_CONN_WINDOW ?
				 2 : 1;
		EXPECT_EQ(copies * total,
			  conn_query(self->fd).out_copied +
			  give_order(&self->control, ORDER_COPIED, { 0 }));
		EXPECT_EQ(0, conn_disconnect(self->fd));
		close(self->fd);
	}
}

TEST_F_TIMEOUT(peer, source, 240)
{
	struct stream s;

	for (int i = 0; i < ARRAY_SIZE(chunks); i++) {
		self->fd = worker_connect(&self->control, 0, WORK_SEND,
					  chunks[i].total, chunks[i].there, i,
					  variant->flags);
		ASSERT_LE(0, self->fd);
		s = here(self->fd, ULDMA_IOC_CONN_PREPOST, 0, chunks[i].total,
			 chunks[i].here, i);
		EXPECT_EQ(0, streams_run(&s, 1))
			TH_LOG("%zu from %zu, wrong at %lld", chunks[i].here,
			       chunks[i].there, s.wrong);
		EXPECT_EQ(0, give_order(&self->control, ORDER_RESULT, { 0 }));
		EXPECT_EQ(0, conn_disconnect(self->fd));
		close(self->fd);
	}
}

/* The bytes that come back are those that were sent. */
TEST_F_TIMEOUT(peer, echo, 120)
{
	struct stream streams[2];

	self->fd = worker_connect(&self->control, 0, WORK_ECHO, 0, 5000, 0,
				  variant->flags);
	ASSERT_LE(0, self->fd);
	streams[0] = here(self->fd, ULDMA_IOC_CONN_SEND, 0, MEGABYTE, 3001,
			  5);
	streams[1] = here(self->fd, ULDMA_IOC_CONN_PREPOST, 0, MEGABYTE,
			  7001, 3);
	streams[1].seed = streams[0].seed;
	EXPECT_EQ(0, streams_run(streams, 2));
	EXPECT_EQ(0, conn_disconnect(self->fd));
	EXPECT_EQ(0, give_order(&self->control, ORDER_RESULT, { 0 }));
}

/* Memory that is refused leaves the choice between calls and endpoints open. */
TEST_F(peer, refused_memory)
{
	struct uldma_endpoint_create endpoint = {
		.size = sizeof(endpoint),
		.flags = ULDMA_ENDPOINT_STREAM,
		.max_message = 1,
	};
	struct uldma_conn_stream stream = {
		.size = sizeof(stream),
		.timeout_ns = PATIENCE,
	};
	int ret;

	self->fd = worker_connect(&self->control, 0, WORK_ECHO, 0, 5000, 0,
				  variant->flags);
	ASSERT_LE(0, self->fd);
	EXPECT_EQ(-EFAULT, conn_prepost(self->fd, NULL, 1));
	EXPECT_EQ(-EFAULT, conn_send(self->fd, NULL, 1));
	ret = uldma_ioctl(self->fd, ULDMA_IOC_ENDPOINT_CREATE, &endpoint);
	if (query(self->fd).out_backend != ULDMA_BACKEND_ADAPTER) {
		EXPECT_EQ(-EOPNOTSUPP, ret);
		return;
	}
	ASSERT_EQ(0, ret);
	stream.handle = endpoint.out_handle;
	ret = uldma_ioctl(self->fd, ULDMA_IOC_CONN_STREAM, &stream);
	/* Receivers move the data of the other variant. */
	ASSERT_EQ(variant->flags ? -EOPNOTSUPP : 0, ret);
	EXPECT_EQ(variant->flags ? 0 : ULDMA_STREAM_REFUSED, stream.out_flags);
	EXPECT_EQ(0, conn_disconnect(self->fd));
}

/* A connection whose data the device matches, and a queue: 0, or 1 without these. */
static int match_here(struct control *control, __u32 flags, __u64 work,
		      struct matched *m, struct context *c, int *fd)
{
	if (flags || query(control->fd).out_backend != ULDMA_BACKEND_ADAPTER)
		return 1;
	*fd = worker_connect(control, 0, work, 0, 0, 0, 0);
	if (*fd < 0)
		return *fd;
	return context_create_as(*fd, ULDMA_METHOD_QUEUE, 0, c) ?:
	       context_map(*fd, c) ?: matched_begin(*fd, m);
}

/* The context is also used for something else, which concerns no connection. */
TEST_F_TIMEOUT(peer, another_transfer_fails, 120)
{
	struct uldma_descriptor copy = {
		.op = ULDMA_OP_COPY,
		.src = UINT32_MAX,
		.length = 8,
	};
	struct matched m;
	struct context c;
	int ret = match_here(&self->control, variant->flags, WORK_MATCH, &m, &c,
			     &self->fd);

	if (ret == 1)
		SKIP(return, "no device matches streams here");
	ASSERT_EQ(0, ret);
	EXPECT_EQ(ULDMA_DMA_NOT_VALID, queue_do(&c, copy, NULL));
	EXPECT_EQ(0, matched_wait(self->fd, &m, c.ticket, PATIENCE));
	EXPECT_EQ(ULDMA_STREAM_MATCHED, m.flags);
	EXPECT_EQ(ULDMA_CONN_CONNECTED, conn_state(self->fd));
	/* Nor does the peer take it for lost bytes. */
	EXPECT_EQ(0, context_unmap(&c) ?: matched_unmap(&m));
	close(self->fd);
	EXPECT_EQ(0, give_order(&self->control, ORDER_RESULT, { 0 }));
	self->fd = -1;
}

/* A peer that takes nothing any more, and does not end the connection. */
TEST_F_TIMEOUT(peer, peer_ends_its_endpoint, 240)
{
	__u64 limit = PARTNER_PATIENCE / 1000 * SECOND;
	char *memory = buffer(page_size());
	struct uldma_descriptor send;
	struct region region;
	struct matched m;
	struct context c;
	int ret = match_here(&self->control, variant->flags,
			     WORK_MATCH | WORK_LEAVE, &m, &c, &self->fd);

	if (ret == 1)
		SKIP(return, "no device matches streams here");
	ASSERT_EQ(0, ret);
	ASSERT_EQ(0, region_register(self->fd, memory, page_size(),
				     ULDMA_ACCESS_READ, &region));
	send = message_of(&m.endpoint, region.index, 0, 8);
	EXPECT_EQ(ULDMA_DMA_REMOTE, queue_do(&c, send, NULL));
	EXPECT_EQ(0, matched_wait(self->fd, &m, c.ticket, limit));
	EXPECT_EQ(ULDMA_STREAM_MATCHED | ULDMA_STREAM_ENDED, m.flags);
	EXPECT_EQ(-ECONNRESET, give_order(&self->control, ORDER_RESULT, { 0 }));
	EXPECT_EQ(0, context_unmap(&c) ?: matched_unmap(&m));
}

/* The same by one thread that never waits but in poll(). */
TEST_F_TIMEOUT(peer, echo_by_poll, 120)
{
	struct stream streams[2];
	int ret = 0;
	short events;

	self->fd = worker_connect(&self->control, 0, WORK_ECHO, 0, 5000, 0,
				  variant->flags);
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, fcntl(self->fd, F_SETFL, O_NONBLOCK));
	streams[0] = here(self->fd, ULDMA_IOC_CONN_SEND, 0, MEGABYTE / 4, 3001,
			  5);
	streams[1] = here(self->fd, ULDMA_IOC_CONN_PREPOST, 0, MEGABYTE / 4,
			  7001, 3);
	streams[1].seed = streams[0].seed;
	ASSERT_EQ(0, stream_start(&streams[0]));
	ASSERT_EQ(0, stream_start(&streams[1]));
	while (streams[1].got < streams[1].total) {
		events = POLLIN;
		for (int i = 0; i < 2; i++) {
			if (streams[i].got == streams[i].total)
				continue;
			ret = stream_give(&streams[i]) ?:
			      stream_take(&streams[i]);
			if (ret != -EAGAIN)
				ASSERT_EQ(0, ret);
		}
		if (streams[0].got < streams[0].total)
			events |= POLLOUT;
		if (ret == -EAGAIN)
			ASSERT_NE(0, conn_poll(self->fd, events, SOON));
	}
	EXPECT_TRUE(stream_is_tidy(&streams[0]));
	EXPECT_TRUE(stream_is_tidy(&streams[1]));
}

/* Two streams here for those of one worker. */
static void both(struct stream *streams, int fd, int slot, __u64 total,
		 size_t chunk)
{
	streams[0] = here(fd, ULDMA_IOC_CONN_SEND, slot, total, chunk, slot);
	streams[1] = here(fd, ULDMA_IOC_CONN_PREPOST, slot, total, chunk + 1000,
			  slot);
}

/* All send and all receive as fast as they can, over several connections. */
TEST_F_TIMEOUT(peer, flood, 240)
{
	struct stream streams[2 * WORKERS];
	__u64 total = MEGABYTE;
	int fds[WORKERS];

	for (int i = 0; i < WORKERS; i++) {
		fds[i] = worker_connect(&self->control, i,
					WORK_RECEIVE | WORK_SEND, total,
					50021 >> i, i, variant->flags);
		ASSERT_LE(0, fds[i]);
		both(&streams[2 * i], fds[i], i, total, 65536 >> i);
	}
	EXPECT_EQ(0, streams_run(streams, ARRAY_SIZE(streams)));
	for (int i = 0; i < WORKERS; i++) {
		EXPECT_EQ(0, give_order(&self->control, ORDER_RESULT, { i }));
		EXPECT_EQ(total, conn_query(fds[i]).out_sent);
		EXPECT_EQ(total, conn_query(fds[i]).out_received);
		EXPECT_EQ(0, conn_disconnect(fds[i]));
		close(fds[i]);
	}
}

/* A worker that does nothing for a while delays its data, and that is all. */
TEST_F_TIMEOUT(peer, stopped, 120)
{
	__u64 total = 4 * MEGABYTE;
	struct stream streams[2];
	__u64 sent;

	self->fd = worker_connect(&self->control, 0, WORK_RECEIVE | WORK_SEND,
				  total, 65536, 0, variant->flags);
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, give_order(&self->control, ORDER_STOP, { 0 }));
	both(streams, self->fd, 0, total, 4096);
	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(0, stream_start(&streams[i]));
		ASSERT_EQ(0, pthread_create(&streams[i].thread, NULL,
					    stream_main, &streams[i]));
	}
	/* No more than it had posted; others are served meanwhile. */
	ASSERT_EQ(0, give_order(&self->control, ORDER_WORK,
				{ 1, WORK_ECHO, 0, 0, 64, 0 }));
	sent = conn_query(self->fd).out_sent;
	EXPECT_LT(sent, total);
	ASSERT_EQ(0, give_order(&self->control, ORDER_GO_ON, { 0 }));
	for (int i = 0; i < 2; i++) {
		pthread_join(streams[i].thread, NULL);
		EXPECT_EQ(0, streams[i].result);
		stream_end(&streams[i]);
	}
	EXPECT_EQ(0, give_order(&self->control, ORDER_RESULT, { 0 }));
}

/* A worker dies in the middle of it: both streams here end, and soon. */
TEST_F_TIMEOUT(peer, worker_is_killed, 240)
{
	struct stream streams[2];
	int ret;

	for (int round = 0; round < ROUNDS; round++) {
		self->fd = worker_connect(&self->control, 0,
					  WORK_RECEIVE | WORK_SEND, ENDLESS,
					  65536, 0, variant->flags);
		ASSERT_LE(0, self->fd);
		both(streams, self->fd, 0, ENDLESS, 30000);
		for (int i = 0; i < 2; i++) {
			ASSERT_EQ(0, stream_start(&streams[i]));
			ASSERT_EQ(0, pthread_create(&streams[i].thread, NULL,
						    stream_main, &streams[i]));
		}
		ASSERT_TRUE(eventually(conn_query(self->fd).out_received >
				       MEGABYTE));
		ASSERT_EQ(0, give_order(&self->control, ORDER_KILL, { 0 }));
		for (int i = 0; i < 2; i++) {
			pthread_join(streams[i].thread, NULL);
			/* The other thread may have ended it before. */
			ret = streams[i].result;
			EXPECT_TRUE(ret == -ECONNRESET || ret == -EPIPE ||
				    ret == -ENOTCONN)
				TH_LOG("round %d: %d", round, ret);
			stream_end(&streams[i]);
		}
		close(self->fd);
		ASSERT_TRUE(eventually(vm_pin() == 0));
	}
}

static void stream_and_stay(int fd, void *arg)
{
	__u32 *flags = arg;
	struct stream streams[2];
	int own = uldma_open(0);
	int ret = conn_connect_as(own, the_peer(), WORKER_PORT(0), *flags);

	both(streams, own, 0, ENDLESS, 30000);
	for (int i = 0; i < 2 && !ret; i++)
		ret = stream_start(&streams[i]) ?:
		      -pthread_create(&streams[i].thread, NULL, stream_main,
				      &streams[i]);
	while (!ret && conn_query(own).out_received < MEGABYTE)
		sched_yield();
	if (write(fd, &ret, sizeof(ret)) != sizeof(ret))
		_exit(1);
	for (;;)
		pause();
}

/* The same with the roles changed: the worker gets the error. */
TEST_F_TIMEOUT(peer, client_is_killed, 240)
{
	__u32 flags = variant->flags;
	struct helper child;
	__s64 result;
	int ret;

	for (int round = 0; round < ROUNDS; round++) {
		ASSERT_EQ(0, give_order(&self->control, ORDER_WORK,
					{ 0, WORK_RECEIVE | WORK_SEND, ENDLESS,
					  SEED, 65536, 0 }));
		ASSERT_EQ(0, helper_start(&child, stream_and_stay, &flags));
		ASSERT_EQ(sizeof(ret), read(child.fd, &ret, sizeof(ret)));
		ASSERT_EQ(0, ret);
		ASSERT_EQ(0, helper_kill(&child));
		result = give_order(&self->control, ORDER_RESULT, { 0 });
		/*
		 * Reset, if there was something that was lost; the worker's
		 * other thread may have ended the connection before.
		 */
		EXPECT_TRUE(result == -ECONNRESET || result == -EPIPE ||
			    result == -ENOTCONN)
			TH_LOG("round %d: %lld", round, result);
	}
}

/* A worker gets the rest and then the end of the stream. */
TEST_F(peer, disconnect)
{
	struct stream s;

	self->fd = worker_connect(&self->control, 0, WORK_RECEIVE, ENDLESS,
				  65536, 0, variant->flags);
	ASSERT_LE(0, self->fd);
	s = here(self->fd, ULDMA_IOC_CONN_SEND, 0, MEGABYTE, 10000, 0);
	ASSERT_EQ(0, streams_run(&s, 1));
	ASSERT_EQ(0, conn_disconnect(self->fd));
	/* The stream's code for a stream that ends before its time. */
	EXPECT_EQ(-EPIPE, give_order(&self->control, ORDER_RESULT, { 0 }));
	EXPECT_EQ(ULDMA_CONN_NONE, conn_state(self->fd));
}

static int connect_and_give_up(int fd, __u32 port)
{
	struct uldma_conn_connect arg = {
		.size = sizeof(arg),
		.peer = the_peer(),
		.port = port,
	};

	return uldma_ioctl(fd, ULDMA_IOC_CONN_CONNECT, &arg);
}

/* More connects than there is room for; the peer's late answers make room again. */
TEST_F_TIMEOUT(peer, given_up, 240)
{
	/* One is refused, the other accepted. */
	const __u32 ports[] = { WORKER_PORT(WORKERS), ORDER_PORT };
	struct uldma_query before;
	int given_up = 0;
	int ret;

	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	before = query(self->fd);
	while (given_up < GIVEN_UP) {
		__u32 port = ports[given_up % 2];

		/* No more than a share, until the peer answers. */
		ASSERT_TRUE(eventually((ret = connect_and_give_up(self->fd, port)) !=
				       -ENOSPC))
			TH_LOG("after %d", given_up);
		given_up += ret == -ETIMEDOUT;
		/* The peer may be as fast as that. */
		if (!ret)
			ret = conn_disconnect(self->fd);
		ASSERT_TRUE(!ret || ret == -ETIMEDOUT || ret == -ECONNREFUSED)
			TH_LOG("%d after %d", ret, given_up);
	}
	EXPECT_TRUE(eventually(query(self->fd).out_connections ==
			       before.out_connections));
	EXPECT_TRUE(eventually(query(self->fd).out_window_used ==
			       before.out_window_used));
}

/**
 * struct cleaning - a thread that ends all regions, again and again
 * @fd: of whose open file
 * @stop: to make it end
 * @rounds: how often it did
 * @ret: 0 or a negated errno
 */
struct cleaning {
	int fd;
	bool stop;
	unsigned int rounds;
	int ret;
};

static void *clean_up(void *arg)
{
	struct cleaning *cleaning = arg;
	char *memory = buffer(2 * page_size());
	struct region region;
	int ret = memory ? 0 : -ENOMEM;

	while (!ret && !__atomic_load_n(&cleaning->stop, __ATOMIC_RELAXED)) {
		for (int i = 0; i < 2 && !ret; i++)
			ret = region_register(cleaning->fd,
					      memory + i * page_size(),
					      page_size(), ULDMA_ACCESS_READ,
					      &region);
		if (!ret)
			ret = handle_ioctl(cleaning->fd,
					   ULDMA_IOC_REGION_CLEANUP, 0);
		cleaning->rounds++;
	}
	cleaning->ret = ret;
	return NULL;
}

/* Its open file is the only one of its address space. */
static void stream_and_clean_up(int fd, void *arg)
{
	const __u32 *flags = arg;
	struct cleaning cleaning = { .fd = uldma_open(0) };
	pthread_t thread;
	struct stream s;
	int ret;

	s = here(cleaning.fd, ULDMA_IOC_CONN_SEND, 0, 16 * MEGABYTE, 65536, 0);
	ret = conn_connect_as(cleaning.fd, the_peer(), WORKER_PORT(0), *flags) ?:
	      -pthread_create(&thread, NULL, clean_up, &cleaning);
	if (!ret) {
		ret = streams_run(&s, 1);
		__atomic_store_n(&cleaning.stop, true, __ATOMIC_RELAXED);
		pthread_join(thread, NULL);
		ret = ret ?: cleaning.ret ?: cleaning.rounds ? 0 : -ENODATA;
	}
	if (write(fd, &ret, sizeof(ret)) != sizeof(ret))
		_exit(1);
}

/* Ending all regions of an open file does not affect its connection. */
TEST_F_TIMEOUT(peer, cleanup_beside, 240)
{
	struct helper helper;
	__u32 flags = variant->flags;
	int ret;

	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	if (query(self->fd).out_backend != ULDMA_BACKEND_ADAPTER)
		SKIP(return, "there are no regions");
	ASSERT_EQ(0, give_order(&self->control, ORDER_WORK,
				{ 0, WORK_RECEIVE, 16 * MEGABYTE, SEED, 65536, 0 }));
	ASSERT_EQ(0, helper_start(&helper, stream_and_clean_up, &flags));
	ASSERT_EQ(sizeof(ret), read(helper.fd, &ret, sizeof(ret)));
	EXPECT_EQ(0, ret);
	EXPECT_EQ(0, give_order(&self->control, ORDER_RESULT, { 0 }));
	ASSERT_EQ(0, helper_kill(&helper));
}

int main(int argc, char **argv)
{
	return two_nodes_main(argc, argv, conn_peer_serve, quit);
}
