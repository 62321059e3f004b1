// SPDX-License-Identifier: GPL-2.0
/*
 * The allocations that registering and unregistering make in the kernel, as the
 * kernel's tracer sees them: their numbers are limited here, so that none comes
 * back unnoticed. Numbers are those of the whole call, and the same on every
 * machine. A kernel with checkers that allocate has kmemleak, too.
 */
#include <limits.h>

#include "uldma_harness.h"
#include "uldma_kinds.h"

#define TRACING "/sys/kernel/tracing/"
#define NEEDS "the kernel has no tracer of allocations"
/* Interrupts may allocate meanwhile, so the least of some attempts counts. */
#define ATTEMPTS 16
/* Regions that are there beside the one that counts. */
#define OTHERS 40

/**
 * struct tracer - a tracer of allocations, with a buffer of its own
 * @dir: its directory
 * @on: the file that turns it on and off; opening it would allocate
 */
struct tracer {
	char dir[128];
	int on;
};

FIXTURE(allocations) {
	struct tracer tracer;
	int fd;
	char *buf;
};

static int set(const struct tracer *t, const char *file, const char *value)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", t->dir, file);
	return put(path, value);
}

static int open_file(const struct tracer *t, const char *file, int flags)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", t->dir, file);
	return open(path, flags);
}

FIXTURE_SETUP(allocations)
{
	struct tracer *t = &self->tracer;
	char filter[64];

	if (access(TRACING "events/kmem/kmalloc/filter", W_OK))
		SKIP(return, NEEDS);
	if (has_kmemleak())
		SKIP(return, "kmemleak allocates, too");
	snprintf(t->dir, sizeof(t->dir), TRACING "instances/uldma-%d",
		 getpid());
	ASSERT_EQ(0, mkdir(t->dir, 0700));
	t->on = open_file(t, "tracing_on", O_WRONLY);
	ASSERT_LE(0, t->on);
	ASSERT_EQ(1, pwrite(t->on, "0", 1, 0));
	snprintf(filter, sizeof(filter), "common_pid == %d", gettid());
	ASSERT_EQ(0, set(t, "events/kmem/kmalloc/filter", filter));
	ASSERT_EQ(0, set(t, "events/kmem/kmem_cache_alloc/filter", filter));
	ASSERT_EQ(0, set(t, "events/kmem/kmalloc/enable", "1"));
	ASSERT_EQ(0, set(t, "events/kmem/kmem_cache_alloc/enable", "1"));
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->buf = buffer((OTHERS + 1) * 16 * page_size());
	ASSERT_NE(NULL, self->buf);
}

FIXTURE_TEARDOWN(allocations)
{
	close(self->fd);
	close(self->tracer.on);
	rmdir(self->tracer.dir);
}

/* The allocations in the trace, or -1 if some were lost. */
static int traced(const struct tracer *t)
{
	bool lost = false;
	int count = 0;
	char line[512];
	FILE *f;

	f = fdopen(open_file(t, "trace", O_RDONLY), "r");
	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f)) {
		count += strstr(line, ": kmalloc: ") ||
			 strstr(line, ": kmem_cache_alloc: ");
		lost |= !!strstr(line, "LOST");
	}
	fclose(f);
	return lost ? -1 : count;
}

static int begin(const struct tracer *t)
{
	/* Opening it so empties the trace. */
	int trace = open_file(t, "trace", O_WRONLY | O_TRUNC);

	close(trace);
	return trace >= 0 && pwrite(t->on, "1", 1, 0) == 1 ? 0 : -EIO;
}

/* The number of allocations since begin(), or -1. */
static int end(const struct tracer *t)
{
	return pwrite(t->on, "0", 1, 0) == 1 ? traced(t) : -1;
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

		ret = begin(t) ?: region_register(fd, addr, length, RW, &r);
		made = end(t);
		ret = ret ?: begin(t) ?: region_unregister(fd, r.handle);
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

	ASSERT_EQ(0, begin(&self->tracer));
	ASSERT_EQ(0, end(&self->tracer));

	ASSERT_EQ(0, begin(&self->tracer));
	other = uldma_open(0);
	ASSERT_LT(0, end(&self->tracer));
	close(other);
}

/* What a region has of its own: the notifier of its addresses. */
TEST_F(allocations, one_page)
{
	struct least least;

	ASSERT_EQ(0, measure(&self->tracer, self->fd, self->buf + 8, 100,
			     &least));
	TH_LOG("%d to register, %d to unregister", least.make, least.end);
	EXPECT_GE(1, least.make);
	EXPECT_GE(0, least.end);
}

/* The same, and an array of the pages. */
TEST_F(allocations, sixteen_pages)
{
	struct least least;

	ASSERT_EQ(0, measure(&self->tracer, self->fd, self->buf, 16 * page_size(),
			     &least));
	TH_LOG("%d to register, %d to unregister", least.make, least.end);
	EXPECT_GE(3, least.make);
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
	EXPECT_GE(1, least.make);
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

		ASSERT_EQ(0, begin(&self->tracer));
		ASSERT_EQ(0, region_register(self->fd, self->buf + i * stride,
					     page_size(), RW, &r[i]));
		made = end(&self->tracer);
		ASSERT_LE(0, made);
		total += made;
	}
	TH_LOG("%d to register %d regions", total, OTHERS);
	EXPECT_GE(6 * OTHERS, total);
	for (int i = 0; i < OTHERS; i++)
		ASSERT_EQ(0, region_unregister(self->fd, r[i].handle));
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
