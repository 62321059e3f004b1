// SPDX-License-Identifier: GPL-2.0
/*
 * Messages that the driver copies to its slots and out of them, to and from a
 * program at the other node that has its own.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

#include "uldma_harness.h"
#include "uldma_peer_client.h"
#include "uldma_msg.h"
#include "uldma_two_nodes.h"

#define LENGTH (256 * 1024)
#define SLOT 0
#define COUNT 4
#define BYTES 16384
#define SHORT (200 * 1000 * 1000)

FIXTURE(msg) {
	struct peer peer;
	int fd;
	char *buf;
	struct context c;
	struct endpoint e;
	struct slots out;
	struct slots in;
};

FIXTURE_SETUP(msg)
{
	__u32 node, index;
	__u64 generation;

	self->fd = uldma_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	if (!link_up(self->fd))
		SKIP(return, "the link is down");
	ASSERT_EQ(0, endpoint_create(self->fd, NO_LIMIT, LENGTH, &self->e));
	self->buf = buffer(LENGTH);
	ASSERT_NE(NULL, self->buf);
	pattern_fill(self->buf, LENGTH, 1);
	ASSERT_EQ(0, context_create_as(self->fd, ULDMA_METHOD_QUEUE, 0,
				       &self->c));
	ASSERT_EQ(0, context_map(self->fd, &self->c));
	ASSERT_EQ(0, slots_create(self->fd, 0, self->e.handle, COUNT, BYTES,
				  &self->out));
	ASSERT_EQ(0, slots_create(self->fd, ULDMA_MSG_RECEIVE, self->e.handle,
				  COUNT, BYTES, &self->in));
	ASSERT_EQ(0, peer_connect(&self->peer));
	node = peer_call(&self->peer, PEER_NODE);
	index = peer_call(&self->peer, PEER_ENDPOINT, { SLOT, LENGTH });
	generation = peer_call(&self->peer, PEER_ENDPOINT_NAME, { SLOT });
	ASSERT_EQ(0, endpoint_connect(self->fd, &self->e, node, index,
				      generation));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_ENDPOINT_CONNECT,
			       { SLOT, query(self->fd).out_node, self->e.index,
				 self->e.generation }));
}

FIXTURE_TEARDOWN(msg)
{
	close(self->peer.fd);
	close(self->fd);
}

static __s64 send_from(struct _test_data_msg *self, const void *from,
		       __u64 length)
{
	return msg_send(self->fd, &self->c, &self->out, from, length, PATIENCE);
}

/* Lets the peer take the next message, which then has to end well. */
static int taken(struct _test_data_msg *self, __s64 ticket)
{
	__s64 posted = peer_call(&self->peer, PEER_ENDPOINT_POST,
				 { SLOT, 0, LENGTH });

	if (posted < 0 || peer_call(&self->peer, PEER_ENDPOINT_RING, { SLOT }))
		return -EPROTO;
	return status_of(&self->c, ticket);
}

static int peer_sends(struct _test_data_msg *self, __u64 seed, __u64 length)
{
	return peer_call(&self->peer, PEER_FILL, { SLOT, seed }) ?:
	       peer_call(&self->peer, PEER_ENDPOINT_SEND, { SLOT, 0, length });
}

TEST_F(msg, is_sent)
{
	static const __u64 lengths[] = { 0, 1, 8, 4095, 4096, 4097, BYTES };

	for (int i = 0; i < 3 * ARRAY_SIZE(lengths); i++) {
		__u64 length = lengths[i % ARRAY_SIZE(lengths)];
		__s64 ticket;

		ASSERT_EQ(0, peer_call(&self->peer, PEER_FILL, { SLOT, 9 }));
		ticket = send_from(self, self->buf, length);
		ASSERT_EQ(i + 1, ticket);
		EXPECT_EQ(0, taken(self, ticket));
		EXPECT_EQ(length, peer_call(&self->peer, PEER_ENDPOINT_BYTES,
					    { SLOT, i + 1 }));
		EXPECT_EQ(-1, peer_call(&self->peer, PEER_CHECK,
					{ SLOT, 0, length, 1 }));
	}
}

/* The buffer is the program's as soon as the call returns. */
TEST_F(msg, does_not_change_while_it_waits)
{
	for (int i = 1; i <= COUNT; i++) {
		pattern_fill(self->buf, BYTES, i);
		ASSERT_EQ(i, send_from(self, self->buf, BYTES));
	}
	memset(self->buf, 0, BYTES);
	EXPECT_EQ(0, self->c.status->completed);
	for (int i = 1; i <= COUNT; i++) {
		EXPECT_EQ(0, taken(self, i));
		EXPECT_EQ(-1, peer_call(&self->peer, PEER_CHECK,
					{ SLOT, 0, BYTES, i }));
	}
}

TEST_F(msg, waits_for_a_slot)
{
	for (int i = 1; i <= COUNT; i++)
		ASSERT_EQ(i, send_from(self, self->buf, 8));
	EXPECT_EQ(-ETIMEDOUT, msg_send(self->fd, &self->c, &self->out,
				       self->buf, 8, 0));
	EXPECT_EQ(-ETIMEDOUT, msg_send(self->fd, &self->c, &self->out,
				       self->buf, 8, SHORT));
	EXPECT_EQ(0, taken(self, 1));
	EXPECT_EQ(COUNT + 1, send_from(self, self->buf, 8));
	for (int i = 2; i <= COUNT + 1; i++)
		EXPECT_EQ(0, taken(self, i));
}

TEST_F(msg, is_received)
{
	struct uldma_msg_recv got;

	for (int i = 1; i <= 3 * COUNT; i++) {
		__u64 length = i * 1000;

		memset(self->buf, 0, BYTES);
		ASSERT_EQ(0, peer_sends(self, i, length));
		ASSERT_EQ(0, msg_recv(self->fd, &self->in, self->buf, BYTES,
				      PATIENCE, &got));
		EXPECT_EQ(length, got.out_bytes);
		EXPECT_EQ(i, got.out_number);
		EXPECT_EQ(i + COUNT, got.out_posted);
		EXPECT_EQ(0, got.out_status);
		EXPECT_EQ(0, got.out_flags);
		EXPECT_EQ(-1, pattern_check(self->buf, length, i));
	}
}

/* Messages can come before the calls that receive them. */
TEST_F(msg, is_kept_until_it_is_received)
{
	struct uldma_msg_recv got;

	for (int i = 1; i <= COUNT; i++)
		ASSERT_EQ(0, peer_sends(self, i, BYTES));
	for (int i = 1; i <= COUNT; i++) {
		ASSERT_EQ(0, msg_recv(self->fd, &self->in, self->buf, BYTES, 0,
				      &got));
		EXPECT_EQ(-1, pattern_check(self->buf, BYTES, i));
	}
	EXPECT_EQ(-ETIMEDOUT, msg_recv(self->fd, &self->in, self->buf, BYTES, 0,
				       &got));
	EXPECT_EQ(-ETIMEDOUT, msg_recv(self->fd, &self->in, self->buf, BYTES,
				       SHORT, &got));
}

TEST_F(msg, is_cut_off_where_room_ends)
{
	struct uldma_msg_recv got;

	ASSERT_EQ(0, peer_sends(self, 1, 100));
	memset(self->buf, 7, 200);
	ASSERT_EQ(0, msg_recv(self->fd, &self->in, self->buf, 10, PATIENCE,
			      &got));
	EXPECT_EQ(100, got.out_bytes);
	EXPECT_EQ(7, self->buf[10]);
	ASSERT_EQ(0, peer_sends(self, 2, 0));
	ASSERT_EQ(0, msg_recv(self->fd, &self->in, NULL, 0, PATIENCE, &got));
	EXPECT_EQ(0, got.out_bytes);
	EXPECT_EQ(2, got.out_number);
}

/* A message stays if it cannot be copied out, also if some of it was. */
TEST_F(msg, stays_if_memory_is_bad)
{
	size_t page = page_size();
	struct uldma_msg_recv got;

	ASSERT_EQ(0, munmap(self->buf + page, page));
	ASSERT_EQ(0, peer_sends(self, 1, page + 1));
	for (int i = 0; i < 2 * COUNT; i++) {
		EXPECT_EQ(-EFAULT, msg_recv(self->fd, &self->in, self->buf,
					    BYTES, PATIENCE, &got));
		EXPECT_EQ(-EFAULT, msg_recv(self->fd, &self->in,
					    self->buf + page, 1, PATIENCE,
					    &got));
	}
	ASSERT_EQ(0, msg_recv(self->fd, &self->in, self->buf + 2 * page, BYTES,
			      0, &got));
	EXPECT_EQ(1, got.out_number);
	EXPECT_EQ(page + 1, got.out_bytes);
	EXPECT_EQ(-1, pattern_check(self->buf + 2 * page, page + 1, 1));
}

/* The device has used the descriptors, so their numbers are not free. */
TEST_F(msg, slots_are_posted_once)
{
	struct slots again;

	ASSERT_EQ(0, peer_sends(self, 1, 8));
	EXPECT_EQ(-EBUSY, slots_create(self->fd, ULDMA_MSG_RECEIVE,
				       self->e.handle, COUNT, BYTES, &again));
}

static void on_signal(int signal)
{
}

TEST_F(msg, waits_end_with_signals)
{
	struct sigaction act = { .sa_handler = on_signal };
	/* Again and again, in case the first comes before the call. */
	struct itimerval timer = {
		.it_value.tv_usec = 100000,
		.it_interval.tv_usec = 100000,
	};
	struct itimerval none = { };
	struct uldma_msg_recv got;

	for (int i = 1; i <= COUNT; i++)
		ASSERT_EQ(i, send_from(self, self->buf, 8));
	ASSERT_EQ(0, sigaction(SIGALRM, &act, NULL));
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &timer, NULL));
	EXPECT_EQ(-EINTR, msg_recv(self->fd, &self->in, self->buf, BYTES,
				   PATIENCE, &got));
	EXPECT_EQ(-EINTR, msg_send(self->fd, &self->c, &self->out, self->buf, 8,
				   PATIENCE));
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &none, NULL));
	/* Neither has changed anything. */
	ASSERT_EQ(0, peer_sends(self, 1, 8));
	ASSERT_EQ(0, msg_recv(self->fd, &self->in, self->buf, BYTES, PATIENCE,
			      &got));
	EXPECT_EQ(1, got.out_number);
	EXPECT_EQ(0, taken(self, 1));
	EXPECT_EQ(COUNT + 1, send_from(self, self->buf, 8));
}

/* Slots end while messages wait in them: these are not sent any more. */
TEST_F(msg, slots_end_with_messages)
{
	struct uldma_query with = query(self->fd), after;

	for (int i = 1; i <= COUNT; i++)
		ASSERT_EQ(i, send_from(self, self->buf, BYTES));
	ASSERT_EQ(0, region_unregister(self->fd, self->out.handle));
	after = query(self->fd);
	EXPECT_EQ(with.out_user_pages - COUNT * BYTES / page_size(),
		  after.out_user_pages);
	EXPECT_EQ(-ENOENT, msg_send_as(self->fd, &self->out, self->buf, 1,
				       COUNT + 1, 0));
	EXPECT_EQ(ULDMA_DMA_NOT_VALID, taken(self, 1));
}

/* A program that overwrites what the driver has posted reaches nothing new. */
TEST_F(msg, descriptors_of_the_driver_are_overwritten)
{
	struct uldma_descriptor *d;
	struct uldma_msg_recv got;

	ASSERT_EQ(1, send_from(self, self->buf, 8));
	d = &self->c.queue[1];
	EXPECT_EQ(ULDMA_OP_SEND, d->op);
	EXPECT_EQ(self->out.index, d->src);
	d->length = ~0ULL;
	d->src_offset = BYTES * COUNT - 1;
	EXPECT_NE(0, taken(self, 1));
	/* All places of the ring, with memory that does not exist. */
	for (int i = 0; i < ULDMA_STATUS_RECORDS; i++) {
		self->e.ring[i].dst = self->in.index + 1000;
		self->e.ring[i].length = ~0ULL;
	}
	EXPECT_NE(0, peer_sends(self, 1, 8));
	ASSERT_EQ(0, msg_recv(self->fd, &self->in, self->buf, BYTES, PATIENCE,
			      &got));
	EXPECT_NE(0, got.out_status);
	EXPECT_EQ(1, got.out_number);
}

static void receive_in_child(int fd, void *arg)
{
	struct uldma_msg_recv got;
	struct endpoint e;
	struct slots s;
	char byte;
	int ret, device = uldma_open(0);

	ret = device < 0 ? device :
	      endpoint_create(device, NO_LIMIT, LENGTH, &e) ?:
	      slots_create(device, 0, e.handle, COUNT, BYTES, &s) ?:
	      slots_create(device, ULDMA_MSG_RECEIVE, e.handle, COUNT, BYTES,
			   &s) ?:
	      endpoint_connect(device, &e, *(__u32 *)arg, 0, 0);
	if (write(fd, &ret, sizeof(ret)) == sizeof(ret) && !ret)
		msg_recv(device, &s, &byte, 1, 120ULL * SECOND, &got);
}

/* A process is killed while its call waits: nothing of it stays. */
TEST_F(msg, calls_end_with_their_process)
{
	struct uldma_query before = query(self->fd), after;
	__u32 node = peer_call(&self->peer, PEER_NODE);
	struct helper helper;
	int ret = -EPROTO;

	ASSERT_EQ(0, helper_start(&helper, receive_in_child, &node));
	EXPECT_EQ(sizeof(ret), read(helper.fd, &ret, sizeof(ret)));
	EXPECT_EQ(0, ret);
	after = query(self->fd);
	EXPECT_EQ(before.out_user_pages + 2 * COUNT * BYTES / page_size(),
		  after.out_user_pages);
	ASSERT_EQ(0, helper_kill(&helper));
	after = query(self->fd);
	EXPECT_EQ(before.out_user_pages, after.out_user_pages);
	EXPECT_EQ(before.out_user_regions, after.out_user_regions);
	EXPECT_EQ(before.out_user_endpoints, after.out_user_endpoints);
}

static void *receive_forever(void *arg)
{
	struct _test_data_msg *self = arg;
	struct uldma_msg_recv got;
	char byte;

	return (void *)(long)msg_recv(self->fd, &self->in, &byte, 1,
				      120ULL * SECOND, &got);
}

/* The second call waits for its turn no longer than its own time. */
TEST_F(msg, calls_take_turns)
{
	struct uldma_msg_recv got;
	pthread_t thread;
	void *result;

	ASSERT_EQ(0, pthread_create(&thread, NULL, receive_forever, self));
	EXPECT_EQ(-ETIMEDOUT, msg_recv(self->fd, &self->in, self->buf, BYTES,
				       SHORT, &got));
	ASSERT_EQ(0, peer_sends(self, 1, 1));
	ASSERT_EQ(0, pthread_join(thread, &result));
	EXPECT_EQ(0, (long)result);
	/* Its own turn has come. */
	ASSERT_EQ(0, peer_sends(self, 2, 8));
	EXPECT_EQ(0, msg_recv(self->fd, &self->in, self->buf, BYTES, PATIENCE,
			      &got));
	EXPECT_EQ(2, got.out_number);
}

int main(int argc, char **argv)
{
	return two_nodes_main(argc, argv, peer_serve, peer_quit);
}
