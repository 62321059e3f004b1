// SPDX-License-Identifier: GPL-2.0
/*
 * Ends of connections in every state: by closing the file, by both sides at
 * once, by exit, with data in flight. Nothing is left behind.
 */
#include <pthread.h>

#include "uldma_conn_pair.h"
#include "uldma_conn_stream.h"

#define LENGTH (16UL << 16)
/* Nanoseconds for which threads race, as often as that allows. */
#define RACING 10000000000ULL

FIXTURE(close) {
	struct pair pair;
	char *src;
	char *dst;
	struct range range;
	__u32 connections;
};

FIXTURE_SETUP(close)
{
	ASSERT_EQ(0, pair_open(&self->pair, 0));
	self->connections = query(self->pair.a).out_connections;
	self->src = buffer(LENGTH);
	self->dst = buffer(LENGTH);
	ASSERT_NE(NULL, self->src);
	ASSERT_NE(NULL, self->dst);
	stream_fill(self->src, LENGTH, 1, 0);
}

FIXTURE_TEARDOWN(close)
{
	int fd = conn_open_at(uldma_node(), 0);

	pair_close(&self->pair);
	EXPECT_TRUE(eventually(query(fd).out_connections ==
			       self->connections));
	EXPECT_TRUE(eventually(!vm_pin()));
	close(fd);
}

/* The other side of a closed file gets the end of the stream. */
static void check_end(struct __test_metadata *_metadata, int fd, char *buf)
{
	struct range range;
	int ret;

	EXPECT_TRUE(conn_poll(fd, POLLRDHUP, SOON) & POLLRDHUP);
	EXPECT_TRUE(conn_has_ended(fd));
	EXPECT_EQ(ULDMA_CONN_CLOSING, conn_state(fd));
	ret = conn_send(fd, buf, 8);
	EXPECT_TRUE(ret == -EPIPE || ret == -ECONNRESET)
		TH_LOG("got %d", ret);
	ret = conn_recycle(fd, 8, &range);
	EXPECT_TRUE(ret == -ECONNRESET || (!ret && !range.length))
		TH_LOG("got %d", ret);
	EXPECT_EQ(0, conn_disconnect(fd));
	EXPECT_EQ(ULDMA_CONN_NONE, conn_state(fd));
}

TEST_F(close, of_who_accepted)
{
	struct pair *p = &self->pair;

	for (int i = 0; i < 10; i++) {
		ASSERT_EQ(0, pair_connect(p, 0));
		ASSERT_EQ(0, close(p->a));
		check_end(_metadata, p->b, self->src);
		ASSERT_EQ(0, conn_disconnect(p->listener));
		p->a = conn_open_at(uldma_node(), 0);
		ASSERT_LE(0, p->a);
	}
}

TEST_F(close, of_who_connected)
{
	struct pair *p = &self->pair;

	for (int i = 0; i < 10; i++) {
		ASSERT_EQ(0, pair_connect(p, 0));
		ASSERT_EQ(0, close(p->b));
		check_end(_metadata, p->a, self->src);
		ASSERT_EQ(0, conn_disconnect(p->listener));
		p->b = conn_open_at(uldma_other(), 0);
		ASSERT_LE(0, p->b);
	}
}

/* A connection whose other side was closed can be closed. */
TEST_F(close, after_the_other)
{
	struct pair *p = &self->pair;

	ASSERT_EQ(0, pair_connect(p, 0));
	ASSERT_EQ(0, conn_disconnect(p->b));
	EXPECT_TRUE(conn_poll(p->a, POLLRDHUP, SOON) & POLLRDHUP);
	ASSERT_EQ(0, close(p->a));
	p->a = conn_open_at(uldma_node(), 0);
	ASSERT_LE(0, p->a);
	ASSERT_EQ(0, conn_connect(p->b, p->to_a, PORT));
	EXPECT_EQ(0, conn_accept(p->a, PORT));
}

/* The connecting process ends before the connection is accepted. */
TEST_F(close, before_accept)
{
	struct pair *p = &self->pair;
	int fd = conn_open_at(uldma_other(), 0);
	int ret;

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, conn_listen(p->listener, PORT, 2));
	ASSERT_EQ(0, conn_connect(fd, p->to_a, PORT));
	ASSERT_EQ(0, close(fd));
	ASSERT_EQ(0, conn_connect(p->b, p->to_a, PORT));
	/* Accepted with nothing to come, or not at all; then comes the next. */
	ASSERT_EQ(0, conn_accept(p->a, PORT));
	if (conn_query(p->a).out_name != conn_query(p->b).out_name) {
		EXPECT_TRUE(conn_has_ended(p->a));
		EXPECT_EQ(0, conn_disconnect(p->a));
		ASSERT_EQ(0, conn_accept(p->a, PORT));
	}
	EXPECT_EQ(conn_query(p->a).out_name, conn_query(p->b).out_name);
	ret = conn_send(p->b, self->src, 8) ?:
	      conn_recv_into(p->a, self->dst, 8);
	EXPECT_EQ(0, ret);
}

/* Posted memory that was not moved belongs to the program again. */
TEST_F(close, with_memory_given)
{
	struct pair *p = &self->pair;

	ASSERT_EQ(0, pair_connect(p, 0));
	ASSERT_EQ(0, conn_send(p->b, self->src, LENGTH));
	ASSERT_EQ(0, conn_prepost(p->b, self->dst, LENGTH / 2));
	ASSERT_EQ(0, conn_disconnect(p->b));
	EXPECT_EQ(0, pinned_pages(p->b));
	EXPECT_EQ(ULDMA_CONN_NONE, conn_state(p->b));
	ASSERT_EQ(0, conn_recv(p->a, 8, &self->range));
	EXPECT_EQ(0, self->range.length);
}

struct racer {
	int fd;
	pthread_barrier_t *start;
	pthread_t thread;
	int result;
};

static void *race_disconnect(void *arg)
{
	struct racer *racer = arg;

	pthread_barrier_wait(racer->start);
	racer->result = conn_disconnect(racer->fd);
	return NULL;
}

/* Disconnects that cross: each side ends, whichever was first. */
TEST_F_TIMEOUT(close, at_once, 120)
{
	struct pair *p = &self->pair;
	pthread_barrier_t start;
	struct racer racers[2];

	ASSERT_EQ(0, pthread_barrier_init(&start, NULL, 2));
	ASSERT_EQ(0, conn_listen(p->listener, PORT, 1));
	for (int i = 0; i < 100; i++) {
		ASSERT_EQ(0, conn_connect(p->b, p->to_a, PORT));
		ASSERT_EQ(0, conn_accept(p->a, PORT));
		/* Every other time there is something to take back. */
		if (i % 2) {
			ASSERT_EQ(0, conn_prepost(p->a, self->dst, LENGTH));
			ASSERT_EQ(0, conn_send(p->b, self->src, LENGTH));
		}
		for (int j = 0; j < 2; j++) {
			racers[j] = (struct racer){
				.fd = j ? p->b : p->a,
				.start = &start,
			};
			ASSERT_EQ(0, pthread_create(&racers[j].thread, NULL,
						    race_disconnect,
						    &racers[j]));
		}
		for (int j = 0; j < 2; j++) {
			pthread_join(racers[j].thread, NULL);
			EXPECT_EQ(0, racers[j].result);
		}
		EXPECT_EQ(ULDMA_CONN_NONE, conn_state(p->a));
		EXPECT_EQ(ULDMA_CONN_NONE, conn_state(p->b));
	}
	EXPECT_EQ(0, vm_pin());
	pthread_barrier_destroy(&start);
}

/* The same by two threads of one side: one of them finds nothing to end. */
TEST_F_TIMEOUT(close, twice_at_once, 120)
{
	struct pair *p = &self->pair;
	pthread_barrier_t start;
	struct racer racers[2];
	int good;

	ASSERT_EQ(0, pthread_barrier_init(&start, NULL, 2));
	ASSERT_EQ(0, conn_listen(p->listener, PORT, 1));
	for (int i = 0; i < 100; i++) {
		ASSERT_EQ(0, conn_connect(p->b, p->to_a, PORT));
		ASSERT_EQ(0, conn_accept(p->a, PORT));
		good = 0;
		for (int j = 0; j < 2; j++) {
			racers[j] = (struct racer){
				.fd = p->a,
				.start = &start,
			};
			ASSERT_EQ(0, pthread_create(&racers[j].thread, NULL,
						    race_disconnect,
						    &racers[j]));
		}
		for (int j = 0; j < 2; j++) {
			pthread_join(racers[j].thread, NULL);
			good += !racers[j].result;
			if (racers[j].result)
				EXPECT_EQ(-ENOTCONN, racers[j].result);
		}
		EXPECT_LE(1, good);
		EXPECT_EQ(ULDMA_CONN_NONE, conn_state(p->a));
		ASSERT_EQ(0, conn_disconnect(p->b));
	}
	pthread_barrier_destroy(&start);
}

/* Streams both ways, which only the end of the connection ends. */
static void *flow(void *arg)
{
	struct stream *s = arg;

	s->result = stream_start(s) ?: stream_run(s);
	return NULL;
}

static void check_end_of_flow(struct __test_metadata *_metadata,
			      struct pair *p, int ender)
{
	struct stream streams[4];
	int ret;

	for (int i = 0; i < ARRAY_SIZE(streams); i++) {
		streams[i] = (struct stream){
			.fd = i % 2 ? p->b : p->a,
			.cmd = i < 2 ? ULDMA_IOC_CONN_SEND :
				       ULDMA_IOC_CONN_PREPOST,
			.seed = i == 1 || i == 2,
			.total = ~0ULL >> 1,
			.chunk = 65536 - i,
		};
		ASSERT_EQ(0, pthread_create(&streams[i].thread, NULL, flow,
					    &streams[i]));
	}
	EXPECT_TRUE(eventually(conn_query(ender).out_received > LENGTH &&
			       conn_query(ender).out_sent > LENGTH));
	EXPECT_EQ(0, conn_disconnect(ender));
	for (int i = 0; i < ARRAY_SIZE(streams); i++) {
		pthread_join(streams[i].thread, NULL);
		ret = streams[i].result;
		EXPECT_TRUE(ret == -EPIPE || ret == -ENOTCONN)
			TH_LOG("stream %d: %d", i, ret);
		stream_end(&streams[i]);
	}
}

TEST_F_TIMEOUT(close, in_full_flow, 120)
{
	struct pair *p = &self->pair;

	ASSERT_EQ(0, conn_listen(p->listener, PORT, 1));
	for (int i = 0; i < 10; i++) {
		ASSERT_EQ(0, conn_connect(p->b, p->to_a, PORT));
		ASSERT_EQ(0, conn_accept(p->a, PORT));
		check_end_of_flow(_metadata, p, i % 2 ? p->a : p->b);
		ASSERT_EQ(0, conn_disconnect(i % 2 ? p->b : p->a));
		EXPECT_EQ(0, vm_pin());
	}
}

/* Has memory of all kinds given and data under way, until it is killed. */
static void flow_and_stay(int fd, void *arg)
{
	struct pair *p = arg;
	struct stream streams[2];
	int own = conn_open_at(uldma_other(), 0);
	int ret = conn_connect(own, p->to_a, PORT);

	for (int i = 0; i < ARRAY_SIZE(streams); i++) {
		streams[i] = (struct stream){
			.fd = own,
			.cmd = i ? ULDMA_IOC_CONN_PREPOST :
				   ULDMA_IOC_CONN_SEND,
			.seed = i,
			.total = ~0ULL >> 1,
			.chunk = 65536,
		};
		if (!ret)
			ret = -pthread_create(&streams[i].thread, NULL, flow,
					      &streams[i]);
	}
	if (write(fd, &ret, sizeof(ret)) != sizeof(ret))
		_exit(1);
	for (;;)
		pause();
}

TEST_F_TIMEOUT(close, by_death_in_full_flow, 120)
{
	struct pair *p = &self->pair;
	struct stream streams[2];
	struct helper child;
	int ret;

	ASSERT_EQ(0, conn_listen(p->listener, PORT, 1));
	for (int round = 0; round < 10; round++) {
		ASSERT_EQ(0, helper_start(&child, flow_and_stay, p));
		ASSERT_EQ(sizeof(ret), read(child.fd, &ret, sizeof(ret)));
		ASSERT_EQ(0, ret);
		ASSERT_EQ(0, conn_accept(p->a, PORT));
		for (int i = 0; i < ARRAY_SIZE(streams); i++) {
			streams[i] = (struct stream){
				.fd = p->a,
				.cmd = i ? ULDMA_IOC_CONN_SEND :
					   ULDMA_IOC_CONN_PREPOST,
				.seed = i,
				.total = ~0ULL >> 1,
				.chunk = 40000,
			};
			ASSERT_EQ(0, pthread_create(&streams[i].thread, NULL,
						    flow, &streams[i]));
		}
		EXPECT_TRUE(eventually(conn_query(p->a).out_received > LENGTH));
		ASSERT_EQ(0, helper_kill(&child));
		for (int i = 0; i < ARRAY_SIZE(streams); i++) {
			pthread_join(streams[i].thread, NULL);
			/* Reset, if there was something that was lost. */
			ret = streams[i].result;
			EXPECT_TRUE(ret == -ECONNRESET || ret == -EPIPE)
				TH_LOG("round %d: %d", round, ret);
			stream_end(&streams[i]);
		}
		EXPECT_EQ(0, conn_disconnect(p->a));
		EXPECT_EQ(0, vm_pin());
	}
}

/**
 * struct looker - a thread that polls a file all the time
 * @fd: which
 * @stop: to make it end
 */
struct looker {
	int fd;
	bool stop;
};

static void *look(void *arg)
{
	struct looker *looker = arg;

	while (!__atomic_load_n(&looker->stop, __ATOMIC_RELAXED))
		conn_poll(looker->fd, POLLIN | POLLOUT, 0);
	return NULL;
}

/*
 * Threads let a listener become its connection while it is left and another
 * connection is made: that one stays, and nothing is left of the first.
 */
TEST_F_TIMEOUT(close, while_becoming, 240)
{
	struct pair *p = &self->pair;
	int other = conn_open_at(uldma_other(), 0);
	int fd = conn_open_at(uldma_other(), 0);
	struct looker looker = { .fd = p->a };
	__u64 end = now_ns() + RACING;
	pthread_t threads[8];

	ASSERT_LE(0, other);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, conn_listen(other, PORT, 4));
	for (int i = 0; i < ARRAY_SIZE(threads); i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, look, &looker));
	for (int round = 0; !round || now_ns() < end; round++) {
		ASSERT_EQ(0, conn_listen_once(p->a, PORT));
		ASSERT_EQ(0, conn_connect(p->b, p->to_a, PORT));
		ASSERT_EQ(0, conn_disconnect(p->a));
		ASSERT_EQ(0, conn_connect(p->a, p->to_b, PORT))
			TH_LOG("round %d", round);
		ASSERT_EQ(0, conn_accept(fd, PORT));
		ASSERT_EQ(conn_query(fd).out_name, conn_query(p->a).out_name)
			TH_LOG("round %d", round);
		ASSERT_EQ(0, conn_disconnect(p->a));
		ASSERT_EQ(0, conn_disconnect(fd));
		ASSERT_EQ(0, conn_disconnect(p->b));
	}
	__atomic_store_n(&looker.stop, true, __ATOMIC_RELAXED);
	for (int i = 0; i < ARRAY_SIZE(threads); i++)
		pthread_join(threads[i], NULL);
	EXPECT_TRUE(eventually(query(p->a).out_connections ==
			       self->connections));
	close(fd);
	close(other);
}

/* An exit of this process ends whatever it has, as the next test sees. */
TEST_F(close, by_exit)
{
	struct pair *p = &self->pair;

	ASSERT_EQ(0, pair_connect(p, 0));
	ASSERT_EQ(0, conn_send(p->b, self->src, LENGTH));
	ASSERT_EQ(0, conn_prepost(p->a, self->dst, LENGTH));
	ASSERT_EQ(0, conn_prepost(p->b, self->dst, LENGTH));
}

int main(int argc, char **argv)
{
	return pair_main(argc, argv);
}
