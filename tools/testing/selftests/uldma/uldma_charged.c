// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that a control group is charged for, and the locks of a device.
 *
 * A control group can make an allocation sleep for seconds. All users take the
 * locks of a device, in page faults and calls, and so do its workers: no memory is
 * charged under one of them. The kernel's tracer sees the locks and the
 * allocations of one thread, in order.
 */
#include "uldma_harness.h"
#include "uldma_trace.h"

#define NAME 0x63686172676564ULL
#define TABLE (2UL << 20)

/* Allocations of a trace that are charged. */
struct charges {
	int all;
	/* Under as many locks, or more. */
	int locked;
};

FIXTURE(charged) {
	struct tracer tracer;
	int fd;
	struct context c;
};

FIXTURE_SETUP(charged)
{
	struct tracer *t = &self->tracer;

	if (access(KPROBES, W_OK) || !has_event("kmem/kmalloc"))
		SKIP(return, "the kernel has no tracer of functions and allocations");
	/* A kernel that checks locks has another name for it. */
	if (probe("taken", "mutex_lock"))
		ASSERT_EQ(0, probe("taken", "mutex_lock_nested"));
	ASSERT_EQ(0, probe("released", "mutex_unlock"));
	ASSERT_EQ(0, tracer_make(t));
	ASSERT_EQ(0, trace_function(t, "taken"));
	ASSERT_EQ(0, trace_function(t, "released"));
	ASSERT_EQ(0, tracer_add(t, "kmem/kmalloc"));
	ASSERT_EQ(0, tracer_add(t, "kmem/kmem_cache_alloc"));
	ASSERT_EQ(0, tracer_add(t, "kmem/mm_page_alloc"));
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(charged)
{
	close(self->fd);
	tracer_end(&self->tracer);
	no_probe("taken");
	no_probe("released");
}

/* Counts the charged allocations of a trace, and those under so many locks. */
static int count_charges(const struct tracer *t, int locks,
			 struct charges *charges)
{
	bool lost = false;
	int taken = 0;
	char line[512];
	FILE *f;

	*charges = (struct charges){ };
	f = fdopen(tracer_open(t, "trace", O_RDONLY), "r");
	if (!f)
		return -EIO;
	while (fgets(line, sizeof(line), f)) {
		lost |= !!strstr(line, "LOST");
		if (strstr(line, ": taken: ")) {
			taken++;
		} else if (strstr(line, ": released: ")) {
			taken -= taken > 0;
		} else if (strstr(line, "GFP_KERNEL_ACCOUNT")) {
			charges->all++;
			charges->locked += taken >= locks;
		}
	}
	fclose(f);
	return lost ? -EIO : 0;
}

/* Segments have no lock of their open file when they are made. */
TEST_F(charged, segments)
{
	const struct tracer *t = &self->tracer;
	struct charges charges;
	struct segment s;

	/* The first one makes room for handles, under the lock of the file. */
	ASSERT_EQ(0, segment_create(self->fd, NAME, 1, &s));
	ASSERT_EQ(0, segment_destroy(self->fd, s.handle));
	ASSERT_EQ(0, tracer_begin(t));
	ASSERT_EQ(0, segment_create(self->fd, NAME, 1, &s));
	ASSERT_EQ(0, tracer_stop(t));
	ASSERT_EQ(0, count_charges(t, 1, &charges));
	EXPECT_LT(0, charges.all);
	EXPECT_EQ(0, charges.locked);
	ASSERT_EQ(0, tracer_begin(t));
	ASSERT_EQ(0, segment_destroy(self->fd, s.handle));
	ASSERT_EQ(0, tracer_stop(t));
	ASSERT_EQ(0, count_charges(t, 1, &charges));
	EXPECT_EQ(0, charges.locked);
}

/* A context is made under the lock of its open file, which no other one takes. */
TEST_F(charged, contexts)
{
	const struct tracer *t = &self->tracer;
	struct charges charges;

	if (!(query(self->fd).out_methods & 1U << ULDMA_METHOD_QUEUE))
		SKIP(return, "no contexts");
	ASSERT_EQ(0, tracer_begin(t));
	ASSERT_EQ(0, context_create_as(self->fd, ULDMA_METHOD_QUEUE, 0,
				       &self->c));
	ASSERT_EQ(0, tracer_stop(t));
	ASSERT_EQ(0, count_charges(t, 2, &charges));
	EXPECT_LT(0, charges.all);
	EXPECT_EQ(0, charges.locked);
}

/* The table for a page is made before the lock under which the page is found. */
TEST_F(charged, page_tables)
{
	const struct tracer *t = &self->tracer;
	struct charges charges;
	struct segment s;
	char *area, *page;

	ASSERT_EQ(0, segment_create(self->fd, NAME, 1, &s));
	area = mmap(NULL, 3 * TABLE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
		    -1, 0);
	ASSERT_NE(MAP_FAILED, area);
	/* No other page has been mapped by the table of this one. */
	page = (char *)(((unsigned long)area + 2 * TABLE - 1) & ~(TABLE - 1));
	ASSERT_EQ(page, mmap(page, page_size(), PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_FIXED, self->fd, s.offset));
	ASSERT_EQ(0, tracer_begin(t));
	(void)READ_ONCE(*page);
	ASSERT_EQ(0, tracer_stop(t));
	ASSERT_EQ(0, count_charges(t, 1, &charges));
	EXPECT_LT(0, charges.all);
	EXPECT_EQ(0, charges.locked);
}

TEST_HARNESS_MAIN
