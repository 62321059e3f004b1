// SPDX-License-Identifier: GPL-2.0
/*
 * Registered memory stays where it is when memory is short. Memory that is not
 * registered is the control: unless that leaves memory, nothing was shown.
 */
#include <sys/mount.h>

#include "uldma_harness.h"
#include "uldma_kinds.h"
#include "uldma_lmm.h"

#define LENGTH (4UL << 20)
/* Bytes that the other process allocates at a time. */
#define STEP (8UL << 20)
#define PAGES (LENGTH / 4096)

/**
 * struct pair - memory of one kind, twice
 * @buf: registered
 * @control: not registered
 * @r: the region
 * @frames: of the region, when it was registered
 */
struct pair {
	char *buf;
	char *control;
	struct region r;
	__u64 frames[PAGES];
};

/* 0, -ENODATA and why_not where there is no such memory, or an error. */
static int pair_make(int fd, void *(*map)(size_t length), struct pair *p)
{
	int ret;

	p->buf = map(LENGTH);
	p->control = map(LENGTH);
	if (!p->buf || !p->control)
		return -ENODATA;
	pattern_fill(p->buf, LENGTH, 1);
	pattern_fill(p->control, LENGTH, 2);
	ret = region_register(fd, p->buf, LENGTH, RW, &p->r);
	if (!ret && frames_of(p->buf, PAGES, p->frames) != PAGES)
		ret = -EPERM;
	return ret;
}

/* Pages of the control that are not in memory. */
static size_t gone(struct pair *p)
{
	return PAGES - resident(p->control, LENGTH);
}

static int page_out(void *at)
{
	return madvise(at, LENGTH, MADV_PAGEOUT) ? -errno : 0;
}

static bool has_swap(void)
{
	return number_in("/proc/meminfo", "SwapFree") * 1024 > 16 * LENGTH;
}

/**
 * struct reader - how a test sees what the device reads
 * @fd: the device
 * @copy: where it writes what it read
 * @to: the region over that
 */
struct reader {
	int fd;
	char *copy;
	struct region to;
};

static int reader_make(struct reader *it)
{
	it->fd = uldma_open(O_NONBLOCK);
	if (it->fd < 0)
		return it->fd;
	it->copy = buffer(LENGTH);
	if (!it->copy)
		return -ENOMEM;
	return region_register(it->fd, it->copy, LENGTH, RW, &it->to);
}

FIXTURE(pressure) {
	struct reader it;
	struct pair p;
};

FIXTURE_VARIANT(pressure) {
	void *(*map)(size_t length);
};

FIXTURE_SETUP(pressure)
{
	int ret;

	if (!has_swap())
		SKIP(return, "there is no swap to page out to");
	ASSERT_EQ(0, reader_make(&self->it));
	ret = pair_make(self->it.fd, variant->map, &self->p);
	if (ret == -ENODATA)
		SKIP(return, "%s", why_not);
	ASSERT_EQ(0, ret);
}

FIXTURE_TEARDOWN(pressure)
{
	close(self->it.fd);
}

FIXTURE_VARIANT_ADD(pressure, anonymous) { map_anonymous };
FIXTURE_VARIANT_ADD(pressure, transparent_huge) { map_thp };
FIXTURE_VARIANT_ADD(pressure, shared) { map_shared };
FIXTURE_VARIANT_ADD(pressure, memfd) { map_memfd };
FIXTURE_VARIANT_ADD(pressure, sysv) { map_sysv };

/* The region's pages are in memory, where they were, and hold what they did. */
static void check_region(struct __test_metadata *_metadata, struct reader *it,
			 struct pair *p)
{
	__u64 now[PAGES];

	EXPECT_EQ(PAGES, resident(p->buf, LENGTH));
	memset(it->copy, 0, LENGTH);
	EXPECT_EQ(0, transfer(it->fd, BY_KERNEL, &it->to, 0, &p->r, 0,
			      LENGTH));
	EXPECT_EQ(-1, pattern_check(it->copy, LENGTH, 1));
	/* Shared pages may have been unmapped, which moves nothing. */
	EXPECT_EQ(-1, pattern_check(p->buf, LENGTH, 1));
	EXPECT_EQ(PAGES, frames_of(p->buf, PAGES, now));
	EXPECT_EQ(0, memcmp(p->frames, now, sizeof(now)));
	EXPECT_EQ(0, stale_pages(it->fd, p->r.handle));
}

TEST_F(pressure, paged_out_by_advice)
{
	ASSERT_EQ(0, page_out(self->p.control));
	ASSERT_LT(PAGES / 2, gone(&self->p));
	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(0, page_out(self->p.buf));
		check_region(_metadata, &self->it, &self->p);
	}
	EXPECT_EQ(-1, pattern_check(self->p.control, LENGTH, 2));
}

/* Bytes that the device wrote survive reclaim, as the page is dirty. */
TEST_F(pressure, paged_out_after_a_write)
{
	struct reader *it = &self->it;

	/* A copy that is in swap already is older than what comes now. */
	pattern_fill(it->copy, LENGTH, 3);
	ASSERT_EQ(0, page_out(self->p.buf));
	ASSERT_EQ(0, transfer(it->fd, BY_KERNEL, &self->p.r, 0, &it->to, 0,
			      LENGTH));
	ASSERT_EQ(0, region_unregister(it->fd, self->p.r.handle));
	/* Only what is mapped is paged out. */
	EXPECT_EQ(-1, pattern_check(self->p.buf, LENGTH, 3));
	ASSERT_EQ(0, page_out(self->p.buf));
	EXPECT_GT(PAGES / 2, resident(self->p.buf, LENGTH));
	EXPECT_EQ(-1, pattern_check(self->p.buf, LENGTH, 3));
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

#define KINDS 3

FIXTURE(hogged) {
	struct partner hog;
	struct reader it;
	struct pair pairs[KINDS];
};

FIXTURE_SETUP(hogged)
{
	static void *(*const maps[KINDS])(size_t length) = {
		map_anonymous, map_memfd, map_sysv
	};

	if (!has_swap())
		SKIP(return, "there is no swap to page out to");
	if (has_kmemleak())
		SKIP(return, "kmemleak ends when no memory is left");
	/* First, so that it shares nothing with what comes. */
	ASSERT_EQ(0, partner_start(&self->hog, take, NULL));
	ASSERT_EQ(0, reader_make(&self->it));
	for (int i = 0; i < KINDS; i++)
		ASSERT_EQ(0, pair_make(self->it.fd, maps[i],
				       &self->pairs[i]));
}

FIXTURE_TEARDOWN(hogged)
{
	close(self->it.fd);
}

static bool all_gone(struct pair *pairs)
{
	for (int i = 0; i < KINDS; i++)
		if (gone(&pairs[i]) < PAGES / 4)
			return false;
	return true;
}

/*
 * The other process takes memory until a part of each kind has gone, or a
 * quarter of the swap is left: without swap, the kernel kills it. How much it
 * can take is not known before, as the kernel swaps out files in tmpfs, too,
 * and zram keeps all of that in memory. The kernel chooses the pages that it
 * reclaims first: it has to reclaim some, or nothing was shown.
 */
TEST_F_TIMEOUT(hogged, keeps_regions, 600)
{
	long long spare = number_in("/proc/meminfo", "SwapFree") / 4;
	size_t taken = 0;
	int kinds = 0;

	while (number_in("/proc/meminfo", "SwapFree") > spare &&
	       !all_gone(self->pairs)) {
		ASSERT_EQ(0, partner_call(&self->hog, taken, 0));
		taken += STEP;
	}
	TH_LOG("%zu MiB were taken", taken >> 20);
	for (int i = 0; i < KINDS; i++) {
		if (gone(&self->pairs[i]) < PAGES / 4)
			TH_LOG("kind %d is still in memory", i);
		else
			kinds++;
		check_region(_metadata, &self->it, &self->pairs[i]);
	}
	EXPECT_LE(1, kinds);
	EXPECT_EQ(SIGKILL, partner_kill(&self->hog));
	for (int i = 0; i < KINDS; i++) {
		EXPECT_EQ(-1, pattern_check(self->pairs[i].control, LENGTH,
					    2));
		check_region(_metadata, &self->it, &self->pairs[i]);
	}
}

/* How many allocations KFENCE takes at each of its intervals, besides one. */
#define KFENCE_BURST "/sys/module/kfence/parameters/burst"
#define GROUP "/tmp/uldma-pressure"
#define LIMIT "33554432"
#define CACHED (16UL << 20)
/* With the cache more than the limit. */
#define NEEDED (24UL << 20)

/* The cache of another group than that with a limit. */
FIXTURE(limited) {
	int fd;
};

/* Fills a cache. */
static int fill_cache(int fd)
{
	char *buf = buffer(CACHED);
	struct region r;
	int ret;

	if (fd < 0 || !buf)
		return -ENOMEM;
	pattern_fill(buf, CACHED, 4);
	ret = turn_cache_on(fd) ?: region_register(fd, buf, CACHED, RW, &r) ?:
	      region_unregister(fd, r.handle);
	return ret ?: lmm(fd).out_cached == CACHED ? 0 : -ENODATA;
}

FIXTURE_SETUP(limited)
{
	if (!has_swap())
		SKIP(return, "there is no swap to page out to");
	if (access(KFENCE_BURST, F_OK))
		SKIP(return, "no KFENCE, by whose samples a cache was lost");
	mkdir(GROUP, 0755);
	if (mount("none", GROUP, "cgroup2", 0, NULL))
		SKIP(return, "no cgroup2: %s", strerror(errno));
	put(GROUP "/cgroup.subtree_control", "+memory");
	mkdir(GROUP "/uldma", 0755);
	if (put(GROUP "/uldma/memory.max", LIMIT)) {
		rmdir(GROUP "/uldma");
		umount(GROUP);
		SKIP(return, "no limits of memory");
	}
	self->fd = uldma_open(0);
	ASSERT_EQ(0, fill_cache(self->fd));
}

FIXTURE_TEARDOWN(limited)
{
	close(self->fd);
	EXPECT_EQ(0, rmdir(GROUP "/uldma"));
	umount(GROUP);
	rmdir(GROUP);
}

/* Needs memory that its own cache keeps pinned. */
static int outgrow_cache(void *arg)
{
	char *more;
	int fd, ret;

	/* The kernel (7.3) charges no group for what KFENCE takes. */
	put(KFENCE_BURST, "10000");
	if (put(GROUP "/uldma/cgroup.procs", "0"))
		return -EPERM;
	fd = uldma_open(0);
	ret = fill_cache(fd);
	put(KFENCE_BURST, "0");
	if (ret)
		return ret;
	more = mmap(NULL, NEEDED, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	/* What is locked is not paged out instead. */
	if (more == MAP_FAILED || mlock(more, NEEDED))
		return -errno;
	return lmm(fd).out_cached < CACHED ? 0 : -EBUSY;
}

/* A control group that has too much memory gives up what is pinned for later. */
TEST_F(limited, gives_up_its_cache)
{
	EXPECT_EQ(0, in_child(outgrow_cache, NULL));
	EXPECT_EQ(CACHED, lmm(self->fd).out_cached);
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
