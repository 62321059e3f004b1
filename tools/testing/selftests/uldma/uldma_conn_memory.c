// SPDX-License-Identifier: GPL-2.0
/*
 * The memory that connections are given: what can be given, how much of it, how
 * it is charged, and what happens to it meanwhile.
 */
#include <pthread.h>

#include "uldma_conn_pair.h"
#include "uldma_conn_stream.h"

#define PAGES 16

FIXTURE(memory) {
	struct pair pair;
	size_t page;
	char *src;
	char *dst;
	struct range range;
};

FIXTURE_SETUP(memory)
{
	ASSERT_EQ(0, pair_open(&self->pair, 0));
	ASSERT_EQ(0, pair_connect(&self->pair, 0));
	self->page = page_size();
	self->src = buffer(PAGES * self->page);
	self->dst = buffer(PAGES * self->page);
	ASSERT_NE(NULL, self->src);
	ASSERT_NE(NULL, self->dst);
	stream_fill(self->src, PAGES * self->page, 1, 0);
}

FIXTURE_TEARDOWN(memory)
{
	pair_close(&self->pair);
}

TEST_F(memory, arguments)
{
	struct pair *p = &self->pair;
	static const unsigned long calls[] = {
		ULDMA_IOC_CONN_PREPOST,
		ULDMA_IOC_CONN_SEND,
	};

	for (int i = 0; i < ARRAY_SIZE(calls); i++) {
		EXPECT_EQ(-EINVAL, conn_give(p->a, calls[i], self->src, 0));
		EXPECT_EQ(-EINVAL, conn_give(p->a, calls[i], NULL, 0));
		EXPECT_EQ(-EFAULT, conn_give(p->a, calls[i], NULL, 1));
		EXPECT_EQ(-EOVERFLOW,
			  conn_give(p->a, calls[i], self->src, ~0ULL));
		EXPECT_EQ(-EOVERFLOW, conn_give(p->a, calls[i], (void *)~0UL,
						2));
		EXPECT_EQ(-EFAULT, conn_give(p->a, calls[i],
					     (void *)(~0UL << 63), 1));
	}
	EXPECT_EQ(-EINVAL, conn_recv(p->a, 0, &self->range));
	EXPECT_EQ(-EINVAL, conn_recycle(p->a, 0, &self->range));
	EXPECT_EQ(0, conn_query(p->a).out_posted);
	EXPECT_EQ(0, conn_query(p->a).out_unsent);
	EXPECT_EQ(ULDMA_CONN_CONNECTED, conn_state(p->a));
	EXPECT_EQ(0, vm_pin());
}

TEST_F(memory, not_mapped)
{
	struct pair *p = &self->pair;
	char *hole = self->src + 2 * self->page;

	ASSERT_EQ(0, munmap(hole, self->page));
	EXPECT_EQ(-EFAULT, conn_send(p->b, hole, 1));
	EXPECT_EQ(-EFAULT, conn_prepost(p->b, hole, 1));
	EXPECT_EQ(-EFAULT, conn_send(p->b, self->src, 4 * self->page));
	EXPECT_EQ(-EFAULT, conn_prepost(p->b, self->src, 4 * self->page));
	EXPECT_EQ(-EFAULT, conn_prepost(p->b, hole - 1, 2));
	EXPECT_EQ(0, vm_pin());
	EXPECT_EQ(0, conn_query(p->b).out_unsent);
	/* Up to the edge is good, and nothing of the above is in the way. */
	ASSERT_EQ(0, conn_prepost(p->a, self->dst, 2));
	EXPECT_EQ(0, conn_send(p->b, hole - 1, 1));
	EXPECT_EQ(0, conn_send(p->b, hole + self->page, 1));
	EXPECT_EQ(0, conn_recv_all(p->a, self->dst, 2));
	EXPECT_EQ(hole[-1], self->dst[0]);
	EXPECT_EQ(hole[self->page], self->dst[1]);
}

TEST_F(memory, read_only)
{
	struct pair *p = &self->pair;

	ASSERT_EQ(0, mprotect(self->src, PAGES * self->page, PROT_READ));
	EXPECT_EQ(-EFAULT, conn_prepost(p->a, self->src, 100));
	ASSERT_EQ(0, conn_prepost(p->a, self->dst, 100));
	ASSERT_EQ(0, conn_send(p->b, self->src, 100));
	ASSERT_EQ(0, conn_recv_all(p->a, self->dst, 100));
	EXPECT_EQ(-1, stream_check(self->dst, 100, 1, 0));
	ASSERT_EQ(0, mprotect(self->src, PAGES * self->page, PROT_NONE));
	EXPECT_EQ(-EFAULT, conn_send(p->b, self->src, 100));
}

/* Each direction has its own room, and what comes back makes room. */
TEST_F(memory, most_buffers)
{
	struct pair *p = &self->pair;

	for (int i = 0; i < ULDMA_CONN_MAX_BUFFERS; i++) {
		ASSERT_EQ(0, conn_send(p->b, self->src + i, 1));
		ASSERT_EQ(0, conn_prepost(p->b, self->dst + i, 1));
	}
	EXPECT_EQ(-ENOSPC, conn_send(p->b, self->src, 1));
	EXPECT_EQ(-ENOSPC, conn_prepost(p->b, self->dst, 1));
	EXPECT_EQ(ULDMA_CONN_MAX_BUFFERS, conn_query(p->b).out_unsent);
	EXPECT_EQ(ULDMA_CONN_MAX_BUFFERS, conn_query(p->b).out_posted);

	ASSERT_EQ(0, conn_recv_into(p->a, self->dst + 1000, 1));
	ASSERT_EQ(0, conn_send_wait(p->a, self->src, 1));
	/* Moved memory occupies its slot until it is reaped. */
	ASSERT_TRUE(eventually(conn_query(p->b).out_sent == 1));
	EXPECT_EQ(-ENOSPC, conn_send(p->b, self->src, 1));
	ASSERT_EQ(0, conn_recycle_all(p->b, self->src, 1));
	EXPECT_EQ(0, conn_send(p->b, self->src, 1));
	EXPECT_EQ(-ENOSPC, conn_send(p->b, self->src, 1));
	ASSERT_EQ(0, conn_recv_all(p->b, self->dst, 1));
	EXPECT_EQ(0, conn_prepost(p->b, self->dst, 1));
	EXPECT_EQ(-ENOSPC, conn_prepost(p->b, self->dst, 1));
}

/* Once per page, however many buffers are in it; and until it is taken back. */
TEST_F(memory, charge)
{
	struct pair *p = &self->pair;

	for (int i = 0; i < 8; i++) {
		ASSERT_EQ(0, conn_prepost(p->a, self->dst + 100 * i, 100));
		EXPECT_EQ(1, pinned_pages(p->a));
		EXPECT_EQ(1, vm_pin());
	}
	ASSERT_EQ(0, conn_prepost(p->a, self->dst + self->page, 1));
	EXPECT_EQ(2, pinned_pages(p->a));
	stream_fill(self->src, 801, 2, 0);
	ASSERT_EQ(0, conn_send_wait(p->b, self->src, 801));
	for (int i = 0; i < 8; i++)
		ASSERT_EQ(0, conn_recv_all(p->a, self->dst + 100 * i, 100));
	EXPECT_EQ(-1, stream_check(self->dst, 800, 2, 0));
	ASSERT_EQ(0, conn_recv_all(p->a, self->dst + self->page, 1));
	EXPECT_EQ(-1, stream_check(self->dst + self->page, 1, 2, 800));
	EXPECT_EQ(0, pinned_pages(p->a));
	EXPECT_EQ(0, vm_pin());
}

TEST_F(memory, limit)
{
	struct pair *p = &self->pair;

	ASSERT_EQ(0, drop_privileges());
	ASSERT_EQ(0, set_memlock(4 * self->page));
	EXPECT_EQ(-ENOMEM, conn_prepost(p->a, self->dst, 5 * self->page));
	EXPECT_EQ(-ENOMEM, conn_send(p->a, self->dst, 5 * self->page));
	EXPECT_EQ(0, conn_prepost(p->a, self->dst, 4 * self->page));
	EXPECT_EQ(-ENOMEM, conn_prepost(p->a, self->dst + 4 * self->page, 1));
	/* These pages have been paid for. */
	EXPECT_EQ(0, conn_prepost(p->a, self->dst + 1, 1));
	EXPECT_EQ(0, conn_disconnect(p->a));
	EXPECT_EQ(0, vm_pin());

	ASSERT_EQ(0, conn_disconnect(p->b));
	ASSERT_EQ(0, conn_connect(p->b, p->to_a, PORT));
	ASSERT_EQ(0, set_memlock(0));
	EXPECT_EQ(-EPERM, conn_prepost(p->b, self->dst, 1));
	EXPECT_EQ(-EPERM, conn_send(p->b, self->dst, 1));
	EXPECT_EQ(0, vm_pin());
}

/* Whatever way it ends, nothing stays pinned. */
TEST_F(memory, given_back_at_the_end)
{
	struct pair *p = &self->pair;

	ASSERT_EQ(0, conn_prepost(p->a, self->dst, 4 * self->page));
	ASSERT_EQ(0, conn_send(p->b, self->src, self->page));
	ASSERT_EQ(0, conn_recv_all(p->a, self->dst, self->page));
	ASSERT_EQ(0, conn_prepost(p->b, self->dst + 8 * self->page,
				  self->page));
	EXPECT_LT(0, vm_pin());
	ASSERT_EQ(0, conn_disconnect(p->a));
	EXPECT_EQ(0, pinned_pages(p->a));
	ASSERT_EQ(0, conn_disconnect(p->b));
	EXPECT_EQ(0, pinned_pages(p->b));
	EXPECT_EQ(0, vm_pin());
	/* It is the program's again. */
	memset(self->dst, 0, PAGES * self->page);
}

/* Memory of a region is pinned and known already. */
TEST_F(memory, of_a_region)
{
	struct pair *p = &self->pair;
	size_t length = PAGES * self->page;
	struct region from, to;

	ASSERT_EQ(0, region_register(p->b, self->src, length, RW, &from));
	ASSERT_EQ(0, region_register(p->a, self->dst, length, RW, &to));
	for (int i = 0; i < 10; i++) {
		char *dst = self->dst + 1000 * i;
		char *src = self->src + 777 * i;

		ASSERT_EQ(0, conn_prepost(p->a, dst, 3000 + i));
		ASSERT_EQ(0, conn_send(p->b, src, 3000 + i));
		ASSERT_EQ(0, conn_recv_all(p->a, dst, 3000 + i));
		ASSERT_EQ(0, conn_recycle_all(p->b, src, 3000 + i));
		EXPECT_EQ(-1, stream_check(dst, 3000 + i, 1, 777 * i));
	}
	EXPECT_EQ(0, conn_query(p->a).out_pin_calls);
	EXPECT_EQ(0, conn_query(p->b).out_pin_calls);

	ASSERT_EQ(0, region_unregister(p->a, to.handle));
	ASSERT_EQ(0, region_unregister(p->b, from.handle));
	ASSERT_EQ(0, conn_prepost(p->a, self->dst, 100));
	ASSERT_EQ(0, conn_send_wait(p->b, self->src, 100));
	EXPECT_LT(0, conn_query(p->a).out_pin_calls);
	EXPECT_LT(0, conn_query(p->b).out_pin_calls);
}

/* A region can go while a connection has memory of it. */
TEST_F(memory, region_goes_first)
{
	struct pair *p = &self->pair;
	struct region from, to;

	ASSERT_EQ(0, region_register(p->b, self->src, self->page, RW, &from));
	ASSERT_EQ(0, region_register(p->a, self->dst, self->page, RW, &to));
	ASSERT_EQ(0, conn_prepost(p->a, self->dst, 1000));
	ASSERT_EQ(0, region_unregister(p->a, to.handle));
	EXPECT_EQ(1, pinned_pages(p->a));
	ASSERT_EQ(0, conn_send(p->b, self->src, 2000));
	ASSERT_EQ(0, region_unregister(p->b, from.handle));
	ASSERT_EQ(0, conn_recv_all(p->a, self->dst, 1000));
	ASSERT_EQ(0, conn_recv_into(p->a, self->dst + 1000, 1000));
	ASSERT_EQ(0, conn_recycle_all(p->b, self->src, 2000));
	EXPECT_EQ(-1, stream_check(self->dst, 2000, 1, 0));
	EXPECT_EQ(0, vm_pin());
}

/* Posted memory means pages, even if their addresses are mapped anew. */
TEST_F(memory, unmapped_while_given)
{
	struct pair *p = &self->pair;
	size_t length = 4 * self->page;

	ASSERT_EQ(0, conn_send(p->b, self->src, length));
	ASSERT_EQ(0, munmap(self->src, length));
	ASSERT_EQ(0, conn_recv_into(p->a, self->dst, length));
	EXPECT_EQ(-1, stream_check(self->dst, length, 1, 0));
	ASSERT_EQ(0, conn_recycle_all(p->b, self->src, length));

	ASSERT_EQ(0, conn_prepost(p->a, self->dst, length));
	ASSERT_EQ(0, munmap(self->dst, length));
	ASSERT_EQ(0, conn_send_wait(p->b, self->src + length, length));
	ASSERT_EQ(0, conn_recv_all(p->a, self->dst, length));
	EXPECT_EQ(0, vm_pin());
}

TEST_F(memory, discarded_while_given)
{
	struct pair *p = &self->pair;
	size_t length = 4 * self->page;

	ASSERT_EQ(0, conn_send(p->b, self->src, length));
	ASSERT_EQ(0, madvise(self->src, length, MADV_DONTNEED));
	memset(self->src, 0x11, length);
	ASSERT_EQ(0, conn_recv_into(p->a, self->dst, length));
	EXPECT_EQ(-1, stream_check(self->dst, length, 1, 0));
	ASSERT_EQ(0, conn_recycle_all(p->b, self->src, length));

	ASSERT_EQ(0, conn_prepost(p->a, self->dst, length));
	ASSERT_EQ(0, madvise(self->dst, length, MADV_DONTNEED));
	memset(self->dst, 0x22, length);
	stream_fill(self->src, length, 2, 0);
	ASSERT_EQ(0, conn_send_wait(p->b, self->src, length));
	ASSERT_EQ(0, conn_recv_all(p->a, self->dst, length));
	/* It went into the pages that were there when it was posted. */
	for (size_t i = 0; i < length; i++)
		ASSERT_EQ(0x22, self->dst[i]);

	/* Given anew, they mean what is there now. */
	ASSERT_EQ(0, conn_prepost(p->a, self->dst, length));
	ASSERT_EQ(0, conn_send_wait(p->b, self->src, length));
	ASSERT_EQ(0, conn_recv_all(p->a, self->dst, length));
	EXPECT_EQ(-1, stream_check(self->dst, length, 2, 0));
}

/**
 * struct storer - a thread that stores into memory that was given
 * @thread: it
 * @at: the memory
 * @length: bytes of it
 * @sweeps: how often it has stored into each byte
 * @stop: it has to end
 */
struct storer {
	pthread_t thread;
	char *at;
	size_t length;
	unsigned long sweeps;
	bool stop;
};

/* What it stores, in turns; no byte of a stream that is checked. */
static const char marks[] = { '\x5a', '\xa5' };

static bool is_mark(char byte)
{
	return byte == marks[0] || byte == marks[1];
}

static void *store_on(void *arg)
{
	struct storer *s = arg;

	while (!READ_ONCE(s->stop)) {
		for (size_t i = 0; i < s->length; i++)
			WRITE_ONCE(s->at[i], marks[s->sweeps % 2]);
		WRITE_ONCE(s->sweeps, s->sweeps + 1);
	}
	return NULL;
}

static int storer_start(struct storer *s, char *at, size_t length)
{
	*s = (struct storer){ .at = at, .length = length };
	return -pthread_create(&s->thread, NULL, store_on, s);
}

/* Waits until it has stored into each byte from now on. */
static bool storer_sweeps(struct storer *s)
{
	unsigned long before = READ_ONCE(s->sweeps);

	return eventually(READ_ONCE(s->sweeps) >= before + 2);
}

static int storer_stop(struct storer *s)
{
	WRITE_ONCE(s->stop, true);
	return -pthread_join(s->thread, NULL);
}

/* Some of the bytes arrive, and no others. */
TEST_F(memory, stored_to_while_sent)
{
	struct pair *p = &self->pair;
	size_t length = 4 * self->page;
	struct storer s;

	memset(self->src, marks[0], length);
	ASSERT_EQ(0, storer_start(&s, self->src, length));
	for (int round = 0; round < 30; round++) {
		memset(self->dst, 0, length + 1);
		ASSERT_EQ(0, conn_send(p->b, self->src, length));
		ASSERT_TRUE(storer_sweeps(&s));
		ASSERT_EQ(0, conn_prepost(p->a, self->dst, length));
		ASSERT_EQ(0, conn_recv_all(p->a, self->dst, length));
		ASSERT_EQ(0, conn_recycle_all(p->b, self->src, length));
		for (size_t i = 0; i < length; i++)
			ASSERT_TRUE(is_mark(self->dst[i]));
		ASSERT_EQ(0, self->dst[length]);
	}
	ASSERT_EQ(0, storer_stop(&s));
	/* The rest of the memory, and of the stream, is as it was. */
	EXPECT_EQ(-1, stream_check(self->src + length, length, 1, length));
	ASSERT_EQ(0, conn_prepost(p->a, self->dst, length));
	ASSERT_EQ(0, conn_send_wait(p->b, self->src + length, length));
	ASSERT_EQ(0, conn_recv_all(p->a, self->dst, length));
	EXPECT_EQ(-1, stream_check(self->dst, length, 1, length));
	EXPECT_EQ(0, vm_pin());
}

TEST_F(memory, stored_to_while_received)
{
	struct pair *p = &self->pair;
	size_t length = 4 * self->page;
	struct storer s;

	ASSERT_EQ(0, storer_start(&s, self->dst, length));
	for (int round = 0; round < 30; round++) {
		self->dst[length] = 0;
		ASSERT_EQ(0, conn_prepost(p->a, self->dst, length));
		ASSERT_TRUE(storer_sweeps(&s));
		ASSERT_EQ(0, conn_send(p->b, self->src, length));
		ASSERT_EQ(0, conn_recv_all(p->a, self->dst, length));
		ASSERT_EQ(0, conn_recycle_all(p->b, self->src, length));
		for (size_t i = 0; i < length; i++) {
			char byte = READ_ONCE(self->dst[i]);

			ASSERT_TRUE(is_mark(byte) || byte == self->src[i]);
		}
		ASSERT_EQ(0, self->dst[length]);
		EXPECT_EQ(-1, stream_check(self->src, length, 1, 0));
	}
	ASSERT_EQ(0, storer_stop(&s));
	ASSERT_EQ(0, conn_prepost(p->a, self->dst, length));
	ASSERT_EQ(0, conn_send_wait(p->b, self->src, length));
	ASSERT_EQ(0, conn_recv_all(p->a, self->dst, length));
	EXPECT_EQ(-1, stream_check(self->dst, length, 1, 0));
	EXPECT_EQ(0, vm_pin());
}

static void stay(int fd, void *arg)
{
	if (write(fd, "", 1) != 1)
		_exit(1);
}

/* A child has copies of its own, so the parent's pages stay the parent's. */
TEST_F(memory, fork_while_given)
{
	struct pair *p = &self->pair;
	struct helper child;
	char byte;

	ASSERT_EQ(0, conn_prepost(p->a, self->dst, 2 * self->page));
	ASSERT_EQ(0, helper_start(&child, stay, NULL));
	ASSERT_EQ(1, read(child.fd, &byte, 1));
	self->dst[2 * self->page] = 1;
	ASSERT_EQ(0, conn_send_wait(p->b, self->src, 2 * self->page));
	ASSERT_EQ(0, conn_recv_all(p->a, self->dst, 2 * self->page));
	EXPECT_EQ(-1, stream_check(self->dst, 2 * self->page, 1, 0));
	ASSERT_EQ(0, helper_kill(&child));
	EXPECT_EQ(-1, stream_check(self->dst, 2 * self->page, 1, 0));
}

/* The same bytes twice, and bytes of one page to another place in it. */
TEST_F(memory, shared_by_buffers)
{
	struct pair *p = &self->pair;

	for (int i = 0; i < 4; i++)
		ASSERT_EQ(0, conn_send(p->b, self->src, 500));
	for (int i = 0; i < 4; i++) {
		ASSERT_EQ(0, conn_recv_into(p->a, self->src + 1000, 500));
		EXPECT_EQ(-1, stream_check(self->src + 1000, 500, 1, 0));
		memset(self->src + 1000, 0, 500);
		ASSERT_EQ(0, conn_recycle_all(p->b, self->src, 500));
	}
	EXPECT_EQ(-1, stream_check(self->src, 1000, 1, 0));
	EXPECT_EQ(-1, stream_check(self->src + 1500, 1000, 1, 1500));
}

int main(int argc, char **argv)
{
	return pair_main(argc, argv);
}
