// SPDX-License-Identifier: GPL-2.0
/*
 * Messages to and from the other node, which the devices match with posted
 * buffers.
 */
#include "uldma_harness.h"
#include "uldma_peer_client.h"
#include "uldma_endpoint.h"
#include "uldma_exchange.h"
#include "uldma_two_nodes.h"
#include "uldma_window.h"

#define LENGTH (256 * 1024)
#define SLOT 0

FIXTURE(message) {
	struct peer peer;
	int fd;
	char *memory;
	struct region r;
	struct context c;
	struct endpoint e;
	__u32 node;
	__u32 index;
	__u64 generation;
};

FIXTURE_SETUP(message)
{
	self->fd = uldma_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	if (!link_up(self->fd))
		SKIP(return, "the link is down");
	ASSERT_EQ(0, endpoint_create(self->fd, NO_LIMIT, LENGTH, &self->e));
	self->memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->memory);
	pattern_fill(self->memory, LENGTH, 1);
	ASSERT_EQ(0, region_register(self->fd, self->memory, LENGTH, RW,
				     &self->r));
	ASSERT_EQ(0, context_create_as(self->fd, ULDMA_METHOD_QUEUE, 0,
				       &self->c));
	ASSERT_EQ(0, context_map(self->fd, &self->c));
	ASSERT_EQ(0, peer_connect(&self->peer));
	self->node = peer_call(&self->peer, PEER_NODE);
	self->index = peer_call(&self->peer, PEER_ENDPOINT, { SLOT, LENGTH });
	self->generation = peer_call(&self->peer, PEER_ENDPOINT_NAME, { SLOT });
	ASSERT_EQ(0, endpoint_connect(self->fd, &self->e, self->node,
				      self->index, self->generation));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_ENDPOINT_CONNECT,
			       { SLOT, query(self->fd).out_node, self->e.index,
				 self->e.generation }));
}

FIXTURE_TEARDOWN(message)
{
	close(self->peer.fd);
	close(self->fd);
}

static int message_send(struct _test_data_message *self, __u64 at, __u64 length)
{
	return queue_do(&self->c, message_of(&self->e, self->r.index, at, length),
			NULL);
}

TEST_F(message, lands_in_the_posted_buffer)
{
	static const __u64 lengths[] = { 1, 8, 4096, 4097, 100001, LENGTH };

	for (int i = 0; i < ARRAY_SIZE(lengths); i++) {
		__u64 length = lengths[i];

		ASSERT_EQ(i + 1, peer_call(&self->peer, PEER_ENDPOINT_POST,
					   { SLOT, 0, LENGTH }));
		ASSERT_EQ(0, peer_call(&self->peer, PEER_FILL, { SLOT, 9 }));
		ASSERT_EQ(0, message_send(self, 0, length));
		EXPECT_EQ(i + 1, peer_call(&self->peer, PEER_ENDPOINT_WAIT,
					   { SLOT, i + 1 }));
		EXPECT_EQ(length, peer_call(&self->peer, PEER_ENDPOINT_BYTES,
					    { SLOT, i + 1 }));
		EXPECT_EQ(-1, peer_call(&self->peer, PEER_CHECK,
					{ SLOT, 0, length, 1 }));
	}
}

TEST_F(message, comes_back)
{
	for (int i = 1; i <= 100; i++) {
		ASSERT_EQ(i, endpoint_post(&self->e, self->r.index, 0, 64));
		endpoint_ring(&self->e, &self->c);
		ASSERT_EQ(0, peer_call(&self->peer, PEER_FILL, { SLOT, i }));
		ASSERT_EQ(0, peer_call(&self->peer, PEER_ENDPOINT_SEND,
				       { SLOT, 0, 64 }));
		ASSERT_EQ(i, endpoint_wait(self->fd, &self->e, i, PATIENCE));
		EXPECT_EQ(64, endpoint_record(&self->e, i).bytes);
		EXPECT_EQ(-1, pattern_check(self->memory, 64, i));
	}
}

/* The program writes to the window what is sent, and reads from there what comes. */
TEST_F(message, through_the_window)
{
	struct window w;

	ASSERT_EQ(0, window_make(self->fd, RW, LENGTH, &w));
	pattern_fill(w.at, LENGTH, 3);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	ASSERT_EQ(1, peer_call(&self->peer, PEER_ENDPOINT_POST,
			       { SLOT, 0, LENGTH }));
	ASSERT_EQ(0, queue_do(&self->c,
			      message_of(&self->e, w.r.index, 0, LENGTH), NULL));
	EXPECT_EQ(1, peer_call(&self->peer, PEER_ENDPOINT_WAIT, { SLOT, 1 }));
	EXPECT_EQ(-1, peer_call(&self->peer, PEER_CHECK, { SLOT, 0, LENGTH, 3 }));

	ASSERT_EQ(1, endpoint_post(&self->e, w.r.index, 0, LENGTH));
	endpoint_ring(&self->e, &self->c);
	ASSERT_EQ(0, peer_call(&self->peer, PEER_FILL, { SLOT, 4 }));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_ENDPOINT_SEND,
			       { SLOT, 0, LENGTH }));
	ASSERT_EQ(1, endpoint_wait(self->fd, &self->e, 1, PATIENCE));
	EXPECT_EQ(LENGTH, endpoint_record(&self->e, 1).bytes);
	EXPECT_EQ(-1, pattern_check(w.at, LENGTH, 4));

	/* A buffer that has ended takes no message. */
	ASSERT_EQ(2, endpoint_post(&self->e, w.r.index, 0, LENGTH));
	ASSERT_EQ(0, region_unregister(self->fd, w.r.handle));
	endpoint_ring(&self->e, &self->c);
	ASSERT_EQ(ULDMA_DMA_REMOTE, peer_call(&self->peer, PEER_ENDPOINT_SEND,
					      { SLOT, 0, LENGTH }));
	ASSERT_EQ(2, endpoint_wait(self->fd, &self->e, 2, PATIENCE));
	EXPECT_EQ(ULDMA_DMA_NOT_VALID, endpoint_record(&self->e, 2).status);
}

TEST_F(message, waits_for_its_buffer)
{
	__s64 tickets[50];

	for (int i = 0; i < 50; i++) {
		struct uldma_descriptor d =
			message_of(&self->e, self->r.index, i * 1000, 1000);

		tickets[i] = queue_post(&self->c, &d);
		ASSERT_LT(0, tickets[i]);
	}
	queue_ring(&self->c);
	EXPECT_EQ(0, self->c.status->completed);
	for (int i = 0; i < 50; i++) {
		ASSERT_EQ(i + 1, peer_call(&self->peer, PEER_ENDPOINT_POST,
					   { SLOT, i * 1000, 1000 }));
		ASSERT_EQ(0, peer_call(&self->peer, PEER_ENDPOINT_RING, { SLOT }));
		EXPECT_EQ(0, status_of(&self->c, tickets[i]));
	}
	EXPECT_EQ(50, peer_call(&self->peer, PEER_ENDPOINT_WAIT, { SLOT, 50 }));
	EXPECT_EQ(-1, peer_call(&self->peer, PEER_CHECK, { SLOT, 0, 50000, 1 }));
}

/* A call of the receiver wakes the device as its store would. */
TEST_F(message, waits_for_a_receiver_that_sleeps)
{
	struct uldma_descriptor d = message_of(&self->e, self->r.index, 0, 8);
	__s64 ticket = queue_post(&self->c, &d);

	queue_ring(&self->c);
	ASSERT_EQ(1, peer_call(&self->peer, PEER_ENDPOINT_POST, { SLOT, 0, 8 }));
	EXPECT_EQ(1, peer_call(&self->peer, PEER_ENDPOINT_WAIT, { SLOT, 1 }));
	EXPECT_EQ(0, status_of(&self->c, ticket));
}

/* Sends all of some memory, but the peer has posted no buffer yet. */
static __s64 send_early(struct _test_data_message *self, struct memory *m)
{
	struct uldma_descriptor d =
		message_of(&self->e, m->r.index, 0, LENGTH);
	__s64 ticket = queue_post(&self->c, &d);

	queue_ring(&self->c);
	return ticket;
}

static int receive_late(struct _test_data_message *self, __s64 ticket)
{
	int ret = peer_call(&self->peer, PEER_ENDPOINT_POST, { SLOT, 0, LENGTH });

	if (ret < 0 || peer_call(&self->peer, PEER_ENDPOINT_RING, { SLOT }))
		return -EPROTO;
	return status_of(&self->c, ticket);
}

static int sent_memory(struct _test_data_message *self, struct memory *m)
{
	int ret = memory_create(self->fd, LENGTH, m) ?: memory_map(self->fd, m);

	if (!ret)
		pattern_fill(m->at, LENGTH, 1);
	return ret;
}

/* What the program writes while the message waits does not arrive. */
TEST_F(message, is_protected_while_it_is_sent)
{
	struct memory m;
	__s64 ticket;

	ASSERT_EQ(0, sent_memory(self, &m));
	for (int i = 1; i < 4; i++) {
		ASSERT_EQ(0, memory_protect(self->fd, &m, 0, LENGTH));
		ticket = send_early(self, &m);
		ASSERT_LT(0, ticket);
		pattern_fill(m.at, LENGTH, i + 1);
		EXPECT_EQ(0, receive_late(self, ticket));
		EXPECT_EQ(-1, peer_call(&self->peer, PEER_CHECK,
					{ SLOT, 0, LENGTH, i }));
		EXPECT_EQ(LENGTH / page_size(),
			  memory_release(self->fd, &m, 0, LENGTH));
		EXPECT_EQ(-1, pattern_check(m.at, LENGTH, i + 1));
	}
}

/* Without protection it does. */
TEST_F(message, changes_while_it_is_sent)
{
	struct memory m;
	__s64 ticket;

	ASSERT_EQ(0, sent_memory(self, &m));
	ticket = send_early(self, &m);
	ASSERT_LT(0, ticket);
	pattern_fill(m.at, LENGTH, 2);
	EXPECT_EQ(0, receive_late(self, ticket));
	EXPECT_EQ(-1, peer_call(&self->peer, PEER_CHECK,
				{ SLOT, 0, LENGTH, 2 }));
}

/* Each message is taken out of the slot by exchange, and stays. */
TEST_F(message, is_exchanged_for_other_pages)
{
	struct memory m[3], slots;
	int i;

	for (i = 0; i < 3; i++)
		ASSERT_EQ(0, sent_memory(self, &m[i]));
	ASSERT_EQ(0, memory_create(self->fd, LENGTH, &slots));
	for (i = 1; i <= 30; i++) {
		struct memory *to = &m[i % 3];

		ASSERT_EQ(i, endpoint_post(&self->e, slots.r.index, 0, LENGTH));
		endpoint_ring(&self->e, &self->c);
		ASSERT_EQ(0, peer_call(&self->peer, PEER_FILL, { SLOT, i }));
		ASSERT_EQ(0, peer_call(&self->peer, PEER_ENDPOINT_SEND,
				       { SLOT, 0, LENGTH }));
		ASSERT_EQ(i, endpoint_wait(self->fd, &self->e, i, PATIENCE));
		EXPECT_EQ(LENGTH, endpoint_record(&self->e, i).bytes);
		ASSERT_EQ(0, memory_swap(self->fd, to, 0, &slots, 0, LENGTH));
		EXPECT_EQ(-1, pattern_check(to->at, LENGTH, i));
		if (i > 2)
			EXPECT_EQ(-1, pattern_check(m[(i - 2) % 3].at, LENGTH,
						    i - 2));
	}
}

TEST_F(message, too_long)
{
	ASSERT_EQ(1, peer_call(&self->peer, PEER_ENDPOINT_POST, { SLOT, 0, 99 }));
	EXPECT_EQ(ULDMA_DMA_TOO_LONG, message_send(self, 0, 100));
	EXPECT_EQ(1, peer_call(&self->peer, PEER_ENDPOINT_WAIT, { SLOT, 1 }));
	EXPECT_EQ(ULDMA_DMA_TOO_LONG,
		  peer_call(&self->peer, PEER_ENDPOINT_STATUS, { SLOT, 1 }));
}

TEST_F(message, of_memory_that_is_not_the_senders)
{
	EXPECT_EQ(ULDMA_DMA_NOT_VALID,
		  queue_do(&self->c, message_of(&self->e, 0, 0, 8), NULL));
	EXPECT_EQ(ULDMA_DMA_BOUNDS, message_send(self, LENGTH - 7, 8));
}

TEST_F(message, to_an_endpoint_that_is_another)
{
	struct endpoint other;

	ASSERT_EQ(0, endpoint_create(self->fd, 0, LENGTH, &other));
	/* The peer's endpoint is connected to the first one. */
	ASSERT_EQ(0, endpoint_connect(self->fd, &other, self->node, self->index,
				      self->generation));
	EXPECT_EQ(ULDMA_DMA_REMOTE,
		  queue_do(&self->c, message_of(&other, self->r.index, 0, 8),
			   NULL));
	EXPECT_EQ(-EISCONN, endpoint_connect(self->fd, &other, self->node,
					     self->index, self->generation));
	ASSERT_EQ(0, endpoint_create(self->fd, 0, LENGTH, &other));
	ASSERT_EQ(0, endpoint_connect(self->fd, &other, self->node, self->index,
				      self->generation ^ 1));
	EXPECT_EQ(ULDMA_DMA_REMOTE,
		  queue_do(&self->c, message_of(&other, self->r.index, 0, 8),
			   NULL));
}

TEST_F(message, not_ready)
{
	struct endpoint other;

	ASSERT_EQ(0, endpoint_create(self->fd, 0, LENGTH, &other));
	self->index = peer_call(&self->peer, PEER_ENDPOINT, { 1, LENGTH });
	self->generation = peer_call(&self->peer, PEER_ENDPOINT_NAME, { 1 });
	ASSERT_EQ(0, endpoint_connect(self->fd, &other, self->node, self->index,
				      self->generation));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_ENDPOINT_CONNECT,
			       { 1, query(self->fd).out_node, other.index,
				 other.generation }));
	EXPECT_EQ(ULDMA_DMA_NOT_READY,
		  queue_do(&self->c, message_of(&other, self->r.index, 0, 8),
			   NULL));
}

TEST_F(message, to_an_endpoint_that_has_ended)
{
	ASSERT_EQ(1, peer_call(&self->peer, PEER_ENDPOINT_POST, { SLOT, 0, 8 }));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_ENDPOINT_DESTROY, { SLOT }));
	EXPECT_EQ(ULDMA_DMA_REMOTE, message_send(self, 0, 8));
}

TEST_F(message, to_a_process_that_has_ended)
{
	ASSERT_EQ(0, peer_call(&self->peer, PEER_CLOSE, { SLOT }));
	EXPECT_EQ(ULDMA_DMA_REMOTE, message_send(self, 0, 8));
}

TEST_F(message, ends_with_its_own_endpoint)
{
	struct uldma_descriptor d = message_of(&self->e, self->r.index, 0, 8);
	__s64 ticket = queue_post(&self->c, &d);

	queue_ring(&self->c);
	/* It waits, and no buffer comes. */
	ASSERT_EQ(0, endpoint_destroy(self->fd, &self->e));
	queue_ring(&self->c);
	EXPECT_EQ(ULDMA_DMA_NOT_VALID, status_of(&self->c, ticket));
}

int main(int argc, char **argv)
{
	return two_nodes_main(argc, argv, peer_serve, peer_quit);
}
