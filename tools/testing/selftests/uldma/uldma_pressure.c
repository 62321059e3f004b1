// SPDX-License-Identifier: GPL-2.0
/*
 * Registered memory stays where it is when memory is short. What is not
 * registered is the control: unless that leaves memory, nothing was shown.
 */
#include "uldma_harness.h"
#include "uldma_kinds.h"
#include "uldma_lmm.h"

#define LENGTH (4UL << 20)
/* What the other process takes at a time. */
#define STEP (8UL << 20)

FIXTURE(pressure) {
	int fd;
	size_t page;
	size_t pages;
	char *buf;
	char *control;
	struct region r;
	char *copy;
	struct region to;
	__u64 *frames;
	__u64 *now;
};

FIXTURE_VARIANT(pressure) {
	void *(*map)(size_t length);
};

static bool has_swap(void)
{
	return number_in("/proc/meminfo", "SwapFree") * 1024 > 4 * LENGTH;
}

FIXTURE_SETUP(pressure)
{
	if (!has_swap())
		SKIP(return, "there is no swap to page out to");
	self->fd = uldma_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	self->page = page_size();
	self->pages = LENGTH / self->page;
	self->buf = variant->map(LENGTH);
	self->control = variant->map(LENGTH);
	if (!self->buf || !self->control)
		SKIP(return, "%s", why_not);
	self->copy = buffer(LENGTH);
	ASSERT_NE(NULL, self->copy);
	self->frames = calloc(2 * self->pages, sizeof(__u64));
	ASSERT_NE(NULL, self->frames);
	self->now = self->frames + self->pages;
	pattern_fill(self->buf, LENGTH, 1);
	pattern_fill(self->control, LENGTH, 2);
	ASSERT_EQ(0, region_register(self->fd, self->copy, LENGTH, RW,
				     &self->to));
	ASSERT_EQ(0, region_register(self->fd, self->buf, LENGTH, RW,
				     &self->r));
	ASSERT_EQ(self->pages, frames_of(self->buf, self->pages,
					 self->frames));
}

FIXTURE_TEARDOWN(pressure)
{
	close(self->fd);
}

FIXTURE_VARIANT_ADD(pressure, anonymous) { map_anonymous };
FIXTURE_VARIANT_ADD(pressure, transparent_huge) { map_thp };
FIXTURE_VARIANT_ADD(pressure, shared) { map_shared };
FIXTURE_VARIANT_ADD(pressure, memfd) { map_memfd };
FIXTURE_VARIANT_ADD(pressure, sysv) { map_sysv };

static size_t gone(struct _test_data_pressure *self)
{
	return self->pages - resident(self->control, LENGTH);
}

static void check_region(struct __test_metadata *_metadata,
			 struct _test_data_pressure *self, __u64 seed)
{
	EXPECT_EQ(self->pages, resident(self->buf, LENGTH));
	memset(self->copy, 0, LENGTH);
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &self->to, 0, &self->r, 0,
			      LENGTH));
	EXPECT_EQ(-1, pattern_check(self->copy, LENGTH, seed));
	/* Shared pages may have been unmapped, which moves nothing. */
	EXPECT_EQ(-1, pattern_check(self->buf, LENGTH, seed));
	EXPECT_EQ(self->pages, frames_of(self->buf, self->pages, self->now));
	EXPECT_EQ(0, memcmp(self->frames, self->now,
			    self->pages * sizeof(__u64)));
	EXPECT_EQ(0, stale_pages(self->fd, self->r.handle));
}

static int page_out(void *at)
{
	return madvise(at, LENGTH, MADV_PAGEOUT) ? -errno : 0;
}

TEST_F(pressure, paged_out_by_advice)
{
	ASSERT_EQ(0, page_out(self->control));
	ASSERT_LT(self->pages / 2, gone(self));
	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(0, page_out(self->buf));
		check_region(_metadata, self, 1);
	}
	EXPECT_EQ(-1, pattern_check(self->control, LENGTH, 2));
}

/* What the device wrote is not lost when the page goes, for it is dirty. */
TEST_F(pressure, paged_out_after_a_write)
{
	/* A copy that is in swap already is older than what comes now. */
	pattern_fill(self->copy, LENGTH, 3);
	ASSERT_EQ(0, page_out(self->buf));
	ASSERT_EQ(0, transfer(self->fd, BY_KERNEL, &self->r, 0, &self->to, 0,
			      LENGTH));
	ASSERT_EQ(0, region_unregister(self->fd, self->r.handle));
	ASSERT_EQ(0, page_out(self->buf));
	EXPECT_LT(self->pages / 2, self->pages - resident(self->buf, LENGTH));
	EXPECT_EQ(-1, pattern_check(self->buf, LENGTH, 3));
}

/* Takes memory a step at a time, little of it different from the rest. */
static long take(long verb, long arg, void *data)
{
	char *p = map_anonymous(STEP);

	if (!p)
		return -ENOMEM;
	for (size_t i = 0; i < STEP; i += page_size())
		*(__u64 *)(p + i) = i + verb;
	return 0;
}

/* More than there is, but less than there is with the swap. */
TEST_F_TIMEOUT(pressure, another_takes_all, 240)
{
	size_t limit = number_in("/proc/meminfo", "MemAvailable") * 1024 +
		       number_in("/proc/meminfo", "SwapFree") * 1024 / 2;
	struct partner hog = { };
	size_t taken;

	ASSERT_EQ(0, partner_start(&hog, take, NULL));
	for (taken = 0; taken < limit && gone(self) < self->pages / 4;
	     taken += STEP) {
		ASSERT_EQ(0, partner_call(&hog, taken, 0));
	}
	EXPECT_LE(self->pages / 4, gone(self));
	check_region(_metadata, self, 1);
	EXPECT_EQ(SIGKILL, partner_kill(&hog));
	TH_LOG("%zu MiB were taken of %zu", taken >> 20, limit >> 20);
	EXPECT_EQ(-1, pattern_check(self->control, LENGTH, 2));
	check_region(_metadata, self, 1);
}

/*
 * For information: whether what other systems relied on, mlock() and SHM_LOCK,
 * would have kept the memory where it is. Residency it should give.
 */
TEST(locked_by_other_means)
{
	size_t pages = LENGTH / page_size();
	__u64 *before = calloc(2 * pages, sizeof(__u64));
	int id = shmget(IPC_PRIVATE, LENGTH, IPC_CREAT | 0600);
	char *at[2] = { map_anonymous(LENGTH), shmat(id, NULL, 0) };
	size_t same;

	if (!has_swap())
		SKIP(return, "there is no swap to page out to");
	ASSERT_NE(NULL, before);
	ASSERT_NE(NULL, at[0]);
	ASSERT_NE((void *)-1, at[1]);
	for (int i = 0; i < 2; i++)
		pattern_fill(at[i], LENGTH, i);
	ASSERT_EQ(0, mlock(at[0], LENGTH));
	ASSERT_EQ(0, shmctl(id, SHM_LOCK, NULL));
	for (int i = 0; i < 2; i++) {
		frames_of(at[i], pages, before);
		page_out(at[i]);
		put("/proc/sys/vm/compact_memory", "1");
		EXPECT_EQ(pages, resident(at[i], LENGTH));
		EXPECT_EQ(-1, pattern_check(at[i], LENGTH, i));
		frames_of(at[i], pages, before + pages);
		same = 0;
		for (size_t p = 0; p < pages; p++)
			same += before[p] == before[pages + p];
		TH_LOG("%s: %zu of %zu pages are where they were",
		       i ? "SHM_LOCK" : "mlock", same, pages);
	}
	shmctl(id, IPC_RMID, NULL);
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
