// SPDX-License-Identifier: GPL-2.0
/*
 * The rings of a connection, by both ends on one machine: who has them, who can
 * write them, and that no process can once the connection has ended.
 */
#include "uldma_conn_pair.h"

/* A word that no test writes. */
#define NOTHING 0x676e6968746f6eULL

static int listen_with(int fd, __u64 ring, __u32 flags)
{
	return conn_listen_as(fd, PORT, flags ? 0 : 4, flags, ring);
}

static int connect_with(const struct pair *p, int fd, __u64 ring)
{
	struct uldma_conn_connect arg = {
		.size = sizeof(arg),
		.peer = p->to_a,
		.port = PORT,
		.timeout_ns = PATIENCE,
		.offer.ring_length = ring,
	};

	return uldma_ioctl(fd, ULDMA_IOC_CONN_CONNECT, &arg);
}

/* A connection whose ends offer rings of so many bytes. */
static int pair_rings(struct pair *p, __u64 of_a, __u64 of_b)
{
	return listen_with(p->listener, of_a, 0) ?:
	       connect_with(p, p->b, of_b) ?: conn_accept(p->a, PORT);
}

static int ring_of(int fd, __u32 flags, struct segment *s)
{
	struct uldma_conn_ring arg = { .size = sizeof(arg), .flags = flags };
	int ret = uldma_ioctl(fd, ULDMA_IOC_CONN_RING, &arg);

	*s = (struct segment){
		.handle = arg.out_handle,
		.offset = arg.out_offset,
		.length = arg.out_length,
	};
	return ret;
}

/* Maps the ring as well. */
static int ring_map(int fd, __u32 flags, struct segment *s)
{
	return ring_of(fd, flags, s) ?: segment_map(fd, s);
}

/**
 * struct end - one end, and its mappings
 * @own: what it reads
 * @peer: what it writes
 */
struct end {
	struct segment own;
	struct segment peer;
};

static int end_map(int fd, struct end *end)
{
	return ring_map(fd, 0, &end->own) ?:
	       ring_map(fd, ULDMA_RING_PEER, &end->peer);
}

static void end_unmap(struct end *end)
{
	munmap(end->own.map, end->own.length);
	munmap(end->peer.map, end->peer.length);
}

static bool is_zero(const struct segment *s)
{
	for (size_t i = 0; i < s->length / sizeof(__u64); i++)
		if (READ_ONCE(s->map[i]))
			return false;
	return true;
}

/*
 * What the segment's next event says: 1 for rung, 0 for ended, or an error. An open
 * file with a connection reports events by POLLPRI, and the end of the connection by
 * POLLHUP, perhaps before that of its rings.
 */
static int doorbell_wait(int fd, __u32 handle)
{
	struct uldma_event event;

	while (eventually(conn_poll(fd, POLLPRI, SOON) & POLLPRI)) {
		if (read(fd, &event, sizeof(event)) != sizeof(event))
			return -errno;
		if (event.type == ULDMA_EVENT_DOORBELL && event.handle == handle)
			return event.value;
	}
	return -ETIMEDOUT;
}

static int doorbell_ring(int fd, __u32 handle)
{
	return handle_ioctl(fd, ULDMA_IOC_DOORBELL, handle);
}

FIXTURE(ring) {
	struct pair pair;
	struct end a;
	struct end b;
	size_t page;
	__u64 used_a;
	__u64 used_b;
};

FIXTURE_SETUP(ring)
{
	ASSERT_EQ(0, pair_open(&self->pair, 0));
	self->page = page_size();
	self->used_a = query(self->pair.a).out_window_used;
	self->used_b = query(self->pair.b).out_window_used;
}

/* Nothing of the window is left, whatever the test did. */
FIXTURE_TEARDOWN(ring)
{
	int a = conn_open_at(uldma_node(), 0);
	int b = conn_open_at(uldma_other(), 0);

	pair_close(&self->pair);
	EXPECT_TRUE(eventually(query(a).out_window_used == self->used_a));
	EXPECT_TRUE(eventually(query(b).out_window_used == self->used_b));
	close(a);
	close(b);
}

TEST_F(ring, carries_words_both_ways)
{
	struct pair *p = &self->pair;

	ASSERT_EQ(0, pair_rings(p, 3 * self->page, 1));
	EXPECT_EQ(self->page, conn_query(p->a).out_offer.ring_length);
	EXPECT_EQ(3 * self->page, conn_query(p->b).out_offer.ring_length);
	ASSERT_EQ(0, end_map(p->a, &self->a));
	ASSERT_EQ(0, end_map(p->b, &self->b));
	EXPECT_EQ(3 * self->page, self->a.own.length);
	EXPECT_EQ(3 * self->page, self->b.peer.length);
	EXPECT_EQ(self->page, self->b.own.length);
	EXPECT_EQ(self->page, self->a.peer.length);
	EXPECT_TRUE(is_zero(&self->a.own));
	EXPECT_TRUE(is_zero(&self->b.own));
	pattern_fill(self->b.peer.map, self->b.peer.length, 1);
	pattern_fill(self->a.peer.map, self->a.peer.length, 2);
	ASSERT_EQ(0, doorbell_ring(p->b, self->b.peer.handle));
	EXPECT_EQ(1, doorbell_wait(p->a, self->a.own.handle));
	EXPECT_EQ(-1, pattern_check(self->a.own.map, self->a.own.length, 1));
	ASSERT_EQ(0, doorbell_ring(p->a, self->a.peer.handle));
	EXPECT_EQ(1, doorbell_wait(p->b, self->b.own.handle));
	EXPECT_EQ(-1, pattern_check(self->b.own.map, self->b.own.length, 2));
	/* Its reader tells the writer that there is room. */
	ASSERT_EQ(0, doorbell_ring(p->a, self->a.own.handle));
	EXPECT_EQ(1, doorbell_wait(p->b, self->b.peer.handle));
	end_unmap(&self->a);
	end_unmap(&self->b);
}

/* Data of calls and of rings do not meet. */
TEST_F(ring, leaves_calls_alone)
{
	struct pair *p = &self->pair;
	__u64 sent = 7, received = 0;

	ASSERT_EQ(0, pair_rings(p, self->page, self->page));
	ASSERT_EQ(0, end_map(p->a, &self->a));
	ASSERT_EQ(0, conn_prepost(p->a, &received, sizeof(received)));
	ASSERT_EQ(0, conn_send_wait(p->b, &sent, sizeof(sent)));
	ASSERT_EQ(0, conn_recv_all(p->a, &received, sizeof(received)));
	EXPECT_EQ(sent, received);
	EXPECT_TRUE(is_zero(&self->a.own));
	end_unmap(&self->a);
}

FIXTURE(without) {
	struct pair pair;
	struct segment s;
};

FIXTURE_SETUP(without)
{
	ASSERT_EQ(0, pair_open(&self->pair, 0));
}

FIXTURE_TEARDOWN(without)
{
	pair_close(&self->pair);
}

/* Bytes of the rings that the two ends offer. */
FIXTURE_VARIANT(without) {
	__u64 a;
	__u64 b;
};

FIXTURE_VARIANT_ADD(without, any) { 0, 0 };
FIXTURE_VARIANT_ADD(without, own) { 0, 4096 };
FIXTURE_VARIANT_ADD(without, others) { 4096, 0 };
FIXTURE_VARIANT_ADD(without, room_at_the_listener) { 1ULL << 40, 4096 };
FIXTURE_VARIANT_ADD(without, room_at_the_connector) { 4096, 1ULL << 40 };
FIXTURE_VARIANT_ADD(without, room_at_all) { ~0ULL, ~0ULL };

/* The connection is there, and carries data by calls; no range is kept for a ring. */
TEST_F(without, goes_on_by_calls)
{
	struct pair *p = &self->pair;
	__u64 sent = 7, received = 0, used_a, used_b;

	ASSERT_EQ(0, pair_connect(p, 0));
	used_a = query(p->a).out_window_used;
	used_b = query(p->b).out_window_used;
	ASSERT_EQ(0, conn_disconnect(p->b));
	ASSERT_EQ(0, conn_disconnect(p->a));
	ASSERT_EQ(0, conn_disconnect(p->listener));

	ASSERT_EQ(0, pair_rings(p, variant->a, variant->b));
	EXPECT_EQ(used_a, query(p->a).out_window_used);
	EXPECT_EQ(used_b, query(p->b).out_window_used);
	for (int i = 0; i < 4; i++) {
		int fd = i & 1 ? p->a : p->b;

		EXPECT_EQ(-ENOENT, ring_of(fd, i & 2 ? ULDMA_RING_PEER : 0, &self->s));
		EXPECT_EQ(0, conn_query(fd).out_offer.ring_length);
	}
	ASSERT_EQ(0, conn_prepost(p->a, &received, sizeof(received)));
	ASSERT_EQ(0, conn_send_wait(p->b, &sent, sizeof(sent)));
	ASSERT_EQ(0, conn_recv_all(p->a, &received, sizeof(received)));
	EXPECT_EQ(sent, received);
}

TEST_F(ring, bad_arguments)
{
	struct uldma_conn_ring arg = { .size = sizeof(arg) };
	struct pair *p = &self->pair;

	EXPECT_EQ(-ENOTCONN, ring_of(p->a, 0, &self->a.own));
	ASSERT_EQ(0, listen_with(p->listener, self->page, 0));
	EXPECT_EQ(-ENOTCONN, ring_of(p->listener, 0, &self->a.own));
	ASSERT_EQ(0, connect_with(p, p->b, self->page));
	ASSERT_EQ(0, conn_accept(p->a, PORT));
	arg.flags = ULDMA_RING_PEER << 1;
	EXPECT_EQ(-EOPNOTSUPP, uldma_ioctl(p->a, ULDMA_IOC_CONN_RING, &arg));
	arg.flags = 0;
	arg.reserved = 1;
	EXPECT_EQ(-EINVAL, uldma_ioctl(p->a, ULDMA_IOC_CONN_RING, &arg));
	EXPECT_EQ(0, arg.out_handle);
}

TEST_F(ring, has_one_segment_at_a_time)
{
	struct pair *p = &self->pair;
	struct segment again;

	ASSERT_EQ(0, pair_rings(p, self->page, self->page));
	ASSERT_EQ(0, end_map(p->a, &self->a));
	EXPECT_EQ(-EBUSY, ring_of(p->a, 0, &again));
	EXPECT_EQ(-EBUSY, ring_of(p->a, ULDMA_RING_PEER, &again));
	ASSERT_EQ(0, ring_map(p->b, 0, &self->b.own));
	WRITE_ONCE(self->a.peer.map[0], 5);
	end_unmap(&self->a);
	ASSERT_EQ(0, segment_destroy(p->a, self->a.own.handle));
	ASSERT_EQ(0, segment_destroy(p->a, self->a.peer.handle));
	EXPECT_EQ(-ENOENT, doorbell_ring(p->a, self->a.peer.handle));
	/* What was written stays. */
	ASSERT_EQ(0, end_map(p->a, &self->a));
	WRITE_ONCE(self->a.peer.map[1], 6);
	ASSERT_EQ(0, doorbell_ring(p->a, self->a.peer.handle));
	EXPECT_EQ(1, doorbell_wait(p->b, self->b.own.handle));
	EXPECT_EQ(5, READ_ONCE(self->b.own.map[0]));
	EXPECT_EQ(6, READ_ONCE(self->b.own.map[1]));
	munmap(self->b.own.map, self->b.own.length);
	end_unmap(&self->a);
}

/* Only the connection's open file maps them. */
TEST_F(ring, is_mapped_by_its_file_only)
{
	struct pair *p = &self->pair;
	int other = conn_open_at(uldma_node(), 0);

	ASSERT_LE(0, other);
	ASSERT_EQ(0, pair_rings(p, self->page, self->page));
	ASSERT_EQ(0, end_map(p->a, &self->a));
	EXPECT_EQ(-EINVAL, segment_map(other, &self->a.own));
	EXPECT_EQ(-EINVAL, segment_map(other, &self->a.peer));
	EXPECT_EQ(-EINVAL, segment_map(p->listener, &self->a.peer));
	end_unmap(&self->a);
	close(other);
}

/* How the one end goes, of which the other learns. */
enum way { DISCONNECT, CLOSE };

FIXTURE(over) {
	struct pair pair;
	struct end a;
	struct end b;
	size_t page;
};

FIXTURE_VARIANT(over) { enum way way; };
FIXTURE_VARIANT_ADD(over, disconnect) { DISCONNECT };
FIXTURE_VARIANT_ADD(over, close) { CLOSE };

FIXTURE_SETUP(over)
{
	ASSERT_EQ(0, pair_open(&self->pair, 0));
	self->page = page_size();
}

FIXTURE_TEARDOWN(over)
{
	pair_close(&self->pair);
}

static int leave(int *fd, enum way way)
{
	int ret = way == DISCONNECT ? conn_disconnect(*fd) : 0;

	if (way == CLOSE) {
		close(*fd);
		*fd = -1;
	}
	return ret;
}

/* What was written is read after the end, even by one who comes late. */
TEST_F(over, keeps_what_was_written)
{
	struct pair *p = &self->pair;

	ASSERT_EQ(0, pair_rings(p, self->page, self->page));
	ASSERT_EQ(0, ring_map(p->b, ULDMA_RING_PEER, &self->b.peer));
	pattern_fill(self->b.peer.map, self->page, 3);
	munmap(self->b.peer.map, self->page);
	ASSERT_EQ(0, leave(&p->b, variant->way));
	ASSERT_TRUE(conn_has_ended(p->a));
	ASSERT_EQ(0, end_map(p->a, &self->a));
	EXPECT_EQ(-1, pattern_check(self->a.own.map, self->page, 3));
	EXPECT_EQ(0, doorbell_wait(p->a, self->a.peer.handle));
	EXPECT_EQ(-ESTALE, doorbell_ring(p->a, self->a.peer.handle));
	WRITE_ONCE(self->a.peer.map[0], 1);
	EXPECT_EQ(1, READ_ONCE(self->a.peer.map[0]));
	end_unmap(&self->a);
}

/*
 * The mappings of an end that stays lead nowhere: the other end's range is free, and
 * the next connection has it.
 */
TEST_F(over, the_next_one_is_not_reached)
{
	struct pair *p = &self->pair;
	struct end next_a, next_b;
	struct pair next, last;

	ASSERT_EQ(0, pair_rings(p, self->page, self->page));
	ASSERT_EQ(0, end_map(p->a, &self->a));
	ASSERT_EQ(0, end_map(p->b, &self->b));
	WRITE_ONCE(self->a.peer.map[0], 1);
	end_unmap(&self->b);
	ASSERT_EQ(0, leave(&p->b, variant->way));
	EXPECT_EQ(0, doorbell_wait(p->a, self->a.peer.handle));

	ASSERT_EQ(0, pair_open(&next, 0));
	ASSERT_EQ(0, connect_with(p, next.b, self->page));
	ASSERT_EQ(0, conn_accept(next.a, PORT));
	ASSERT_EQ(0, end_map(next.b, &next_b));
	EXPECT_TRUE(is_zero(&next_b.own));
	pattern_fill(self->a.peer.map, self->page, 4);
	EXPECT_TRUE(is_zero(&next_b.own));

	/* Nor by the mapping of one's own ring, once this side has disconnected. */
	WRITE_ONCE(self->a.own.map[0], NOTHING);
	ASSERT_EQ(0, conn_disconnect(p->a));
	EXPECT_NE(NOTHING, READ_ONCE(self->a.own.map[0]));
	EXPECT_EQ(-ESTALE, doorbell_ring(p->a, self->a.own.handle));
	ASSERT_EQ(0, pair_open(&last, 0));
	ASSERT_EQ(0, connect_with(p, last.b, self->page));
	ASSERT_EQ(0, conn_accept(last.a, PORT));
	ASSERT_EQ(0, end_map(last.a, &next_a));
	EXPECT_TRUE(is_zero(&next_a.own));
	pattern_fill(self->a.own.map, self->page, 5);
	EXPECT_TRUE(is_zero(&next_a.own));
	end_unmap(&next_a);
	end_unmap(&next_b);
	end_unmap(&self->a);
	pair_close(&next);
	pair_close(&last);
}

/* A one-shot listener has the rings of its connection. */
TEST_F(ring, of_a_listener_that_becomes_its_connection)
{
	struct pair *p = &self->pair;

	ASSERT_EQ(0, listen_with(p->a, self->page, ULDMA_LISTEN_ONCE));
	ASSERT_EQ(0, connect_with(p, p->b, self->page));
	ASSERT_EQ(0, end_map(p->a, &self->a));
	ASSERT_EQ(0, ring_map(p->b, ULDMA_RING_PEER, &self->b.peer));
	WRITE_ONCE(self->b.peer.map[0], 9);
	ASSERT_EQ(0, doorbell_ring(p->b, self->b.peer.handle));
	EXPECT_EQ(1, doorbell_wait(p->a, self->a.own.handle));
	EXPECT_EQ(9, READ_ONCE(self->a.own.map[0]));
	munmap(self->b.peer.map, self->page);
	end_unmap(&self->a);
}

/* The ends of a connection come in either order, and its range is used again. */
TEST_F(ring, many_in_turn)
{
	struct pair *p = &self->pair;

	ASSERT_EQ(0, listen_with(p->listener, self->page, 0));
	for (int round = 1; round <= 100; round++) {
		ASSERT_EQ(0, connect_with(p, p->b, self->page));
		ASSERT_EQ(0, conn_accept(p->a, PORT));
		ASSERT_EQ(0, end_map(p->a, &self->a));
		ASSERT_EQ(0, end_map(p->b, &self->b));
		ASSERT_TRUE(is_zero(&self->a.own) && is_zero(&self->b.own));
		pattern_fill(self->b.peer.map, self->page, round);
		ASSERT_EQ(0, conn_disconnect(round & 1 ? p->a : p->b));
		pattern_fill(self->b.peer.map, self->page, round + 1);
		pattern_fill(self->a.peer.map, self->page, round + 2);
		ASSERT_EQ(0, conn_disconnect(round & 1 ? p->b : p->a));
		end_unmap(&self->a);
		end_unmap(&self->b);
		ASSERT_EQ(0, segment_destroy(p->a, self->a.own.handle));
		ASSERT_EQ(0, segment_destroy(p->a, self->a.peer.handle));
		ASSERT_EQ(0, segment_destroy(p->b, self->b.own.handle));
		ASSERT_EQ(0, segment_destroy(p->b, self->b.peer.handle));
	}
}

int main(int argc, char **argv)
{
	return pair_main(argc, argv);
}
