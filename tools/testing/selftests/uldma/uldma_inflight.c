// SPDX-License-Identifier: GPL-2.0
/*
 * Transfers that are under way while something ends: a region is unregistered, a
 * file closed, a process killed. Once such a call has returned, the device no
 * longer touches the memory.
 */
#include "uldma_harness.h"

#define LARGE (4UL << 20)

FIXTURE(inflight) {
	int fd;
	struct context c;
	char *src;
	char *dst;
	struct region s;
	struct region d;
};

FIXTURE_VARIANT(inflight) {
	enum how how;
};

static int setup(struct _test_data_inflight *self, int fd)
{
	self->fd = fd;
	if (fd < 0)
		return fd;
	return context_create(fd, &self->c) ?: context_map(fd, &self->c) ?:
	       region_register(fd, self->src, LARGE, RW, &self->s) ?:
	       region_register(fd, self->dst, LARGE, RW, &self->d) ?:
	       region_map(fd, &self->s, PROT_READ | PROT_WRITE) ?:
	       region_map(fd, &self->d, PROT_READ | PROT_WRITE);
}

FIXTURE_SETUP(inflight)
{
	self->src = buffer(LARGE);
	self->dst = buffer(LARGE);
	ASSERT_NE(NULL, self->src);
	ASSERT_NE(NULL, self->dst);
	pattern_fill(self->src, LARGE, 1);
	ASSERT_EQ(0, setup(self, uldma_open(0)));
}

FIXTURE_TEARDOWN(inflight)
{
	close(self->fd);
}

FIXTURE_VARIANT_ADD(inflight, kernel) { BY_KERNEL };
FIXTURE_VARIANT_ADD(inflight, shadow) { BY_SHADOW };

static int start(struct _test_data_inflight *self, enum how how,
		 __u64 *ticket)
{
	return transfer_start(self->fd, how, &self->d, 0, &self->s, 0, LARGE,
			      ticket);
}

static void start_some(struct _test_data_inflight *self, enum how how, int n)
{
	__u64 ticket;

	while (n-- && !start(self, how, &ticket))
		;
}

/*
 * Puts a mark into the destination, and lets the device do work that comes
 * after all that it may still have had in flight.
 */
static int disturbed(struct _test_data_inflight *self)
{
	int other = uldma_open(0);
	char *buf = buffer(LARGE);
	struct region r;
	int ret;

	if (other < 0 || !buf)
		return -ENOMEM;
	memset(self->dst, 0x77, LARGE);
	ret = region_register(other, buf, LARGE, RW, &r) ?:
	      transfer(other, BY_KERNEL, &r, 0, &r, LARGE / 2, LARGE / 2);
	close(other);
	munmap(buf, LARGE);
	for (size_t i = 0; !ret && i < LARGE; i++)
		if (self->dst[i] != 0x77)
			ret = -EILSEQ;
	return ret;
}

TEST_F(inflight, unregister_destination)
{
	for (int i = 0; i < 20; i++) {
		start_some(self, variant->how, 8);
		ASSERT_EQ(0, region_unregister(self->fd, self->d.handle));
		ASSERT_EQ(0, disturbed(self))
			TH_LOG("round %d", i);
		ASSERT_EQ(0, region_unmap(&self->d));
		ASSERT_EQ(0, region_register(self->fd, self->dst, LARGE, RW,
					     &self->d));
		ASSERT_EQ(0, region_map(self->fd, &self->d,
					PROT_READ | PROT_WRITE));
	}
	EXPECT_EQ(2 * LARGE / page_size(), vm_pin());
}

/* The source may be given away too: what is copied later must not be it. */
TEST_F(inflight, unregister_source)
{
	size_t page = page_size();

	for (int i = 0; i < 20; i++) {
		size_t wrong = 0;

		memset(self->src, 0x11, LARGE);
		memset(self->dst, 0, LARGE);
		start_some(self, variant->how, 8);
		ASSERT_EQ(0, region_unregister(self->fd, self->s.handle));
		/* As if another process had got the pages. */
		memset(self->src, 0x66, LARGE);
		ASSERT_EQ(0, transfer(self->fd, BY_KERNEL, &self->d, 0,
				      &self->d, page, page));
		for (size_t at = 0; at < LARGE; at++)
			wrong += self->dst[at] == 0x66;
		ASSERT_EQ(0, wrong)
			TH_LOG("round %d", i);
		ASSERT_EQ(0, region_unmap(&self->s));
		ASSERT_EQ(0, region_register(self->fd, self->src, LARGE, RW,
					     &self->s));
		ASSERT_EQ(0, region_map(self->fd, &self->s,
					PROT_READ | PROT_WRITE));
	}
}

/* A mapping keeps its file open. */
static int unmap_and_close(struct _test_data_inflight *self)
{
	return region_unmap(&self->s) ?: region_unmap(&self->d) ?:
	       munmap(self->c.page, self->c.page_length) ?:
	       munmap(self->c.status, self->c.page_length) ?:
	       close(self->fd);
}

TEST_F(inflight, close)
{
	long long pins;

	ASSERT_EQ(0, unmap_and_close(self));
	EXPECT_EQ(0, vm_pin());
	pins = machine_pins();
	for (int i = 0; i < 10; i++) {
		ASSERT_EQ(0, setup(self, uldma_open(0)));
		start_some(self, variant->how, 8);
		ASSERT_EQ(0, unmap_and_close(self));
		EXPECT_EQ(0, disturbed(self))
			TH_LOG("round %d", i);
	}
	EXPECT_EQ(0, vm_pin());
	EXPECT_EQ(pins, machine_pins());
}

/* Ends the transfers of the context, and those alone. */
TEST_F(inflight, context_destroy)
{
	for (int i = 0; i < 20; i++) {
		__u64 ticket;
		int ret;

		start_some(self, variant->how, 7);
		ASSERT_EQ(0, start(self, variant->how, &ticket));
		ASSERT_EQ(0, context_destroy(self->fd));
		ret = variant->how == BY_SHADOW ? disturbed(self) :
		      transfer_wait(self->fd, BY_KERNEL, ticket, LARGE);
		ASSERT_EQ(0, ret)
			TH_LOG("round %d", i);
		ASSERT_EQ(0, region_unmap(&self->s));
		ASSERT_EQ(0, region_unmap(&self->d));
		ASSERT_EQ(0, context_create(self->fd, &self->c));
		ASSERT_EQ(0, region_map(self->fd, &self->s, PROT_READ));
		ASSERT_EQ(0, region_map(self->fd, &self->d,
					PROT_READ | PROT_WRITE));
	}
}

struct victim {
	struct _test_data_inflight *self;
	enum how how;
	/* Shared with the parent, and pinned by the child alone. */
	char *shared;
};

static int die_in_flight(void *arg)
{
	struct victim *victim = arg;
	struct _test_data_inflight self = {
		.src = victim->self->src,
		.dst = victim->shared,
	};
	int ret = setup(&self, uldma_open(0));

	if (ret)
		return ret;
	start_some(&self, victim->how, 16);
	raise(SIGKILL);
	return 0;
}

TEST_F(inflight, sigkill)
{
	struct victim victim = { .self = self, .how = variant->how };
	struct uldma_query before = query(self->fd);
	long long pins = machine_pins();
	size_t i;

	victim.shared = mmap(NULL, LARGE, PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, victim.shared);
	for (int round = 0; round < 10; round++) {
		ASSERT_EQ(SIGKILL, in_child(die_in_flight, &victim));
		memset(victim.shared, 0x77, LARGE);
		ASSERT_EQ(0, transfer(self->fd, BY_KERNEL, &self->d, 0,
				      &self->s, 0, LARGE));
		for (i = 0; i < LARGE && victim.shared[i] == 0x77; i++)
			;
		EXPECT_EQ(LARGE, i)
			TH_LOG("round %d", round);
		EXPECT_EQ(before.out_regions, query(self->fd).out_regions);
		EXPECT_EQ(before.out_pages, query(self->fd).out_pages);
		EXPECT_EQ(before.out_contexts_used,
			  query(self->fd).out_contexts_used);
		EXPECT_EQ(pins, machine_pins());
	}
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
