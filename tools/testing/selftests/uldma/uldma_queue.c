// SPDX-License-Identifier: GPL-2.0
/*
 * Descriptors in memory: the device executes each, in order, and reports an
 * error for impossible ones, which do no harm, whatever a process writes there.
 */
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/time.h>

#include "uldma_harness.h"
#include "uldma_queue.h"

FIXTURE(queue) {
	struct party p;
	char *model;
	__u64 *words;
};

FIXTURE_SETUP(queue)
{
	ASSERT_EQ(0, party_open(&self->p));
	self->model = buffer(self->p.length);
	ASSERT_NE(NULL, self->model);
	memcpy(self->model, self->p.dst, self->p.length);
	self->words = (__u64 *)self->p.dst;
	ASSERT_EQ(0, party_context(&self->p, ULDMA_METHOD_QUEUE, 0));
}

FIXTURE_TEARDOWN(queue)
{
	close(self->p.fd);
}

TEST_F(queue, nothing_at_first)
{
	struct party *p = &self->p;

	for (size_t i = 0; i < page_size() / 8; i++)
		ASSERT_EQ(0, ((__u64 *)p->c.queue)[i]);
	EXPECT_EQ(0, READ_ONCE(p->c.status->completed));
	ASSERT_EQ(0, queue_sleeps(p));
	EXPECT_EQ(0, READ_ONCE(p->c.status->completed));
}

/* Far more than there is room for, each at its place, in order. */
TEST_F(queue, many)
{
	struct party *p = &self->p;
	int n = 10 * ULDMA_STATUS_RECORDS + 5;

	for (int i = 1; i <= n; i++) {
		size_t at = i * 8 % 4000, from = i * 56 % 9000;
		struct uldma_descriptor d = copy_of(p, at, from, i);

		ASSERT_EQ(i, queue_post(&p->c, &d));
		queue_ring(&p->c);
		memcpy(self->model + at, p->src + from, i);
		if (i % 100)
			continue;
		ASSERT_EQ(0, status_of(&p->c, i));
		EXPECT_EQ(i, status_record(&p->c, i).bytes);
		EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
	}
	ASSERT_EQ(0, status_wait(&p->c, n));
	EXPECT_EQ(n, READ_ONCE(p->c.status->completed));
	EXPECT_EQ(0, READ_ONCE(p->c.status->failed));
	for (int i = n - ULDMA_STATUS_RECORDS + 1; i <= n; i++) {
		EXPECT_EQ(ULDMA_DMA_OK, status_of(&p->c, i));
		EXPECT_EQ(i, status_record(&p->c, i).bytes);
	}
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
	EXPECT_EQ(0, context_stats(p->fd).out_shadow_stores +
			     context_stats(p->fd).out_shadow_loads);
}

TEST_F(queue, nop)
{
	struct party *p = &self->p;
	__u64 bytes;

	EXPECT_EQ(0, queue_do(&p->c, nop_of(0), &bytes));
	EXPECT_EQ(0, bytes);
	EXPECT_EQ(0, queue_do(&p->c, nop_of(ULDMA_DESC_FENCE), &bytes));
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
}

/* Each reads what the one before has written. */
TEST_F(queue, fence)
{
	struct party *p = &self->p;
	size_t page = page_size();
	struct uldma_descriptor d;

	for (int round = 0; round < 50; round++) {
		pattern_fill(p->src, page, round + 10);
		d = copy_of(p, 0, 0, page);
		ASSERT_LT(0, queue_post(&p->c, &d));
		for (int i = 1; i < PARTY_PAGES; i++) {
			d = copy_of(p, i * page, (i - 1) * page, page);
			d.src = p->d.index;
			d.flags = ULDMA_DESC_FENCE;
			ASSERT_LT(0, queue_post(&p->c, &d));
		}
		queue_ring(&p->c);
		ASSERT_EQ(0, status_of(&p->c, p->c.ticket));
		for (int i = 0; i < PARTY_PAGES; i++)
			ASSERT_EQ(-1, pattern_check(p->dst + i * page, page,
						    round + 10));
	}
}

/* Descriptors that are linked to a failed one are not executed. */
TEST_F(queue, link)
{
	struct party *p = &self->p;
	struct uldma_descriptor bad = copy_of(p, 0, 0, p->length + 1);
	struct uldma_descriptor d[] = {
		bad, copy_of(p, 0, 0, 64), copy_of(p, 64, 0, 64), nop_of(0),
		bad, copy_of(p, 128, 0, 64), copy_of(p, 192, 0, 64),
		copy_of(p, 256, 0, 64), copy_of(p, 320, 0, 64),
	};
	static const int status[] = {
		ULDMA_DMA_BOUNDS, ULDMA_DMA_ABORTED, ULDMA_DMA_OK, ULDMA_DMA_OK,
		ULDMA_DMA_BOUNDS, ULDMA_DMA_OK, ULDMA_DMA_OK, ULDMA_DMA_OK,
		ULDMA_DMA_OK,
	};
	static const bool linked[] = { 1, 0, 0, 0, 0, 1, 1, 0, 0 };

	for (int i = 0; i < ARRAY_SIZE(d); i++) {
		d[i].flags = linked[i] ? ULDMA_DESC_LINK : 0;
		ASSERT_EQ(i + 1, queue_post(&p->c, &d[i]));
	}
	queue_ring(&p->c);
	for (int i = 0; i < ARRAY_SIZE(d); i++) {
		EXPECT_EQ(status[i], status_of(&p->c, i + 1))
			TH_LOG("descriptor %d", i);
		if (d[i].op == ULDMA_OP_COPY && !status[i])
			memcpy(self->model + d[i].dst_offset, p->src, 64);
	}
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
	EXPECT_EQ(3, READ_ONCE(p->c.status->failed));
}

/* An aborted one has ended badly too, so that a chain ends as a whole. */
TEST_F(queue, link_chain)
{
	struct party *p = &self->p;
	struct uldma_descriptor d = copy_of(p, 0, 0, p->length + 1);

	for (int i = 0; i < 10; i++) {
		d.flags = i < 8 ? ULDMA_DESC_LINK : 0;
		ASSERT_EQ(i + 1, queue_post(&p->c, &d));
		d = copy_of(p, 0, 0, 64);
	}
	queue_ring(&p->c);
	EXPECT_EQ(ULDMA_DMA_BOUNDS, status_of(&p->c, 1));
	for (int i = 2; i <= 9; i++)
		EXPECT_EQ(ULDMA_DMA_ABORTED, status_of(&p->c, i));
	EXPECT_EQ(ULDMA_DMA_OK, status_of(&p->c, 10));
}

TEST_F(queue, fetch_add)
{
	struct party *p = &self->p;
	__u64 bytes;

	self->words[3] = 5;
	EXPECT_EQ(0, queue_do(&p->c, fetch_add_of(&p->d, 24, 7), &bytes));
	EXPECT_EQ(5, bytes);
	EXPECT_EQ(12, READ_ONCE(self->words[3]));
	EXPECT_EQ(0, queue_do(&p->c, fetch_add_of(&p->d, 24, -13), &bytes));
	EXPECT_EQ(12, bytes);
	EXPECT_EQ(-1ULL, READ_ONCE(self->words[3]));
	EXPECT_EQ(0, queue_do(&p->c, fetch_add_of(&p->d, 24, 0), &bytes));
	EXPECT_EQ(-1ULL, bytes);
	memcpy(self->model + 24, &self->words[3], 8);
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
}

TEST_F(queue, compare_swap)
{
	struct party *p = &self->p;
	__u64 bytes;

	self->words[0] = 5;
	EXPECT_EQ(0, queue_do(&p->c, compare_swap_of(&p->d, 0, 6, 9), &bytes));
	EXPECT_EQ(5, bytes);
	EXPECT_EQ(5, READ_ONCE(self->words[0]));
	EXPECT_EQ(0, queue_do(&p->c, compare_swap_of(&p->d, 0, 5, 9), &bytes));
	EXPECT_EQ(5, bytes);
	EXPECT_EQ(9, READ_ONCE(self->words[0]));
	memcpy(self->model, self->words, 8);
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
}

/* Expected status of a descriptor that differs from a valid one. */
#define TRY(_good, _field, _value)					\
	({								\
		struct uldma_descriptor _d = (_good);			\
									\
		_d._field = (_value);					\
		queue_do(&self->p.c, _d, NULL);				\
	})

/* Each has its reason, and moves nothing. */
TEST_F(queue, bad_arguments)
{
	struct party *p = &self->p;
	__u64 max = query(p->fd).out_max_transfer;
	struct uldma_descriptor copy = copy_of(p, 0, 0, 64);
	struct uldma_descriptor word = fetch_add_of(&p->d, 0, 1);
	size_t len = p->length;
	int status;

	EXPECT_EQ(ULDMA_DMA_BAD_SIZE, TRY(copy, length, 0));
	EXPECT_EQ(ULDMA_DMA_BOUNDS, TRY(copy, length, len + 1));
	EXPECT_EQ(ULDMA_DMA_BOUNDS, TRY(copy, src_offset, len));
	EXPECT_EQ(ULDMA_DMA_BOUNDS, TRY(copy, dst_offset, len - 63));
	EXPECT_EQ(ULDMA_DMA_BOUNDS, TRY(copy, src_offset, ~0ULL));
	EXPECT_EQ(ULDMA_DMA_BOUNDS, TRY(copy, dst_offset, ~63ULL));
	EXPECT_EQ(ULDMA_DMA_BOUNDS, TRY(copy, dst_offset, 1ULL << 48));
	EXPECT_EQ(ULDMA_DMA_NOT_VALID, TRY(copy, src, 0));
	EXPECT_EQ(ULDMA_DMA_NOT_VALID, TRY(copy, dst, 0));
	EXPECT_EQ(ULDMA_DMA_NOT_VALID, TRY(copy, src, 0x3ffe));
	EXPECT_EQ(ULDMA_DMA_NOT_VALID, TRY(copy, dst, ~0U));
	EXPECT_EQ(ULDMA_DMA_NOT_ALIGNED, TRY(word, dst_offset, 4));
	EXPECT_EQ(ULDMA_DMA_NOT_ALIGNED, TRY(word, dst_offset, 1));
	EXPECT_EQ(ULDMA_DMA_BOUNDS, TRY(word, dst_offset, len));
	EXPECT_EQ(ULDMA_DMA_BOUNDS, TRY(word, dst_offset, ~7ULL));
	EXPECT_EQ(ULDMA_DMA_NOT_VALID, TRY(word, dst, 0));
	EXPECT_EQ(ULDMA_DMA_NOT_VALID, TRY(word, dst, ~0U));
	EXPECT_EQ(17, READ_ONCE(p->c.status->failed));

	/* Too much for any region, and for any transfer. */
	status = TRY(copy, length, max + 1);
	EXPECT_TRUE(status == ULDMA_DMA_BOUNDS || status == ULDMA_DMA_BAD_SIZE)
		TH_LOG("status %d", status);

	for (__u32 op = ULDMA_OP_NOP + 1; op; op <<= 1) {
		EXPECT_LT(0, TRY(copy, op, op))
			TH_LOG("op %x", op);
	}
	for (__u32 flag = ULDMA_DESC_LINK << 1; flag; flag <<= 1) {
		EXPECT_LT(0, TRY(copy, flags, flag))
			TH_LOG("flag %x", flag);
	}
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
	EXPECT_EQ(0, context_stats(p->fd).out_bytes);
	EXPECT_EQ(0, party_works(p));
}

/* Words are read and written, and a region may not allow that. */
TEST_F(queue, rights)
{
	struct party *p = &self->p;
	struct region ro, wo;

	ASSERT_EQ(0, region_register(p->fd, p->dst, 64, ULDMA_ACCESS_READ,
				     &ro));
	ASSERT_EQ(0, region_register(p->fd, p->dst, 64, ULDMA_ACCESS_WRITE,
				     &wo));
	EXPECT_EQ(ULDMA_DMA_NO_RIGHT,
		  queue_do(&p->c, fetch_add_of(&ro, 0, 1), NULL));
	EXPECT_EQ(ULDMA_DMA_NO_RIGHT,
		  queue_do(&p->c, fetch_add_of(&wo, 0, 1), NULL));
	EXPECT_EQ(ULDMA_DMA_NO_RIGHT,
		  queue_do(&p->c, compare_swap_of(&ro, 0, self->words[0], 1),
			   NULL));
	EXPECT_EQ(ULDMA_DMA_NO_RIGHT,
		  queue_do(&p->c, compare_swap_of(&wo, 0, self->words[0], 1),
			   NULL));
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
}

/* A word that starts at no multiple of eight in memory, though in its region. */
TEST_F(queue, word_of_an_unaligned_region)
{
	struct party *p = &self->p;
	struct region odd;

	ASSERT_EQ(0, region_register(p->fd, p->dst + 4, 64, RW, &odd));
	EXPECT_EQ(ULDMA_DMA_NOT_ALIGNED,
		  queue_do(&p->c, fetch_add_of(&odd, 0, 1), NULL));
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
	EXPECT_EQ(0, queue_do(&p->c, fetch_add_of(&odd, 4, 1), NULL));
	self->words[1]--;
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
}

/* A descriptor counts only with the number that comes next. */
TEST_F(queue, wrong_tickets)
{
	static const __u64 wrong[] = { 0, 2, 63, 64, 65, 129, ~0ULL, 1ULL << 63 };
	struct party *p = &self->p;
	struct uldma_descriptor d = copy_of(p, 0, 0, 64);

	for (int i = 0; i < ARRAY_SIZE(wrong); i++) {
		for (int n = 0; n < ULDMA_STATUS_RECORDS; n++) {
			d.ticket = n == 1 ? wrong[i] : n + 3;
			p->c.queue[n] = d;
		}
		device_store((uintptr_t)p->c.page, 0);
		ASSERT_EQ(0, queue_sleeps(p));
		EXPECT_EQ(0, READ_ONCE(p->c.status->completed))
			TH_LOG("ticket %llx", wrong[i]);
	}
	EXPECT_EQ(0, memcmp(self->model, p->dst, p->length));
	memset(p->c.queue, 0, page_size());
	EXPECT_EQ(0, party_works(p));
}

/* The device sleeps when there is nothing, and a store to its page wakes it. */
TEST_F(queue, wakeup)
{
	struct party *p = &self->p;
	struct uldma_descriptor d = copy_of(p, 0, 0, 8);

	for (int i = 1; i <= 20; i++) {
		ASSERT_EQ(0, queue_sleeps(p));
		ASSERT_EQ(i, queue_post(&p->c, &d));
		EXPECT_TRUE(queue_ring(&p->c));
		ASSERT_EQ(0, status_of(&p->c, i));
		EXPECT_EQ(i, context_stats(p->fd).out_page_stores);
	}
}

/* Once it is awake it needs no access for what there is, however much. */
TEST_F(queue, one_access_for_many)
{
	struct party *p = &self->p;
	struct uldma_descriptor d = copy_of(p, 0, 0, p->length);
	struct uldma_context_stats s;
	int n = 0;

	for (int round = 1; round <= 20; round++) {
		ASSERT_EQ(0, queue_sleeps(p));
		for (int i = 0; i < ULDMA_STATUS_RECORDS; i++)
			ASSERT_EQ(++n, queue_post(&p->c, &d));
		ASSERT_TRUE(queue_ring(&p->c));
		ASSERT_EQ(0, status_of(&p->c, n));
		EXPECT_EQ(round, context_stats(p->fd).out_page_stores);
	}
	s = context_stats(p->fd);
	EXPECT_EQ(0, s.out_page_loads + s.out_shadow_stores +
			     s.out_shadow_loads);
	EXPECT_EQ(n, s.out_initiations);
	EXPECT_EQ(n * p->length, s.out_bytes);
}

/* Nor for later descriptors, unless the device sleeps again. */
TEST_F(queue, accesses_only_to_wake)
{
	struct party *p = &self->p;
	struct uldma_descriptor d = copy_of(p, 0, 0, p->length);
	int rings = 0, n = 2000;

	ASSERT_EQ(0, queue_sleeps(p));
	for (int i = 1; i <= n; i++) {
		ASSERT_EQ(i, queue_post(&p->c, &d));
		rings += queue_ring(&p->c);
	}
	ASSERT_EQ(0, status_of(&p->c, n));
	EXPECT_EQ(rings, context_stats(p->fd).out_page_stores);
	EXPECT_LT(0, rings);
	EXPECT_GT(n, rings);
}

TEST_F(queue, events)
{
	struct party *p = &self->p;
	struct uldma_descriptor d = copy_of(p, 0, 0, p->length);
	struct uldma_dma_wait result;
	struct uldma_event event;
	__s64 ticket;

	EXPECT_EQ(0, poll_for(p->fd, 0));
	for (int i = 0; i < 20; i++) {
		ticket = queue_post(&p->c, &d);
		queue_ring(&p->c);
		ASSERT_EQ(0, event_wait(p->fd, ULDMA_EVENT_COMPLETION, SOON,
					&event));
		EXPECT_EQ(ticket, event.value);
		EXPECT_EQ(p->c.number, event.handle);

		ticket = queue_post(&p->c, &d);
		queue_ring(&p->c);
		ASSERT_EQ(0, dma_wait(p->fd, ULDMA_WAIT_CONTEXT, ticket,
				      PATIENCE, &result));
		EXPECT_EQ(p->length, result.out_bytes);
		EXPECT_EQ(ULDMA_DMA_OK, result.out_status);
		/* It is pending all the same. */
		ASSERT_EQ(0, event_wait(p->fd, ULDMA_EVENT_COMPLETION, 0,
					&event));
	}
}

static void on_alarm(int signal)
{
}

/* A signal ends the wait, and what is left of its time is for the next. */
TEST_F(queue, wait_interrupted)
{
	struct sigaction act = { .sa_handler = on_alarm };
	struct itimerval timer = { .it_value.tv_usec = 20000,
				   .it_interval.tv_usec = 20000 };
	struct itimerval none = { };
	struct party *p = &self->p;
	struct uldma_dma_wait *fixed, result;
	__u64 left = PATIENCE;

	ASSERT_EQ(0, sigaction(SIGALRM, &act, NULL));
	fixed = buffer(page_size());
	ASSERT_NE(NULL, fixed);
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &timer, NULL));
	for (int i = 0; i < 3; i++) {
		EXPECT_EQ(-EINTR, dma_wait(p->fd, ULDMA_WAIT_CONTEXT,
					   p->c.ticket + 1, left, &result));
		EXPECT_GT(left, result.timeout_ns);
		left = result.timeout_ns;
	}
	result.timeout_ns = PATIENCE;
	*fixed = result;
	ASSERT_EQ(0, mprotect(fixed, page_size(), PROT_READ));
	EXPECT_EQ(-EINTR, uldma_ioctl(p->fd, ULDMA_IOC_DMA_WAIT, fixed));
	EXPECT_EQ(PATIENCE, fixed->timeout_ns);
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &none, NULL));
}

/* Tickets are the program's to give out, as far as there is room. */
TEST_F(queue, wait_for_unknown)
{
	struct party *p = &self->p;
	struct uldma_dma_wait result;
	__u64 room = ULDMA_STATUS_RECORDS;

	for (int i = 0; i < 3; i++) {
		__u64 last = p->c.ticket;

		EXPECT_EQ(-ENOENT, dma_wait(p->fd, ULDMA_WAIT_CONTEXT, 0, 0,
					    &result));
		EXPECT_EQ(-ETIMEDOUT, dma_wait(p->fd, ULDMA_WAIT_CONTEXT,
					       last + 1, 0, &result));
		EXPECT_EQ(-ETIMEDOUT, dma_wait(p->fd, ULDMA_WAIT_CONTEXT,
					       last + room, 0, &result));
		EXPECT_EQ(-ENOENT, dma_wait(p->fd, ULDMA_WAIT_CONTEXT,
					    last + room + 1, 0, &result));
		EXPECT_EQ(-ENOENT, dma_wait(p->fd, ULDMA_WAIT_CONTEXT, ~0ULL, 0,
					    &result));
		ASSERT_EQ(0, party_works(p));
	}
}

TEST_F(queue, eventfd)
{
	struct uldma_eventfd arg = {
		.size = sizeof(arg),
		.fd = eventfd(0, EFD_NONBLOCK),
	};
	struct party *p = &self->p;
	struct uldma_descriptor d = copy_of(p, 0, 0, p->length);
	__u64 count;

	ASSERT_LE(0, arg.fd);
	ASSERT_EQ(0, uldma_ioctl(p->fd, ULDMA_IOC_EVENTFD, &arg));
	for (int i = 0; i < 20; i++) {
		ASSERT_EQ(i + 1, queue_post(&p->c, &d));
		queue_ring(&p->c);
		ASSERT_EQ(POLLIN, poll_for(arg.fd, SOON));
		ASSERT_EQ(sizeof(count), read(arg.fd, &count, sizeof(count)));
		ASSERT_EQ(0, status_of(&p->c, i + 1));
	}
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
