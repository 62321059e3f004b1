// SPDX-License-Identifier: GPL-2.0
/*
 * A connection delivers the bytes that were sent, for all sizes of buffers,
 * alignments and boundaries of the memory on both sides.
 */
#include "uldma_conn_pair.h"
#include "uldma_conn_stream.h"

#define MEGABYTE (1024UL * 1024)
#define LARGE (16 * MEGABYTE)
/* Bytes on each side of a buffer that are checked. */
#define EDGE 128

FIXTURE(data) {
	struct pair pair;
	char *src;
	char *dst;
	struct range range;
};

FIXTURE_VARIANT(data) {
	__u32 flags;
};

FIXTURE_SETUP(data)
{
	int ret;

	ASSERT_EQ(0, pair_open(&self->pair, 0));
	ret = pair_connect(&self->pair, variant->flags);
	if (variant->flags && ret == -EOPNOTSUPP)
		SKIP(return, "data goes through the window, so pushed only");
	ASSERT_EQ(0, ret);
	self->src = buffer(MEGABYTE);
	self->dst = buffer(MEGABYTE);
	ASSERT_NE(NULL, self->src);
	ASSERT_NE(NULL, self->dst);
}

FIXTURE_TEARDOWN(data)
{
	pair_close(&self->pair);
}

FIXTURE_VARIANT_ADD(data, push) { 0 };
FIXTURE_VARIANT_ADD(data, pull) { ULDMA_CONNECT_PULL };

static const size_t sizes[] = {
	1, 2, 7, 8, 9, 63, 64, 65, 511, 4095, 4096, 4097, 12345, 65536, 300001,
	MEGABYTE + 13, LARGE,
};

static const size_t offsets[] = { 0, 1, 7, 8, 63, 4095, 4096 + 13 };

static bool edges_kept(const char *buf, size_t length)
{
	for (int i = 0; i < EDGE; i++)
		if ((unsigned char)buf[-1 - i] != STREAM_GUARD ||
		    (unsigned char)buf[length + i] != STREAM_GUARD)
			return false;
	return true;
}

/* One buffer of each side that fit each other. */
TEST_F_TIMEOUT(data, sizes, 240)
{
	struct pair *p = &self->pair;
	char *src = buffer(2 * LARGE);
	char *dst = buffer(2 * LARGE);
	size_t length, from, to;
	int n = 0;

	ASSERT_NE(NULL, src);
	ASSERT_NE(NULL, dst);
	for (int i = 0; i < ARRAY_SIZE(sizes); i++)
		for (int j = 0; j < ARRAY_SIZE(offsets); j++, n++) {
			length = sizes[i];
			from = EDGE + offsets[j];
			to = EDGE + offsets[(i + 3 * j) % ARRAY_SIZE(offsets)];
			if (length > MEGABYTE && j > 1)
				continue;
			stream_fill(src + from, length, n, 0);
			memset(dst, STREAM_GUARD, to + length + EDGE);
			ASSERT_EQ(0, conn_prepost(p->a, dst + to, length));
			ASSERT_EQ(0, conn_send(p->b, src + from, length));
			ASSERT_EQ(0, conn_recv_all(p->a, dst + to, length));
			ASSERT_EQ(0, conn_recycle_all(p->b, src + from,
						      length));
			EXPECT_EQ(-1, stream_check(dst + to, length, n, 0))
				TH_LOG("%zu bytes from %zu to %zu", length,
				       from, to);
			EXPECT_TRUE(edges_kept(dst + to, length));
		}
	EXPECT_EQ(0, conn_query(p->a).out_posted);
	EXPECT_EQ(0, conn_query(p->b).out_unsent);
	EXPECT_EQ(0, vm_pin());
}

TEST_F(data, many_into_one)
{
	struct pair *p = &self->pair;

	stream_fill(self->src, 10000, 1, 0);
	ASSERT_EQ(0, conn_prepost(p->a, self->dst + 1, 3000));
	for (int i = 0; i < 3; i++)
		ASSERT_EQ(0, conn_send(p->b, self->src + 1000 * i, 1000));
	ASSERT_EQ(0, conn_recv_all(p->a, self->dst + 1, 3000));
	EXPECT_EQ(-1, stream_check(self->dst + 1, 3000, 1, 0));
	ASSERT_EQ(0, conn_recycle_all(p->b, self->src, 3000));
}

TEST_F(data, one_into_many)
{
	struct pair *p = &self->pair;

	stream_fill(self->src, 3000, 1, 0);
	for (int i = 0; i < 3; i++)
		ASSERT_EQ(0, conn_prepost(p->a, self->dst + 4000 * i, 1000));
	ASSERT_EQ(0, conn_send(p->b, self->src, 3000));
	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(0, conn_recv_all(p->a, self->dst + 4000 * i, 1000));
		EXPECT_EQ(-1, stream_check(self->dst + 4000 * i, 1000, 1,
					   1000 * i));
	}
	ASSERT_EQ(0, conn_recycle_all(p->b, self->src, 3000));
}

/* The side that posts first has to wait for the other. */
TEST_F(data, sent_before_posted)
{
	struct pair *p = &self->pair;

	stream_fill(self->src, 5000, 1, 0);
	ASSERT_EQ(0, conn_send(p->b, self->src, 5000));
	EXPECT_EQ(5000, conn_query(p->b).out_unsent);
	EXPECT_EQ(0, conn_query(p->b).out_sent);
	ASSERT_EQ(0, conn_recv_into(p->a, self->dst, 1234));
	ASSERT_EQ(0, conn_recv_into(p->a, self->dst + 1234, 5000 - 1234));
	EXPECT_EQ(-1, stream_check(self->dst, 5000, 1, 0));
	ASSERT_EQ(0, conn_recycle_all(p->b, self->src, 5000));
	EXPECT_EQ(5000, conn_query(p->b).out_sent);
	EXPECT_EQ(0, conn_query(p->b).out_unsent);
	EXPECT_EQ(5000, conn_query(p->a).out_received);
}

/* One call gets what is next to each other, and no more than is asked for. */
TEST_F(data, received_at_once)
{
	struct pair *p = &self->pair;
	char *apart = self->dst + 10000;

	ASSERT_EQ(0, conn_prepost(p->a, self->dst, 1000));
	ASSERT_EQ(0, conn_prepost(p->a, self->dst + 1000, 2000));
	ASSERT_EQ(0, conn_prepost(p->a, apart, 500));
	ASSERT_EQ(0, conn_send(p->b, self->src, 3500));
	ASSERT_TRUE(eventually(conn_query(p->a).out_received == 3500));
	ASSERT_EQ(0, conn_recv(p->a, 10, &self->range));
	EXPECT_EQ(self->dst, self->range.addr);
	EXPECT_EQ(10, self->range.length);
	ASSERT_EQ(0, conn_recv(p->a, LARGE, &self->range));
	EXPECT_EQ(self->dst + 10, self->range.addr);
	EXPECT_EQ(2990, self->range.length);
	ASSERT_EQ(0, conn_recv(p->a, LARGE, &self->range));
	EXPECT_EQ(apart, self->range.addr);
	EXPECT_EQ(500, self->range.length);
}

TEST_F(data, partly_filled)
{
	struct pair *p = &self->pair;

	ASSERT_EQ(0, fcntl(p->a, F_SETFL, O_NONBLOCK));
	stream_fill(self->src, 3000, 1, 0);
	ASSERT_EQ(0, conn_prepost(p->a, self->dst, 3000));
	EXPECT_EQ(3000, conn_query(p->a).out_posted);
	ASSERT_EQ(0, conn_send_wait(p->b, self->src, 1000));
	ASSERT_TRUE(conn_poll(p->a, POLLIN, SOON) & POLLIN);
	ASSERT_EQ(0, conn_recv_all(p->a, self->dst, 1000));
	EXPECT_EQ(2000, conn_query(p->a).out_posted);
	EXPECT_EQ(-EAGAIN, conn_recv(p->a, 1, &self->range));
	ASSERT_EQ(0, conn_send_wait(p->b, self->src + 1000, 2000));
	ASSERT_TRUE(eventually(conn_query(p->a).out_received == 3000));
	ASSERT_EQ(0, conn_recv_all(p->a, self->dst + 1000, 2000));
	EXPECT_EQ(-1, stream_check(self->dst, 3000, 1, 0));
}

/* Memory comes back in the order in which it was given. */
TEST_F(data, recycled_in_order)
{
	struct pair *p = &self->pair;
	char *parts[4];

	ASSERT_EQ(0, fcntl(p->b, F_SETFL, O_NONBLOCK));
	for (int i = 0; i < ARRAY_SIZE(parts); i++) {
		parts[i] = self->src + 8192 * ((i + 2) % 4);
		ASSERT_EQ(0, conn_send(p->b, parts[i], 1000));
	}
	EXPECT_EQ(-EAGAIN, conn_recycle(p->b, LARGE, &self->range));
	for (int i = 0; i < ARRAY_SIZE(parts); i++) {
		ASSERT_EQ(0, conn_recv_into(p->a, self->dst, 1000));
		ASSERT_TRUE(conn_poll(p->b, POLLOUT, SOON) & POLLOUT);
		ASSERT_EQ(0, conn_recycle(p->b, LARGE, &self->range));
		EXPECT_EQ(parts[i], self->range.addr);
		EXPECT_EQ(1000, self->range.length);
		EXPECT_EQ(-EAGAIN, conn_recycle(p->b, LARGE, &self->range));
	}
}

/* A connection takes data before it is accepted. */
TEST_F(data, sent_before_accepted)
{
	struct pair *p = &self->pair;
	int fd = conn_open_at(uldma_other(), 0);

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, conn_disconnect(p->a));
	ASSERT_EQ(0, conn_connect_as(fd, p->to_a, PORT, variant->flags));
	stream_fill(self->src, 1000, 1, 0);
	ASSERT_EQ(0, conn_prepost(fd, self->dst + 5000, 100));
	ASSERT_EQ(0, conn_send(fd, self->src, 1000));
	ASSERT_EQ(0, conn_accept(p->a, PORT));
	ASSERT_EQ(0, conn_recv_into(p->a, self->dst, 1000));
	EXPECT_EQ(-1, stream_check(self->dst, 1000, 1, 0));
	ASSERT_EQ(0, conn_send_wait(p->a, self->src + 100, 100));
	ASSERT_EQ(0, conn_recv_all(fd, self->dst + 5000, 100));
	EXPECT_EQ(-1, stream_check(self->dst + 5000, 100, 1, 100));
	close(fd);
}

/* Data that was sent before the end arrives, followed by the end. */
TEST_F(data, end_of_stream)
{
	struct pair *p = &self->pair;

	stream_fill(self->src, 1000, 1, 0);
	ASSERT_EQ(0, conn_prepost(p->a, self->dst, 3000));
	ASSERT_EQ(0, conn_send_wait(p->b, self->src, 1000));
	ASSERT_EQ(0, conn_disconnect(p->b));
	EXPECT_TRUE(conn_poll(p->a, POLLRDHUP, SOON) & POLLRDHUP);
	EXPECT_EQ(-EPIPE, conn_send(p->a, self->src, 1));
	ASSERT_EQ(0, conn_recv_all(p->a, self->dst, 1000));
	EXPECT_EQ(-1, stream_check(self->dst, 1000, 1, 0));
	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(0, conn_recv(p->a, LARGE, &self->range));
		EXPECT_EQ(0, self->range.length);
	}
	EXPECT_EQ(0, conn_disconnect(p->a));
	EXPECT_EQ(0, vm_pin());
}

/* Bytes of one buffer: of the sender, of the receiver, and between them. */
static const struct {
	size_t sends;
	size_t send_lead;
	size_t receives;
	size_t receive_lead;
	__u64 total;
} boundaries[] = {
	{ 1, 1, 1, 1, 300 },
	{ 1, 0, 4096, 0, 300 },
	{ 100, 3, 1, 7, 500 },
	{ 1000, 24, 777, 13, 200000 },
	{ 777, 13, 1000, 24, 200000 },
	{ 4096, 0, 4096, 0, MEGABYTE },
	{ 4096, 0, 10007, 1, MEGABYTE },
	{ 65536, 64, 4097, 0, 2 * MEGABYTE },
	{ 300001, 5, MEGABYTE, 0, 8 * MEGABYTE },
};

TEST_F_TIMEOUT(data, boundaries, 240)
{
	for (int i = 0; i < ARRAY_SIZE(boundaries); i++) {
		struct stream streams[] = { {
			.fd = self->pair.b,
			.cmd = ULDMA_IOC_CONN_SEND,
			.seed = i,
			.total = boundaries[i].total,
			.chunk = boundaries[i].sends,
			.lead = boundaries[i].send_lead,
		}, {
			.fd = self->pair.a,
			.cmd = ULDMA_IOC_CONN_PREPOST,
			.seed = i,
			.total = boundaries[i].total,
			.chunk = boundaries[i].receives,
			.lead = boundaries[i].receive_lead,
		} };

		ASSERT_EQ(0, streams_run(streams, ARRAY_SIZE(streams)))
			TH_LOG("%zu bytes into %zu, wrong at %lld", streams[0].chunk,
			       streams[1].chunk, streams[1].wrong);
	}
}

/* Both sides of a connection send as much as they can, and take it. */
static int flood(int a, int b, __u64 seed, __u64 total)
{
	struct stream streams[4] = { };

	for (int i = 0; i < ARRAY_SIZE(streams); i++)
		streams[i] = (struct stream){
			.fd = i % 2 ? b : a,
			.cmd = i < 2 ? ULDMA_IOC_CONN_SEND :
				       ULDMA_IOC_CONN_PREPOST,
			/* One sends the bytes that the other receives. */
			.seed = seed + (i == 1 || i == 2),
			.total = total,
			.chunk = i < 2 ? 40009 : 65536,
			.lead = i,
			.slots = 16,
		};
	return streams_run(streams, ARRAY_SIZE(streams));
}

TEST_F_TIMEOUT(data, both_directions, 120)
{
	struct pair *p = &self->pair;
	__u64 total = 8 * MEGABYTE;
	__u64 copies;

	ASSERT_EQ(0, flood(p->a, p->b, 1, total));
	EXPECT_EQ(total, conn_query(p->a).out_sent);
	EXPECT_EQ(total, conn_query(p->b).out_sent);
	EXPECT_EQ(total, conn_query(p->a).out_received);
	EXPECT_EQ(total, conn_query(p->b).out_received);
	/* One copy, end to end, if the nodes can reach each other's memory. */
	copies = conn_query(p->a).out_flags & ULDMA_CONN_WINDOW ? 2 : 1;
	EXPECT_EQ(2 * total * copies, conn_query(p->a).out_copied +
				      conn_query(p->b).out_copied);
	EXPECT_EQ(0, vm_pin());
}

#define PROCESSES 4

static void flood_alone(int fd, void *arg)
{
	long number = (long)arg;
	struct pair p;
	char done;
	int ret;

	ret = pair_open(&p, 0) ?:
	      conn_listen(p.listener, PORT + 1 + number, 1) ?:
	      conn_connect(p.b, p.to_a, PORT + 1 + number) ?:
	      conn_accept(p.a, PORT + 1 + number) ?:
	      flood(p.a, p.b, 10 * number, 2 * MEGABYTE);
	done = ret ? 'n' : 'y';
	if (write(fd, &done, 1) != 1)
		_exit(1);
}

/* No connection gets the data of another. */
TEST_F_TIMEOUT(data, processes, 240)
{
	struct helper helpers[PROCESSES];
	char done = 0;

	for (long i = 0; i < PROCESSES; i++)
		ASSERT_EQ(0, helper_start(&helpers[i], flood_alone, (void *)i));
	for (int i = 0; i < PROCESSES; i++) {
		EXPECT_EQ(1, read(helpers[i].fd, &done, 1));
		EXPECT_EQ('y', done);
	}
	for (int i = 0; i < PROCESSES; i++)
		helper_kill(&helpers[i]);
}

int main(int argc, char **argv)
{
	return pair_main(argc, argv);
}
