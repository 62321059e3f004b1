// SPDX-License-Identifier: GPL-2.0
/*
 * The allocations that registering and unregistering make in the kernel, as the
 * kernel's tracer sees them: their numbers are limited here, so that none comes
 * back unnoticed. Numbers are those of the whole call, and the same on every
 * machine. A kernel with checkers that allocate has kmemleak, too.
 */
#include <limits.h>

#include "uldma_harness.h"
#include "uldma_trace.h"

#define NEEDS "the kernel has no tracer of allocations"
/* Interrupts may allocate meanwhile, so the least of some attempts counts. */
#define ATTEMPTS 16
/* Regions that are there beside the one that counts. */
#define OTHERS 40

FIXTURE(allocations) {
	struct tracer tracer;
	int fd;
	char *buf;
};

FIXTURE_SETUP(allocations)
{
	struct tracer *t = &self->tracer;

	if (!has_event("kmem/kmalloc"))
		SKIP(return, NEEDS);
	if (has_kmemleak())
		SKIP(return, "kmemleak allocates, too");
	ASSERT_EQ(0, tracer_make(t));
	ASSERT_EQ(0, tracer_add(t, "kmem/kmalloc"));
	ASSERT_EQ(0, tracer_add(t, "kmem/kmem_cache_alloc"));
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->buf = buffer((OTHERS + 1) * 16 * page_size());
	ASSERT_NE(NULL, self->buf);
}

FIXTURE_TEARDOWN(allocations)
{
	close(self->fd);
	tracer_end(&self->tracer);
}

/* The number of allocations since tracer_begin(), or -1. */
static int end(const struct tracer *t)
{
	return tracer_stop(t) ? -1 : traced(t, ": kmalloc: ",
					    ": kmem_cache_alloc: ");
}

/**
 * struct least - the least numbers of allocations of all attempts
 * @make: to register
 * @end: to unregister
 */
struct least {
	int make;
	int end;
};

static int measure(const struct tracer *t, int fd, void *addr,
		   size_t length, struct least *least)
{
	*least = (struct least){ INT_MAX, INT_MAX };
	for (int i = 0; i < ATTEMPTS; i++) {
		struct region r;
		int ret, made, ended;

		ret = tracer_begin(t) ?: region_register(fd, addr, length, RW, &r);
		made = end(t);
		ret = ret ?: tracer_begin(t) ?: region_unregister(fd, r.handle);
		ended = end(t);
		if (ret)
			return ret;
		if (made < 0 || ended < 0)
			return -EIO;
		/* The first one makes what the others find. */
		if (i && made < least->make)
			least->make = made;
		if (i && ended < least->end)
			least->end = ended;
	}
	return 0;
}

/* The tracer sees what a call allocates, and nothing else. */
TEST_F(allocations, are_seen)
{
	int other;

	ASSERT_EQ(0, tracer_begin(&self->tracer));
	ASSERT_EQ(0, end(&self->tracer));

	ASSERT_EQ(0, tracer_begin(&self->tracer));
	other = uldma_open(0);
	ASSERT_LT(0, end(&self->tracer));
	close(other);
}

/* What a region has of its own: the notifier of its addresses, and what backs it. */
TEST_F(allocations, one_page)
{
	struct least least;

	ASSERT_EQ(0, measure(&self->tracer, self->fd, self->buf + 8, 100,
			     &least));
	TH_LOG("%d to register, %d to unregister", least.make, least.end);
	EXPECT_GE(2, least.make);
	EXPECT_GE(0, least.end);
}

/* The same, and an array of the pages. */
TEST_F(allocations, sixteen_pages)
{
	struct least least;

	ASSERT_EQ(0, measure(&self->tracer, self->fd, self->buf, 16 * page_size(),
			     &least));
	TH_LOG("%d to register, %d to unregister", least.make, least.end);
	EXPECT_GE(4, least.make);
	EXPECT_GE(0, least.end);
}

/* Regions that are there change nothing. */
TEST_F(allocations, one_page_beside_others)
{
	size_t stride = 16 * page_size();
	struct region r[OTHERS];
	struct least least;

	for (int i = 0; i < OTHERS; i++)
		ASSERT_EQ(0, region_register(self->fd, self->buf + i * stride,
					     page_size(), RW, &r[i]));
	ASSERT_EQ(0, measure(&self->tracer, self->fd,
			     self->buf + OTHERS * stride, page_size(), &least));
	EXPECT_GE(2, least.make);
	EXPECT_GE(0, least.end);
	for (int i = 0; i < OTHERS; i++)
		ASSERT_EQ(0, region_unregister(self->fd, r[i].handle));
}

/* Each more than the last one: page entries and places in tables come to it. */
TEST_F(allocations, one_page_more)
{
	size_t stride = 16 * page_size();
	struct region r[OTHERS];
	int total = 0;

	for (int i = 0; i < OTHERS; i++) {
		int made;

		ASSERT_EQ(0, tracer_begin(&self->tracer));
		ASSERT_EQ(0, region_register(self->fd, self->buf + i * stride,
					     page_size(), RW, &r[i]));
		made = end(&self->tracer);
		ASSERT_LE(0, made);
		total += made;
	}
	TH_LOG("%d to register %d regions", total, OTHERS);
	EXPECT_GE(7 * OTHERS, total);
	for (int i = 0; i < OTHERS; i++)
		ASSERT_EQ(0, region_unregister(self->fd, r[i].handle));
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
