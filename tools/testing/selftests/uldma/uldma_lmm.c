// SPDX-License-Identifier: GPL-2.0
/*
 * Queries about locked memory: the state of a region, the predicted charge of a
 * registration, the number of areas; and the end of all regions at once.
 */
#include "uldma_harness.h"
#include "uldma_kinds.h"
#include "uldma_lmm.h"

#define PAGES 64

FIXTURE(lmm) {
	int fd;
	size_t page;
	char *buf;
	struct region r;
};

FIXTURE_SETUP(lmm)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->page = page_size();
	self->buf = buffer(PAGES * self->page);
	ASSERT_NE(NULL, self->buf);
}

FIXTURE_TEARDOWN(lmm)
{
	close(self->fd);
}

/* Registers pages [first, end) of the buffer. */
static int lock(struct _test_data_lmm *self, int first, int end,
		struct region *r)
{
	return region_register(self->fd, self->buf + first * self->page,
			       (end - first) * self->page, RW, r);
}

static long areas(struct _test_data_lmm *self)
{
	return lmm(self->fd).out_areas;
}

TEST_F(lmm, region_query)
{
	struct uldma_region_query q;
	char *at = self->buf + 3 * self->page - 7;

	EXPECT_EQ(-ENOENT, region_query(self->fd, 0, &q));
	ASSERT_EQ(0, region_register(self->fd, at, 2 * self->page, RW,
				     &self->r));
	ASSERT_EQ(0, region_query(self->fd, self->r.handle, &q));
	EXPECT_EQ(RW, q.out_flags);
	EXPECT_EQ((uintptr_t)at, q.out_addr);
	EXPECT_EQ(2 * self->page, q.out_length);
	EXPECT_EQ(3, q.out_pages);
	EXPECT_EQ(0, q.out_stale);
	EXPECT_EQ(1, q.out_areas);
	ASSERT_EQ(0, region_unregister(self->fd, self->r.handle));
	EXPECT_EQ(-ENOENT, region_query(self->fd, self->r.handle, &q));
}

TEST_F(lmm, region_query_rights)
{
	static const __u32 rights[] = {
		ULDMA_ACCESS_READ, ULDMA_ACCESS_WRITE, RW
	};
	struct uldma_region_query q;

	/* Of the region, not of the pages that it shares with others. */
	ASSERT_EQ(0, lock(self, 0, 8, &self->r));
	for (int i = 0; i < ARRAY_SIZE(rights); i++) {
		ASSERT_EQ(0, region_register(self->fd, self->buf, 1, rights[i],
					     &self->r));
		ASSERT_EQ(0, region_query(self->fd, self->r.handle, &q));
		EXPECT_EQ(rights[i], q.out_flags);
		EXPECT_EQ(1, q.out_length);
		EXPECT_EQ(1, q.out_pages);
	}
}

TEST_F(lmm, region_query_export)
{
	struct uldma_region_query q;

	ASSERT_EQ(0, lock(self, 0, 1, &self->r));
	ASSERT_EQ(0, region_export(self->fd, self->r.handle, RW, getpid()));
	ASSERT_EQ(0, region_query(self->fd, self->r.handle, &q));
	EXPECT_EQ(RW | ULDMA_REGION_EXPORTED, q.out_flags);
	ASSERT_EQ(0, region_unexport(self->fd, self->r.handle));
	ASSERT_EQ(0, region_query(self->fd, self->r.handle, &q));
	EXPECT_EQ(RW, q.out_flags);
}

TEST_F(lmm, region_query_stale)
{
	int other = uldma_open(O_NONBLOCK);
	struct uldma_region_query q;

	ASSERT_LE(0, other);
	ASSERT_EQ(0, lock(self, 0, 4, &self->r));
	ASSERT_EQ(0, munmap(self->buf + self->page, self->page));
	ASSERT_EQ(0, stale_fence(other));
	ASSERT_EQ(0, region_query(self->fd, self->r.handle, &q));
	EXPECT_EQ(RW | ULDMA_REGION_STALE, q.out_flags);
	EXPECT_EQ(self->page, q.out_stale);
	EXPECT_EQ((uintptr_t)self->buf, q.out_addr);
	EXPECT_EQ(4, q.out_pages);
	close(other);
}

/* No call about regions takes the handle of anything else. */
TEST_F(lmm, segment_is_no_region)
{
	struct uldma_region_blocks b;
	struct uldma_region_query q;
	struct uldma_block block;
	struct segment s;
	int ret;

	ASSERT_EQ(0, segment_create(self->fd, getpid(), self->page, &s));
	EXPECT_EQ(-ENOENT, region_query(self->fd, s.handle, &q));
	ret = region_blocks(self->fd, s.handle, 0, 0, &block, 1, &b);
	EXPECT_TRUE(ret == -ENOENT || ret == -EINVAL)
		TH_LOG("got %d", ret);
}

TEST_F(lmm, handle_of_another_file)
{
	int other = uldma_open(0);
	struct uldma_region_blocks b;
	struct uldma_region_query q;
	struct uldma_block block;

	ASSERT_LE(0, other);
	ASSERT_EQ(0, lock(self, 0, 1, &self->r));
	EXPECT_EQ(-ENOENT, region_query(other, self->r.handle, &q));
	EXPECT_EQ(-ENOENT, region_blocks(other, self->r.handle, 0, 0, &block,
					 1, &b));
	close(other);
}

/* {[0,4), [6,8)} and [2,7) over them, as in the paper's figure 4. */
TEST_F(lmm, areas_of_the_paper)
{
	struct region r[3];

	EXPECT_EQ(0, areas(self));
	ASSERT_EQ(0, lock(self, 0, 4, &r[0]));
	EXPECT_EQ(1, areas(self));
	ASSERT_EQ(0, lock(self, 6, 8, &r[1]));
	EXPECT_EQ(2, areas(self));
	ASSERT_EQ(0, lock(self, 2, 7, &r[2]));
	EXPECT_EQ(5, areas(self));
	EXPECT_EQ(2, region_areas(self->fd, r[0].handle));
	EXPECT_EQ(2, region_areas(self->fd, r[1].handle));
	EXPECT_EQ(3, region_areas(self->fd, r[2].handle));
	EXPECT_EQ(8 * self->page, lmm(self->fd).out_locked);
	EXPECT_EQ(8, lmm(self->fd).out_pins);

	ASSERT_EQ(0, region_unregister(self->fd, r[2].handle));
	EXPECT_EQ(2, areas(self));
	EXPECT_EQ(1, region_areas(self->fd, r[0].handle));
	EXPECT_EQ(1, region_areas(self->fd, r[1].handle));
	EXPECT_EQ(6 * self->page, lmm(self->fd).out_locked);
	ASSERT_EQ(0, region_unregister(self->fd, r[0].handle));
	ASSERT_EQ(0, region_unregister(self->fd, r[1].handle));
	EXPECT_EQ(0, areas(self));
	EXPECT_EQ(0, lmm(self->fd).out_locked);
}

/**
 * struct model - what the manager should have, page by page
 * @locks: regions over the page, as bits
 * @pin: number of the gap that the page was pinned with
 */
struct model {
	unsigned int locks;
	int pin;
};

/*
 * Areas in a range: its longest runs of pages that were pinned together and
 * that the same regions cover.
 */
static int model_areas(const struct model *pages, int first, int end)
{
	int count = 0;

	for (int p = first; p < end; p++)
		count += pages[p].locks &&
			 (p == first || pages[p].locks != pages[p - 1].locks ||
			  pages[p].pin != pages[p - 1].pin);
	return count;
}

/* Areas are as long as they can be, whatever is locked and unlocked. */
TEST_F_TIMEOUT(lmm, areas_of_random_ranges, 200)
{
	struct {
		struct region r;
		int first;
		int end;
	} slot[12] = { }, *s;
	struct model pages[PAGES] = { };
	unsigned int seed = 3, bit;
	int pins = 0;

	for (int step = 0; step < 600; step++) {
		bool in_gap = false;

		s = &slot[rand_r(&seed) % ARRAY_SIZE(slot)];
		bit = 1U << (s - slot);
		if (s->end) {
			ASSERT_EQ(0, region_unregister(self->fd, s->r.handle));
			for (int p = s->first; p < s->end; p++)
				pages[p].locks &= ~bit;
			s->end = 0;
		} else {
			s->first = rand_r(&seed) % PAGES;
			s->end = s->first + 1 +
				 rand_r(&seed) % (PAGES - s->first);
			ASSERT_EQ(0, lock(self, s->first, s->end, &s->r));
			for (int p = s->first; p < s->end; p++) {
				pins += !pages[p].locks && !in_gap;
				in_gap = !pages[p].locks;
				if (in_gap)
					pages[p].pin = pins;
				pages[p].locks |= bit;
			}
		}
		ASSERT_EQ(model_areas(pages, 0, PAGES), areas(self))
			TH_LOG("step %d", step);
		for (s = slot; s < slot + ARRAY_SIZE(slot); s++) {
			if (!s->end)
				continue;
			ASSERT_EQ(model_areas(pages, s->first, s->end),
				  region_areas(self->fd, s->r.handle))
				TH_LOG("step %d", step);
		}
	}
}

/* Areas are those of the address space, whichever file locked them. */
TEST_F(lmm, of_the_address_space)
{
	int other = uldma_open(0);
	struct uldma_lmm a, b;

	ASSERT_LE(0, other);
	ASSERT_EQ(0, lock(self, 0, 4, &self->r));
	ASSERT_EQ(0, lock(self, 2, 6, &self->r));
	a = lmm(self->fd);
	b = lmm(other);
	EXPECT_EQ(3, b.out_areas);
	EXPECT_EQ(a.out_locked, b.out_locked);
	EXPECT_EQ(a.out_pins, b.out_pins);
	EXPECT_EQ(a.out_max_regions, b.out_max_regions);
	EXPECT_LT(0, a.out_max_regions);
	EXPECT_EQ(0, a.out_cached);
	EXPECT_EQ(0, a.out_cached_regions);
	close(other);
}

TEST_F_TIMEOUT(lmm, max_regions, 200)
{
	__u32 max = lmm(self->fd).out_max_regions, count = 0;
	struct uldma_query q = query(self->fd);
	int other, ret = 0;

	if (max > q.out_max_regions - q.out_regions)
		SKIP(return, "the device holds less than one open file may have");
	while (count <= max && !ret) {
		ret = region_register(self->fd, self->buf, 1, RW, &self->r);
		count += !ret;
	}
	EXPECT_EQ(-ENOSPC, ret);
	EXPECT_EQ(max, count);
	EXPECT_EQ(max, query(self->fd).out_file_regions);
	/* The limit is each open file's own. */
	if (max < q.out_max_regions - q.out_regions) {
		other = uldma_open(0);
		ASSERT_LE(0, other);
		EXPECT_EQ(0, region_register(other, self->buf, 1, RW,
					     &self->r));
		close(other);
	}
	EXPECT_EQ(0, region_cleanup(self->fd));
	EXPECT_EQ(0, query(self->fd).out_file_regions);
	EXPECT_EQ(0, region_register(self->fd, self->buf, 1, RW, &self->r));
}

static int charge_pages(struct _test_data_lmm *self, int first, int end,
			struct uldma_region_charge *c)
{
	return region_charge(self->fd, self->buf + first * self->page,
			     (end - first) * self->page, RW, c);
}

/* The predicted charge of a range is that of its registration. */
static void check_charge(struct __test_metadata *_metadata,
			 struct _test_data_lmm *self, int first, int end)
{
	struct uldma_region_charge c;
	long before = vm_pin();
	struct region r;

	ASSERT_EQ(0, charge_pages(self, first, end, &c));
	EXPECT_EQ(before * self->page, c.out_pinned);
	EXPECT_EQ((end - first) * self->page, c.out_charge + c.out_locked);
	ASSERT_EQ(0, lock(self, first, end, &r));
	EXPECT_EQ(c.out_charge / self->page, vm_pin() - before)
		TH_LOG("[%d, %d)", first, end);
}

TEST_F(lmm, charge)
{
	struct uldma_region_charge c;
	unsigned int seed = 5;

	ASSERT_EQ(0, charge_pages(self, 0, 4, &c));
	EXPECT_EQ(4 * self->page, c.out_charge);
	EXPECT_EQ(0, c.out_locked);
	check_charge(_metadata, self, 0, 4);
	check_charge(_metadata, self, 6, 8);
	ASSERT_EQ(0, charge_pages(self, 2, 7, &c));
	EXPECT_EQ(2 * self->page, c.out_charge);
	EXPECT_EQ(3 * self->page, c.out_locked);
	check_charge(_metadata, self, 2, 7);
	check_charge(_metadata, self, 0, 8);
	for (int i = 0; i < 30; i++) {
		int first = rand_r(&seed) % PAGES;

		check_charge(_metadata, self, first,
			     first + 1 + rand_r(&seed) % (PAGES - first));
	}
}

/* Bytes decide the pages, as they do for a registration. */
TEST_F(lmm, charge_of_bytes)
{
	char *last = self->buf + self->page - 1;
	struct uldma_region_charge c;

	ASSERT_EQ(0, region_charge(self->fd, last, 1, RW, &c));
	EXPECT_EQ(self->page, c.out_charge);
	ASSERT_EQ(0, region_charge(self->fd, last, 2, RW, &c));
	EXPECT_EQ(2 * self->page, c.out_charge);
	EXPECT_EQ(-EINVAL, region_charge(self->fd, last, 0, RW, &c));
	EXPECT_EQ(-EINVAL, region_charge(self->fd, last, 1, 0, &c));
	EXPECT_EQ(-EOVERFLOW, region_charge(self->fd, last, ~0ULL, RW, &c));
}

TEST_F(lmm, charge_limits)
{
	struct uldma_region_charge c;

	ASSERT_EQ(0, set_memlock(5 * self->page + 100));
	if (!geteuid()) {
		ASSERT_EQ(0, charge_pages(self, 0, 1, &c));
		EXPECT_EQ(~0ULL, c.out_limit);
	}
	ASSERT_EQ(0, drop_privileges());
	ASSERT_EQ(0, lock(self, 0, 3, &self->r));
	ASSERT_EQ(0, charge_pages(self, 1, 7, &c));
	EXPECT_EQ(5 * self->page + 100, c.out_limit);
	EXPECT_EQ(3 * self->page, c.out_pinned);
	EXPECT_EQ(4 * self->page, c.out_charge);
	EXPECT_EQ(2 * self->page, c.out_locked);
	/* It foretells this. */
	EXPECT_EQ(-ENOMEM, lock(self, 1, 7, &self->r));
	ASSERT_EQ(0, charge_pages(self, 1, 5, &c));
	EXPECT_EQ(5 * self->page, c.out_pinned + c.out_charge);
	EXPECT_EQ(0, lock(self, 1, 5, &self->r));
}

TEST_F(lmm, charge_touches_nothing)
{
	struct uldma_region_charge c;
	long long pins = machine_pins();
	char *fresh = map_anonymous(4 * self->page);

	ASSERT_NE(NULL, fresh);
	ASSERT_EQ(0, region_charge(self->fd, fresh, 4 * self->page, RW, &c));
	EXPECT_EQ(4 * self->page, c.out_charge);
	for (int i = 0; i < 4; i++)
		EXPECT_EQ(0, frame(fresh + i * self->page));
	/* Nor does it check for mapped pages. */
	ASSERT_EQ(0, munmap(fresh, 4 * self->page));
	ASSERT_EQ(0, region_charge(self->fd, fresh, 4 * self->page, RW, &c));
	EXPECT_EQ(4 * self->page, c.out_charge);
	EXPECT_EQ(0, vm_pin());
	EXPECT_EQ(pins, machine_pins());
}

static int charge_again(void *arg)
{
	struct _test_data_lmm *self = arg;
	struct uldma_region_charge c;

	return charge_pages(self, 0, 1, &c);
}

static int cleanup_again(void *arg)
{
	struct _test_data_lmm *self = arg;

	return region_cleanup(self->fd);
}

/* The file belongs to the address space that opened it. */
TEST_F(lmm, fork)
{
	ASSERT_EQ(0, lock(self, 0, 4, &self->r));
	EXPECT_EQ(-EPERM, in_child(charge_again, self));
	EXPECT_EQ(-EPERM, in_child(cleanup_again, self));
	EXPECT_EQ(1, query(self->fd).out_file_regions);
	EXPECT_EQ(4, vm_pin());
}

TEST_F(lmm, cleanup)
{
	int other = uldma_open(0);
	struct region r[8], theirs;
	struct segment s;
	struct context c;

	ASSERT_LE(0, other);
	ASSERT_EQ(0, region_register(other, self->buf, 4 * self->page, RW,
				     &theirs));
	ASSERT_EQ(0, context_create(self->fd, &c));
	ASSERT_EQ(0, context_map(self->fd, &c));
	ASSERT_EQ(0, segment_create(self->fd, getpid(), self->page, &s));
	ASSERT_EQ(0, segment_map(self->fd, &s));
	WRITE_ONCE(*s.map, 42);
	for (int i = 0; i < ARRAY_SIZE(r); i++)
		ASSERT_EQ(0, lock(self, 2 * i, 2 * i + 4, &r[i]));
	ASSERT_EQ(0, region_export(self->fd, r[0].handle, RW, getpid()));
	ASSERT_EQ(0, region_map(self->fd, &r[1], PROT_READ | PROT_WRITE));

	EXPECT_EQ(-EINVAL, handle_ioctl(self->fd, ULDMA_IOC_REGION_CLEANUP,
					r[0].handle));
	EXPECT_EQ(8, query(self->fd).out_file_regions);
	ASSERT_EQ(0, region_cleanup(self->fd));
	EXPECT_EQ(0, query(self->fd).out_file_regions);
	EXPECT_EQ(4, vm_pin());
	for (int i = 0; i < ARRAY_SIZE(r); i++)
		EXPECT_EQ(-ENOENT, region_unregister(self->fd, r[i].handle));
	/* The export's name is free, the shadow pages lead nowhere. */
	EXPECT_EQ(0, region_export(other, theirs.handle, RW, getpid()));
	EXPECT_NE(0, touch(r[1].shadow, LOAD));

	/* Context, segment and the other file are what they were. */
	EXPECT_EQ(42, READ_ONCE(*s.map));
	EXPECT_EQ(0, segment_destroy(self->fd, s.handle));
	EXPECT_EQ(0, transfer(other, BY_KERNEL, &theirs, 0, &theirs,
			      self->page, self->page));
	ASSERT_EQ(0, lock(self, 0, 4, &self->r));
	ASSERT_EQ(0, region_map(self->fd, &self->r, PROT_READ | PROT_WRITE));
	EXPECT_EQ(0, transfer(self->fd, BY_SHADOW, &self->r, 0, &self->r,
			      2 * self->page, self->page));
	EXPECT_EQ(0, context_destroy(self->fd));
	EXPECT_EQ(0, region_cleanup(self->fd));
	EXPECT_EQ(0, region_cleanup(self->fd));
	close(other);
	EXPECT_EQ(0, vm_pin());
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
