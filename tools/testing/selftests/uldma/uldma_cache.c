// SPDX-License-Identifier: GPL-2.0
/*
 * The pin cache: an open file that turned it on keeps the pins of regions that
 * it ends, for the next registration of the same memory; within limits, until
 * the memory changes, and until other registrations need the room.
 */
#include <pthread.h>

#include "uldma_harness.h"
#include "uldma_kinds.h"
#include "uldma_lmm.h"

#define PAGES 64
/* Number of attempts for work that the kernel does asynchronously. */
#define ATTEMPTS 100

FIXTURE(cache) {
	int fd;
	int other;
	size_t page;
	char *buf;
	char *copy;
	struct region to;
	struct region r;
	long long pins;
};

FIXTURE_SETUP(cache)
{
	self->pins = machine_pins();
	self->fd = uldma_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	self->other = uldma_open(O_NONBLOCK);
	ASSERT_LE(0, self->other);
	self->page = page_size();
	self->buf = buffer(PAGES * self->page);
	ASSERT_NE(NULL, self->buf);
	self->copy = buffer(self->page);
	ASSERT_NE(NULL, self->copy);
}

FIXTURE_TEARDOWN(cache)
{
	close(self->other);
	close(self->fd);
	EXPECT_EQ(0, vm_pin());
	/* No other open file gets an event at once. */
	if (!geteuid())
		EXPECT_EQ(self->pins, machine_pins());
}

static int lock_pages(struct _test_data_cache *self, int first, int end,
		      struct region *r)
{
	return region_register(self->fd, self->buf + first * self->page,
			       (end - first) * self->page, RW, r);
}

/* A region that has been. */
static int lock_and_end(struct _test_data_cache *self, int first, int end)
{
	return lock_pages(self, first, end, &self->r) ?:
	       region_unregister(self->fd, self->r.handle);
}

static size_t cached(struct _test_data_cache *self)
{
	return lmm(self->fd).out_cached / self->page;
}

TEST_F(cache, off)
{
	struct uldma_lmm l;

	ASSERT_EQ(0, lock_and_end(self, 0, 8));
	l = lmm(self->fd);
	EXPECT_EQ(0, vm_pin());
	EXPECT_EQ(0, l.out_cached);
	EXPECT_EQ(0, l.out_cached_regions);
	EXPECT_EQ(0, l.out_locked);
	EXPECT_EQ(8, l.out_pins);
	EXPECT_LT(0, l.out_cache_max_regions);
	EXPECT_LT(0, l.out_cache_max_bytes);
	ASSERT_EQ(0, lock_and_end(self, 0, 8));
	EXPECT_EQ(16, lmm(self->fd).out_pins);
	EXPECT_EQ(0, lmm(self->fd).out_cache_hits);
}

TEST_F(cache, on)
{
	struct uldma_lmm before, l;

	ASSERT_EQ(0, turn_cache_on(self->fd));
	ASSERT_EQ(0, lock_and_end(self, 0, 8));
	before = lmm(self->fd);
	EXPECT_EQ(8, vm_pin());
	EXPECT_EQ(8 * self->page, before.out_cached);
	EXPECT_EQ(8 * self->page, before.out_locked);
	EXPECT_EQ(1, before.out_cached_regions);
	EXPECT_EQ(0, query(self->fd).out_file_regions);
	EXPECT_EQ(-ENOENT, region_unregister(self->fd, self->r.handle));

	ASSERT_EQ(0, lock_pages(self, 0, 8, &self->r));
	l = lmm(self->fd);
	EXPECT_EQ(before.out_pins, l.out_pins);
	EXPECT_EQ(before.out_cache_hits + 1, l.out_cache_hits);
	EXPECT_EQ(before.out_cache_misses, l.out_cache_misses);
	EXPECT_EQ(8 * self->page, l.out_locked);
	EXPECT_EQ(8, vm_pin());
	ASSERT_EQ(0, region_unregister(self->fd, self->r.handle));
	EXPECT_EQ(8, cached(self));
	EXPECT_EQ(1, lmm(self->fd).out_cached_regions);
	EXPECT_EQ(self->pins + 8, machine_pins());
}

/* Parts of what is cached, and more than that. */
TEST_F(cache, overlap)
{
	struct uldma_lmm before, l;

	ASSERT_EQ(0, turn_cache_on(self->fd));
	ASSERT_EQ(0, lock_and_end(self, 0, 8));
	before = lmm(self->fd);
	ASSERT_EQ(0, lock_and_end(self, 2, 5));
	l = lmm(self->fd);
	EXPECT_EQ(before.out_pins, l.out_pins);
	EXPECT_EQ(before.out_cache_hits + 1, l.out_cache_hits);

	ASSERT_EQ(0, lock_pages(self, 4, 12, &self->r));
	l = lmm(self->fd);
	EXPECT_EQ(before.out_pins + 4, l.out_pins);
	EXPECT_EQ(before.out_cache_misses + 1, l.out_cache_misses);
	EXPECT_EQ(12, vm_pin());
	ASSERT_EQ(0, region_unregister(self->fd, self->r.handle));
	EXPECT_EQ(12, vm_pin());
	EXPECT_EQ(12 * self->page, lmm(self->fd).out_locked);
	/* Pages of several ended regions count for each of them. */
	EXPECT_EQ(8 + 3 + 8, cached(self));
	EXPECT_EQ(3, lmm(self->fd).out_cached_regions);
	/* From two ended regions. */
	ASSERT_EQ(0, lock_and_end(self, 0, 12));
	EXPECT_EQ(l.out_pins, lmm(self->fd).out_pins);
}

/* Registering cached memory again has no charge. */
TEST_F(cache, charge)
{
	struct uldma_region_charge c;

	ASSERT_EQ(0, turn_cache_on(self->fd));
	ASSERT_EQ(0, lock_and_end(self, 0, 8));
	ASSERT_EQ(0, region_charge(self->fd, self->buf, 12 * self->page, RW,
				   &c));
	EXPECT_EQ(4 * self->page, c.out_charge);
	EXPECT_EQ(8 * self->page, c.out_locked);
	EXPECT_EQ(8 * self->page, c.out_pinned);
}

/* Each open file decides for the regions that it ends. */
TEST_F(cache, of_the_file)
{
	struct region theirs;

	ASSERT_EQ(0, turn_cache_on(self->fd));
	ASSERT_EQ(0, region_register(self->other, self->buf, 4 * self->page,
				     RW, &theirs));
	ASSERT_EQ(0, region_unregister(self->other, theirs.handle));
	EXPECT_EQ(0, vm_pin());
	/* But they find what others have cached. */
	ASSERT_EQ(0, lock_and_end(self, 0, 4));
	EXPECT_EQ(4, vm_pin());
	EXPECT_EQ(4 * self->page, lmm(self->other).out_cached);
	ASSERT_EQ(0, region_register(self->other, self->buf, 4 * self->page,
				     RW, &theirs));
	EXPECT_EQ(1, lmm(self->other).out_cache_hits);
	/* For the first region of each, and none for this one. */
	EXPECT_EQ(8, lmm(self->other).out_pins);
}

TEST_F(cache, turned_off)
{
	long before;

	ASSERT_EQ(0, turn_cache_on(self->fd));
	ASSERT_EQ(0, lock_and_end(self, 0, 4));
	EXPECT_EQ(4, vm_pin());
	ASSERT_EQ(0, turn_cache_off(self->fd));
	before = vm_pin();
	ASSERT_EQ(0, lock_and_end(self, 10, 14));
	EXPECT_EQ(before, vm_pin());
}

TEST_F(cache, both_flags)
{
	struct uldma_lmm l;

	EXPECT_EQ(-EINVAL, lmm_ioctl(self->fd, ULDMA_LMM_CACHE_ON |
					       ULDMA_LMM_CACHE_OFF, &l));
	ASSERT_EQ(0, lock_and_end(self, 0, 4));
	EXPECT_EQ(0, vm_pin());
}

/* The answer cannot be delivered, so the call must not have happened. */
TEST_F(cache, answer_to_readonly_memory)
{
	struct uldma_lmm *l = buffer(self->page);

	ASSERT_NE(NULL, l);
	*l = (struct uldma_lmm){ sizeof(*l), ULDMA_LMM_CACHE_ON };
	ASSERT_EQ(0, mprotect(l, self->page, PROT_READ));
	EXPECT_EQ(-EFAULT, uldma_ioctl(self->fd, ULDMA_IOC_LMM, l));
	ASSERT_EQ(0, lock_and_end(self, 0, 4));
	EXPECT_EQ(0, vm_pin());
}

TEST_F_TIMEOUT(cache, bound_of_locks, 200)
{
	__u64 max = lmm(self->fd).out_cache_max_regions, pins;
	struct uldma_lmm l;
	struct region r;
	char *many;

	if (max > 20000 ||
	    max * self->page > lmm(self->fd).out_cache_max_bytes)
		SKIP(return, "the cache is too large: %llu locks", max);
	many = map_anonymous((max + 8) * self->page);
	ASSERT_NE(NULL, many);
	ASSERT_EQ(0, turn_cache_on(self->fd));
	for (__u64 i = 0; i < max + 8; i++) {
		ASSERT_EQ(0, region_register(self->fd, many + i * self->page,
					     1, RW, &r));
		ASSERT_EQ(0, region_unregister(self->fd, r.handle));
		l = lmm(self->fd);
		ASSERT_EQ(i + 1 < max ? i + 1 : max, l.out_cached_regions);
		ASSERT_EQ(l.out_locked, l.out_cached);
	}
	EXPECT_EQ(l.out_cached, vm_pin() * self->page);
	EXPECT_EQ(max, vm_pin());
	/* The last is there, the first is not. */
	pins = l.out_pins;
	ASSERT_EQ(0, region_register(self->fd, many + (max + 7) * self->page,
				     1, RW, &r));
	EXPECT_EQ(pins, lmm(self->fd).out_pins);
	ASSERT_EQ(0, region_register(self->fd, many, 1, RW, &r));
	EXPECT_EQ(pins + 1, lmm(self->fd).out_pins);
}

TEST_F_TIMEOUT(cache, bound_of_bytes, 200)
{
	__u64 max = lmm(self->fd).out_cache_max_bytes, half;
	struct region r;
	char *large;

	if (max > number_in("/proc/meminfo", "MemAvailable") * 1024 / 3)
		SKIP(return, "the cache is as large as memory: %llu", max);
	large = map_anonymous(max + 4 * self->page);
	ASSERT_NE(NULL, large);
	ASSERT_EQ(0, turn_cache_on(self->fd));
	/* More than all of it: there is no use in keeping a part. */
	ASSERT_EQ(0, region_register(self->fd, large, max + self->page, RW,
				     &r));
	ASSERT_EQ(0, region_unregister(self->fd, r.handle));
	EXPECT_EQ(0, cached(self));
	EXPECT_EQ(0, vm_pin());

	half = max / 2 / self->page * self->page + self->page;
	ASSERT_EQ(0, region_register(self->fd, large, half, RW, &r));
	ASSERT_EQ(0, region_unregister(self->fd, r.handle));
	EXPECT_EQ(half, lmm(self->fd).out_cached);
	ASSERT_EQ(0, region_register(self->fd, large + half, half, RW, &r));
	ASSERT_EQ(0, region_unregister(self->fd, r.handle));
	EXPECT_GE(max, lmm(self->fd).out_cached);
	EXPECT_EQ(half, lmm(self->fd).out_cached);
	EXPECT_EQ(half / self->page, vm_pin());
}

static int unmap(char *at, size_t length)
{
	return munmap(at, length) ? -errno : 0;
}

static int discard(char *at, size_t length)
{
	return madvise(at, length, MADV_DONTNEED) ? -errno : 0;
}

static int map_over(char *at, size_t length)
{
	return mmap(at, length, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at ?
		       0 : -errno;
}

/* The cache keeps no memory that was unmapped. */
TEST_F(cache, unmapped)
{
	size_t left = 8;

	ASSERT_EQ(0, turn_cache_on(self->fd));
	ASSERT_EQ(0, lock_and_end(self, 0, 8));
	ASSERT_EQ(0, lock_and_end(self, 20, 24));
	ASSERT_EQ(0, unmap(self->buf, 8 * self->page));
	for (int i = 0; i < ATTEMPTS && left; i++) {
		ASSERT_EQ(0, stale_fence(self->other));
		left = cached(self) - 4;
	}
	EXPECT_EQ(0, left);
	EXPECT_EQ(4, vm_pin());
	EXPECT_EQ(self->pins + 4, machine_pins());
	EXPECT_EQ(1, lmm(self->fd).out_cached_regions);
	/* No region exists that could get the event. */
	EXPECT_FALSE(poll_for(self->fd, 0) & POLLIN);
}

/* A region over a part keeps that part. */
TEST_F(cache, unmapped_below_a_region)
{
	size_t pins = 8;

	ASSERT_EQ(0, turn_cache_on(self->fd));
	ASSERT_EQ(0, lock_and_end(self, 0, 8));
	ASSERT_EQ(0, lock_pages(self, 2, 4, &self->r));
	ASSERT_EQ(0, unmap(self->buf, 8 * self->page));
	for (int i = 0; i < ATTEMPTS && pins != 2; i++) {
		ASSERT_EQ(0, stale_fence(self->other));
		pins = vm_pin();
	}
	EXPECT_EQ(2, pins);
	EXPECT_EQ(0, cached(self));
	EXPECT_EQ(2, stale_pages(self->fd, self->r.handle));
}

static int newest_bytes(struct _test_data_cache *self, int seed)
{
	int ret;

	pattern_fill(self->buf, self->page, seed);
	ret = lock_pages(self, 0, 8, &self->r) ?:
	      transfer(self->fd, BY_KERNEL, &self->to, 0, &self->r, 0,
		       self->page) ?:
	      region_unregister(self->fd, self->r.handle);
	if (!ret && pattern_check(self->copy, self->page, seed) >= 0)
		ret = -EBADMSG;
	return ret;
}

/* No old pin is used, whether or not the change was revalidated. */
TEST_F(cache, never_stale)
{
	static int (*const changes[])(char *at, size_t length) = {
		discard, map_over
	};

	ASSERT_EQ(0, turn_cache_on(self->fd));
	ASSERT_EQ(0, region_register(self->fd, self->copy, self->page, RW,
				     &self->to));
	for (int i = 0; i < 300; i++) {
		ASSERT_EQ(0, newest_bytes(self, i))
			TH_LOG("round %d", i);
		ASSERT_EQ(0, changes[i % 2](self->buf, 8 * self->page));
		if (i % 64 == 0)
			ASSERT_EQ(0, stale_fence(self->other));
	}
	EXPECT_LE(299 * 8, lmm(self->fd).out_pins);
}

struct changer {
	char *at;
	size_t length;
	bool done;
};

static void *change_again(void *arg)
{
	struct changer *c = arg;

	for (int i = 0; i < 300; i++) {
		discard(c->at, c->length);
		memset(c->at, i, c->length);
	}
	__atomic_store_n(&c->done, true, __ATOMIC_RELEASE);
	return NULL;
}

TEST_F_TIMEOUT(cache, changed_meanwhile, 200)
{
	struct changer c = { self->buf, 8 * self->page };
	pthread_t thread;

	ASSERT_EQ(0, turn_cache_on(self->fd));
	ASSERT_EQ(0, region_register(self->fd, self->copy, self->page, RW,
				     &self->to));
	ASSERT_EQ(0, pthread_create(&thread, NULL, change_again, &c));
	while (!__atomic_load_n(&c.done, __ATOMIC_ACQUIRE)) {
		ASSERT_EQ(0, lock_and_end(self, 0, 5));
		ASSERT_EQ(0, lock_and_end(self, 3, 8));
	}
	ASSERT_EQ(0, pthread_join(thread, NULL));
	ASSERT_EQ(0, newest_bytes(self, 999));
	ASSERT_EQ(0, stale_fence(self->other));
	/* The region of the copy, and no more than is there. */
	EXPECT_GE(9, vm_pin());
	EXPECT_EQ(vm_pin() * self->page, lmm(self->fd).out_locked);
}

/* That memory is locked does not say that its owner may write it. */
TEST_F(cache, rights)
{
	ASSERT_EQ(0, turn_cache_on(self->fd));
	ASSERT_EQ(0, lock_and_end(self, 0, 4));
	ASSERT_EQ(0, mprotect(self->buf, 4 * self->page, PROT_READ));
	EXPECT_EQ(-EFAULT, lock_pages(self, 0, 4, &self->r));
	EXPECT_EQ(0, region_register(self->fd, self->buf, 4 * self->page,
				     ULDMA_ACCESS_READ, &self->r));
	EXPECT_EQ(4, vm_pin());
}

/* No registration fails for pins that the cache holds. */
TEST_F(cache, limit)
{
	struct region r[2];

	ASSERT_EQ(0, set_memlock(8 * self->page));
	ASSERT_EQ(0, drop_privileges());
	ASSERT_EQ(0, turn_cache_on(self->fd));
	ASSERT_EQ(0, lock_and_end(self, 0, 6));
	EXPECT_EQ(6, vm_pin());
	ASSERT_EQ(0, lock_pages(self, 10, 18, &r[0]));
	EXPECT_EQ(8, vm_pin());
	EXPECT_EQ(0, cached(self));
	ASSERT_EQ(0, region_unregister(self->fd, r[0].handle));
	EXPECT_EQ(8, cached(self));
	/* Partly what is cached, and with it too much. */
	ASSERT_EQ(0, lock_pages(self, 16, 24, &r[0]));
	EXPECT_EQ(8, vm_pin());
	EXPECT_EQ(-ENOMEM, lock_pages(self, 30, 31, &r[1]));
	EXPECT_EQ(8, vm_pin());
}

/* Root may run the shrinkers, as the kernel does when memory is short. */
TEST_F(cache, memory_is_short)
{
	ASSERT_EQ(0, turn_cache_on(self->fd));
	ASSERT_EQ(0, lock_and_end(self, 0, 8));
	ASSERT_EQ(0, lock_and_end(self, 20, 30));
	ASSERT_EQ(0, lock_pages(self, 6, 22, &self->r));
	for (int i = 0; i < ATTEMPTS && vm_pin() != 16; i++)
		ASSERT_EQ(0, put("/proc/sys/vm/drop_caches", "2"));
	EXPECT_EQ(16, vm_pin());
	EXPECT_EQ(0, cached(self));
	EXPECT_EQ(0, lmm(self->fd).out_cached_regions);
	EXPECT_EQ(self->pins + 16, machine_pins());
	EXPECT_EQ(0, stale_pages(self->fd, self->r.handle));
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &self->r, 0, &self->r,
			      8 * self->page, 8 * self->page));
}

TEST_F(cache, last_close)
{
	int third = uldma_open(0);

	ASSERT_LE(0, third);
	ASSERT_EQ(0, turn_cache_on(self->fd));
	ASSERT_EQ(0, lock_and_end(self, 0, 8));
	/* It is the address space's, so others may still find it. */
	ASSERT_EQ(0, close(self->fd));
	EXPECT_EQ(8, vm_pin());
	EXPECT_EQ(8 * self->page, lmm(third).out_cached);
	ASSERT_EQ(0, close(self->other));
	EXPECT_EQ(8, vm_pin());
	ASSERT_EQ(0, close(third));
	EXPECT_EQ(0, vm_pin());
	EXPECT_EQ(self->pins, machine_pins());
}

static int cache_and_die(void *arg)
{
	struct _test_data_cache *self = arg;
	int fd = uldma_open(0);
	struct region r;
	int ret;

	ret = turn_cache_on(fd) ?:
	      region_register(fd, self->buf, 8 * self->page, RW, &r) ?:
	      region_unregister(fd, r.handle);
	if (!ret && vm_pin() == 8)
		raise(SIGKILL);
	return ret ?: -EPROTO;
}

TEST_F(cache, owner_is_killed)
{
	EXPECT_EQ(SIGKILL, in_child(cache_and_die, self));
	EXPECT_EQ(self->pins, machine_pins());
}

/* The device has forgotten what is but cached. */
TEST_F(cache, is_no_region)
{
	struct context c;
	__u64 ticket;

	ASSERT_EQ(0, context_create(self->fd, &c));
	ASSERT_EQ(0, turn_cache_on(self->fd));
	ASSERT_EQ(0, lock_pages(self, 0, 4, &self->r));
	ASSERT_EQ(0, region_map(self->fd, &self->r, PROT_READ | PROT_WRITE));
	ASSERT_EQ(0, touch(self->r.shadow, LOAD));
	ASSERT_EQ(0, region_unregister(self->fd, self->r.handle));
	EXPECT_EQ(4, cached(self));
	EXPECT_NE(0, touch(self->r.shadow, LOAD));
	EXPECT_EQ(-ENOENT, kernel_start(self->fd, self->r.handle, 0,
					self->r.handle, 64, 8, &ticket));
	EXPECT_EQ(0, query(self->fd).out_file_regions);
	/* A mapping would keep the file open. */
	ASSERT_EQ(0, region_unmap(&self->r));
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
