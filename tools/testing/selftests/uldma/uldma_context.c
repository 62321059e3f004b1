// SPDX-License-Identifier: GPL-2.0
/*
 * Register contexts: their owners, their counters, and their end.
 */
#include "uldma_harness.h"

FIXTURE(context) {
	int fd;
	struct context c;
};

FIXTURE_SETUP(context)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(context)
{
	close(self->fd);
}

TEST_F(context, create_and_destroy)
{
	struct uldma_query before = query(self->fd);

	ASSERT_EQ(0, context_create(self->fd, &self->c));
	EXPECT_EQ(page_size(), self->c.page_length);
	EXPECT_LE(sizeof(struct uldma_status_page), self->c.page_length);
	EXPECT_EQ(before.out_contexts_used + 1,
		  query(self->fd).out_contexts_used);
	ASSERT_EQ(0, context_destroy(self->fd));
	EXPECT_EQ(before.out_contexts_used, query(self->fd).out_contexts_used);
	EXPECT_EQ(-ENXIO, context_destroy(self->fd));
}

TEST_F(context, second)
{
	struct context c;

	ASSERT_EQ(0, context_create(self->fd, &self->c));
	EXPECT_EQ(-EBUSY, context_create(self->fd, &c));
	ASSERT_EQ(0, context_destroy(self->fd));
	EXPECT_EQ(0, context_create(self->fd, &c));
}

/* Who gets no context can still have transfers started by the kernel. */
TEST_F(context, exhaustion)
{
	struct uldma_query q = query(self->fd);
	int left = q.out_contexts - q.out_contexts_used;
	char *buf = buffer(page_size());
	struct context c;
	struct region r;
	int *fds;

	ASSERT_NE(NULL, buf);
	fds = calloc(left, sizeof(*fds));
	ASSERT_NE(NULL, fds);
	for (int i = 0; i < left; i++) {
		fds[i] = uldma_open(0);
		ASSERT_LE(0, fds[i]);
		/* One that is not lent to others. */
		ASSERT_EQ(0, context_create_as(fds[i], ULDMA_METHOD_KEY, 0,
					       &c));
	}
	EXPECT_EQ(q.out_contexts, query(self->fd).out_contexts_used);
	EXPECT_EQ(-EBUSY, context_create(self->fd, &c));

	ASSERT_EQ(0, region_register(self->fd, buf, 64, RW, &r));
	pattern_fill(buf, 32, 1);
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &r, 32, &r, 0, 32));
	EXPECT_EQ(-1, pattern_check(buf + 32, 32, 1));

	ASSERT_LT(0, left);
	close(fds[0]);
	EXPECT_EQ(0, context_create(self->fd, &c));
	for (int i = 1; i < left; i++)
		close(fds[i]);
	EXPECT_EQ(q.out_contexts_used + 1, query(self->fd).out_contexts_used);
	free(fds);
}

TEST_F(context, numbers_differ)
{
	int other = uldma_open(0);
	struct context c;

	ASSERT_LE(0, other);
	ASSERT_EQ(0, context_create(self->fd, &self->c));
	ASSERT_EQ(0, context_create(other, &c));
	EXPECT_NE(c.number, self->c.number);
	close(other);
}

static int create_and_die(void *arg)
{
	int fd = uldma_open(0);
	struct context c;
	int ret;

	if (fd < 0)
		return fd;
	ret = context_create(fd, &c) ?: context_map(fd, &c);
	if (ret)
		return ret;
	raise(SIGKILL);
	return 0;
}

TEST_F(context, sigkill_releases)
{
	__u32 used = query(self->fd).out_contexts_used;

	EXPECT_EQ(SIGKILL, in_child(create_and_die, NULL));
	EXPECT_EQ(used, query(self->fd).out_contexts_used);
}

TEST_F(context, needed)
{
	struct uldma_context_stats stats = { .size = sizeof(stats) };
	struct uldma_dma_wait wait;

	EXPECT_EQ(-ENXIO, uldma_ioctl(self->fd, ULDMA_IOC_CONTEXT_STATS,
				      &stats));
	EXPECT_EQ(-ENXIO, context_destroy(self->fd));
	EXPECT_EQ(-ENXIO, dma_wait(self->fd, ULDMA_WAIT_CONTEXT, 1, 0, &wait));
}

FIXTURE(counters) {
	int fd;
	char *buf;
	struct region r;
	struct context c;
};

FIXTURE_SETUP(counters)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->buf = buffer(page_size());
	ASSERT_NE(NULL, self->buf);
	ASSERT_EQ(0, region_register(self->fd, self->buf, page_size(), RW,
				     &self->r));
	ASSERT_EQ(0, context_create(self->fd, &self->c));
	ASSERT_EQ(0, context_map(self->fd, &self->c));
	ASSERT_EQ(0, region_map(self->fd, &self->r, PROT_READ | PROT_WRITE));
}

FIXTURE_TEARDOWN(counters)
{
	close(self->fd);
}

TEST_F(counters, start_at_zero)
{
	struct uldma_context_stats s = context_stats(self->fd);

	EXPECT_EQ(0, s.out_shadow_stores);
	EXPECT_EQ(0, s.out_shadow_loads);
	EXPECT_EQ(0, s.out_page_stores);
	EXPECT_EQ(0, s.out_page_loads);
	EXPECT_EQ(0, s.out_initiations);
	EXPECT_EQ(0, s.out_refused);
	EXPECT_EQ(0, s.out_completed);
	EXPECT_EQ(0, s.out_bytes);
	EXPECT_EQ(0, READ_ONCE(self->c.status->completed));
	EXPECT_EQ(0, READ_ONCE(self->c.status->failed));
}

/* The point of it all: one store and one load each, and nothing else. */
TEST_F(counters, one_store_one_load)
{
	struct uldma_context_stats s;
	__s64 ticket = 0;
	int n = 50;

	for (int i = 0; i < n; i++) {
		ticket = shadow_start(&self->r, 2048, &self->r, 0, 100);
		ASSERT_EQ(i + 1, ticket);
		ASSERT_EQ(0, transfer_wait(self->fd, BY_SHADOW, ticket, 100));
	}
	s = context_stats(self->fd);
	EXPECT_EQ(n, s.out_shadow_stores);
	EXPECT_EQ(n, s.out_shadow_loads);
	EXPECT_EQ(0, s.out_page_stores);
	EXPECT_EQ(0, s.out_page_loads);
	EXPECT_EQ(n, s.out_initiations);
	EXPECT_EQ(0, s.out_refused);
	EXPECT_EQ(n, s.out_completed);
	EXPECT_EQ(n * 100, s.out_bytes);
	EXPECT_EQ(ticket, READ_ONCE(self->c.status->completed));
}

/* Transfers that the kernel starts are not the context's. */
TEST_F(counters, kernel_transfers_do_not_count)
{
	struct uldma_context_stats s;

	ASSERT_EQ(0, transfer(self->fd, BY_KERNEL, &self->r, 2048, &self->r, 0,
			      100));
	s = context_stats(self->fd);
	EXPECT_EQ(0, s.out_shadow_stores);
	EXPECT_EQ(0, s.out_shadow_loads);
	EXPECT_EQ(0, s.out_initiations);
	EXPECT_EQ(0, s.out_bytes);
}

TEST_F(counters, context_page)
{
	struct uldma_context_stats s;

	for (int i = 0; i < 7; i++)
		(void)READ_ONCE(self->c.page[0]);
	for (int i = 0; i < 5; i++)
		WRITE_ONCE(self->c.page[0], ~0ULL);
	s = context_stats(self->fd);
	EXPECT_EQ(7, s.out_page_loads);
	EXPECT_EQ(5, s.out_page_stores);
	EXPECT_EQ(0, s.out_initiations);
	EXPECT_EQ(0, s.out_shadow_stores + s.out_shadow_loads);
}

/* Arguments that only half arrived die with the context. */
TEST_F(counters, half_passed_arguments)
{
	WRITE_ONCE(*(__u64 *)self->r.shadow,
		   size_word(8, 0, 0, self->r.index, self->r.index));
	ASSERT_EQ(0, context_destroy(self->fd));
	ASSERT_EQ(0, context_create(self->fd, &self->c));
	ASSERT_EQ(0, region_map(self->fd, &self->r, PROT_READ | PROT_WRITE));
	EXPECT_EQ(-ULDMA_DMA_NO_ARGS,
		  (__s64)READ_ONCE(*(__u64 *)(self->r.shadow + 64)));
	EXPECT_EQ(0, context_stats(self->fd).out_initiations);
	EXPECT_EQ(1, context_stats(self->fd).out_refused);
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
