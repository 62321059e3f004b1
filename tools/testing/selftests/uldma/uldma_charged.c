// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that a control group is charged for, and the locks of a device.
 *
 * A control group can make an allocation sleep for seconds. All users take the
 * locks of a device, in page faults and calls, and so do its workers, and unbind
 * waits for all that are inside of its gate: no memory is charged under a lock or
 * inside of the gate. The kernel's tracer sees the locks, the gate and the
 * allocations of one thread, in order.
 */
#include "uldma_endpoint.h"
#include "uldma_exchange.h"
#include "uldma_harness.h"
#include "uldma_trace.h"

#define NAME 0x63686172676564ULL
#define TABLE (2UL << 20)

/* Allocations of a trace that are charged. */
struct charges {
	int all;
	/* Under as many locks, or more; the gate counts as one. */
	int locked;
};

/* What the tracer reports of locks and the gate. */
static const char *const PROBES[][2] = {
	{ "released", "mutex_unlock" },
	{ "entered", "uldma:uldma_srcu_read_lock" },
	{ "left", "uldma:uldma_srcu_read_unlock" },
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
	for (size_t i = 0; i < ARRAY_SIZE(PROBES); i++)
		ASSERT_EQ(0, probe(PROBES[i][0], PROBES[i][1]));
	ASSERT_EQ(0, tracer_make(t));
	ASSERT_EQ(0, trace_function(t, "taken"));
	for (size_t i = 0; i < ARRAY_SIZE(PROBES); i++)
		ASSERT_EQ(0, trace_function(t, PROBES[i][0]));
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
	for (size_t i = 0; i < ARRAY_SIZE(PROBES); i++)
		no_probe(PROBES[i][0]);
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
		if (strstr(line, ": taken: ") || strstr(line, ": entered: ")) {
			taken++;
		} else if (strstr(line, ": released: ") ||
			   strstr(line, ": left: ")) {
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

/* The page for a copy, and room for what the device uses at the end of a send. */
TEST_F(charged, exchange)
{
	const struct tracer *t = &self->tracer;
	size_t page = page_size();
	struct charges charges;
	struct memory m;

	ASSERT_EQ(0, memory_create(self->fd, page, &m));
	ASSERT_EQ(0, memory_map(self->fd, &m));
	WRITE_ONCE(*m.at, 1);
	ASSERT_EQ(0, memory_protect(self->fd, &m, 0, page));
	ASSERT_EQ(0, tracer_begin(t));
	WRITE_ONCE(*m.at, 2);
	ASSERT_EQ(0, tracer_stop(t));
	ASSERT_EQ(0, count_charges(t, 1, &charges));
	EXPECT_LT(0, charges.all);
	EXPECT_EQ(0, charges.locked);
	ASSERT_EQ(0, tracer_begin(t));
	EXPECT_EQ(1, memory_release(self->fd, &m, 0, page));
	ASSERT_EQ(0, tracer_stop(t));
	ASSERT_EQ(0, count_charges(t, 1, &charges));
	EXPECT_LT(0, charges.all);
	EXPECT_EQ(0, charges.locked);
}

/* A transfer is made before it is started by the driver. */
TEST_F(charged, transfers)
{
	const struct tracer *t = &self->tracer;
	struct charges charges;
	char *at = buffer(page_size());
	__u64 ticket = 0;
	struct region r;
	int started;

	ASSERT_NE(NULL, at);
	ASSERT_EQ(0, region_register(self->fd, at, page_size(), RW, &r));
	ASSERT_EQ(0, tracer_begin(t));
	started = kernel_start(self->fd, r.handle, 0, r.handle, 8, 8, &ticket);
	ASSERT_EQ(0, tracer_stop(t));
	if (started == -EOPNOTSUPP)
		SKIP(return, "no engine");
	ASSERT_EQ(0, started);
	ASSERT_EQ(0, count_charges(t, 1, &charges));
	EXPECT_LT(0, charges.all);
	EXPECT_EQ(0, charges.locked);
}

/* So are the pages of an endpoint. */
TEST_F(charged, endpoints)
{
	const struct tracer *t = &self->tracer;
	struct charges charges;
	struct endpoint e;

	if (!query(self->fd).out_user_max_endpoints)
		SKIP(return, "no endpoints");
	/* The first one makes room for handles, under the lock of the file. */
	ASSERT_EQ(0, endpoint_create(self->fd, 0, page_size(), &e));
	ASSERT_EQ(0, tracer_begin(t));
	ASSERT_EQ(0, endpoint_create(self->fd, 0, page_size(), &e));
	ASSERT_EQ(0, tracer_stop(t));
	ASSERT_EQ(0, count_charges(t, 1, &charges));
	EXPECT_LT(0, charges.all);
	EXPECT_EQ(0, charges.locked);
}

TEST_HARNESS_MAIN
