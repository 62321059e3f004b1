// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that several processes share: each may lock any part of it, whatever
 * the others do, and each is charged for its own locks. Segments of System V,
 * which can be attached more than once, for reading only, and removed while
 * they are in use.
 */
#include "uldma_harness.h"
#include "uldma_kinds.h"
#include "uldma_lmm.h"

#define PARTNERS 3
#define PARTS 16

/**
 * struct seat - what a process has of the shared memory
 * @buf: where it is mapped
 * @length: of it, PARTS parts
 * @fd: the device, opened by this process
 * @r: the region of this process
 */
struct seat {
	char *buf;
	size_t length;
	int fd;
	struct region r;
};

enum {
	OPEN,
	REGISTER,	/* first part and number of parts */
	UNREGISTER,
	FILL,		/* writes a pattern to the region by DMA */
	CHECK,
	TOUCH,		/* a byte of each part, as a processor does; how often it slept */
	FRAME,		/* of one part */
	PINNED,
};

#define PART(_first, _count) ((_first) << 8 | (_count))

/* The pattern goes through memory of this process alone. */
static int fill_by_dma(struct seat *seat, __u64 seed)
{
	char *src = buffer(seat->r.length);
	struct region from;
	int ret;

	if (!src)
		return -ENOMEM;
	pattern_fill(src, seat->r.length, seed);
	ret = region_register(seat->fd, src, seat->r.length, RW, &from) ?:
	      transfer(seat->fd, BY_KERNEL, &seat->r, 0, &from, 0,
		       seat->r.length) ?:
	      region_unregister(seat->fd, from.handle);
	munmap(src, seat->r.length);
	return ret;
}

static long serve(long verb, long arg, void *data)
{
	struct seat *seat = data;
	size_t part = seat->length / PARTS;
	struct rusage before, after;

	switch (verb) {
	case OPEN:
		seat->fd = uldma_open(0);
		return seat->fd < 0 ? seat->fd : 0;
	case REGISTER:
		return region_register(seat->fd, seat->buf + (arg >> 8) * part,
				       (arg & 0xff) * part, RW, &seat->r);
	case UNREGISTER:
		return region_unregister(seat->fd, seat->r.handle);
	case FILL:
		return fill_by_dma(seat, arg);
	case CHECK:
		return pattern_check(seat->buf, seat->length, arg);
	case TOUCH:
		getrusage(RUSAGE_THREAD, &before);
		for (int i = 0; i < PARTS; i++)
			READ_ONCE(seat->buf[i * part]);
		getrusage(RUSAGE_THREAD, &after);
		return after.ru_nvcsw - before.ru_nvcsw;
	case FRAME:
		return frame(seat->buf + arg * part);
	case PINNED:
		return vm_pin();
	}
	return -EINVAL;
}

FIXTURE(shared) {
	struct seat own;
	struct partner partners[PARTNERS];
	long long pins;
	size_t pages;
};

FIXTURE_VARIANT(shared) {
	void *(*map)(size_t length);
	size_t length;
};

FIXTURE_SETUP(shared)
{
	self->own.length = variant->length;
	self->own.buf = variant->map(variant->length);
	if (!self->own.buf)
		SKIP(return, "%s", why_not);
	self->pages = variant->length / page_size();
	self->pins = machine_pins();
	for (int i = 0; i < PARTNERS; i++) {
		ASSERT_EQ(0, partner_start(&self->partners[i], serve,
					   &self->own));
		ASSERT_EQ(0, partner_call(&self->partners[i], OPEN, 0));
	}
	ASSERT_EQ(0, serve(OPEN, 0, &self->own));
}

FIXTURE_TEARDOWN(shared)
{
	close(self->own.fd);
	hugepages_done();
}

FIXTURE_VARIANT_ADD(shared, anonymous) { map_shared, 32 * 4096 };
FIXTURE_VARIANT_ADD(shared, memfd) { map_memfd, 32 * 4096 };
FIXTURE_VARIANT_ADD(shared, posix_shm) { map_posix_shm, 32 * 4096 };
FIXTURE_VARIANT_ADD(shared, sysv) { map_sysv, 32 * 4096 };
FIXTURE_VARIANT_ADD(shared, hugetlb) { map_hugetlb_memfd, HUGE };

static int end_all(struct _test_data_shared *self)
{
	int ret = 0;

	for (int i = 0; i < PARTNERS; i++)
		ret = ret ?: partner_end(&self->partners[i]);
	return ret;
}

/* Overlapping parts: no process fails because another has locked a page. */
TEST_F(shared, each_locks_its_part)
{
	static const long parts[PARTNERS] = {
		PART(0, 8), PART(4, 8), PART(8, 8)
	};

	ASSERT_EQ(0, serve(REGISTER, PART(0, PARTS), &self->own));
	for (int i = 0; i < PARTNERS; i++) {
		ASSERT_EQ(0, partner_call(&self->partners[i], REGISTER,
					  parts[i]));
		EXPECT_EQ(self->pages / 2,
			  partner_call(&self->partners[i], PINNED, 0));
	}
	EXPECT_EQ(self->pages, vm_pin());
	/* One transfer, and all see it. */
	ASSERT_EQ(0, fill_by_dma(&self->own, 1));
	EXPECT_EQ(-1, pattern_check(self->own.buf, self->own.length, 1));
	for (int i = 0; i < PARTNERS; i++)
		EXPECT_EQ(-1, partner_call(&self->partners[i], CHECK, 1));
	EXPECT_EQ(frame(self->own.buf),
		  partner_call(&self->partners[0], FRAME, 0));
	EXPECT_EQ(0, end_all(self));
	EXPECT_EQ(self->pages, vm_pin());
	EXPECT_EQ(0, serve(UNREGISTER, 0, &self->own));
	EXPECT_EQ(0, vm_pin());
	EXPECT_EQ(self->pins, machine_pins());
}

/* The first process may end first; the other one keeps the memory. */
TEST_F(shared, first_leaves_first)
{
	bool last;

	ASSERT_EQ(0, serve(REGISTER, PART(0, PARTS), &self->own));
	for (int i = 0; i < PARTNERS; i++)
		ASSERT_EQ(0, partner_call(&self->partners[i], REGISTER,
					  PART(0, PARTS)));
	EXPECT_EQ(0, serve(UNREGISTER, 0, &self->own));
	EXPECT_EQ(0, vm_pin());
	for (int i = 0; i < PARTNERS; i++) {
		ASSERT_EQ(0, partner_call(&self->partners[i], FILL, 10 + i));
		EXPECT_EQ(-1, pattern_check(self->own.buf, self->own.length,
					    10 + i));
		/* By its order, by its end, and by a signal. */
		if (i == 0)
			EXPECT_EQ(0, partner_call(&self->partners[i],
						  UNREGISTER, 0));
		last = i == PARTNERS - 1;
		EXPECT_EQ(last ? SIGKILL : 0,
			  last ? partner_kill(&self->partners[i]) :
				 partner_end(&self->partners[i]));
	}
	EXPECT_EQ(-1, pattern_check(self->own.buf, self->own.length,
				    10 + PARTNERS - 1));
	EXPECT_EQ(self->pins, machine_pins());
}

/* In Linux 2.4 this slept until the page was unlocked. Now no touch sleeps. */
TEST_F(shared, first_touch_of_locked_pages)
{
	ASSERT_EQ(0, serve(REGISTER, PART(0, PARTS), &self->own));
	for (int i = 0; i < PARTNERS; i++) {
		EXPECT_EQ(0, partner_call(&self->partners[i], TOUCH, 0));
		EXPECT_EQ(frame(self->own.buf),
			  partner_call(&self->partners[i], FRAME, 0));
	}
	/* Touched by one and then locked by another. */
	ASSERT_EQ(0, partner_call(&self->partners[0], REGISTER, PART(3, 5)));
	EXPECT_EQ(0, end_all(self));
}

FIXTURE(sysv) {
	int fd;
	int id;
	size_t page;
	char *buf;
	long long pins;
	struct region r;
};

FIXTURE_SETUP(sysv)
{
	self->page = page_size();
	self->id = shmget(IPC_PRIVATE, 4 * self->page, IPC_CREAT | 0600);
	ASSERT_LE(0, self->id);
	self->buf = shmat(self->id, NULL, 0);
	ASSERT_NE((void *)-1, self->buf);
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->pins = machine_pins();
}

FIXTURE_TEARDOWN(sysv)
{
	shmctl(self->id, IPC_RMID, NULL);
	close(self->fd);
}

static long attached(struct _test_data_sysv *self)
{
	struct shmid_ds ds;

	return shmctl(self->id, IPC_STAT, &ds) ? -errno : ds.shm_nattch;
}

static int register_at(struct _test_data_sysv *self, void *at, __u32 access,
		       struct region *r)
{
	return region_register(self->fd, at, 4 * self->page, access, r);
}

/* Two ranges of addresses, one set of frames. */
TEST_F(sysv, attached_twice)
{
	char *again = shmat(self->id, NULL, 0);
	struct region second;

	ASSERT_NE((void *)-1, again);
	ASSERT_NE(again, self->buf);
	ASSERT_EQ(0, register_at(self, self->buf, RW, &self->r));
	ASSERT_EQ(0, register_at(self, again, RW, &second));
	EXPECT_EQ(frame(self->buf), frame(again));
	EXPECT_EQ(vm_pin(), pinned_pages(self->fd));
	EXPECT_EQ(self->pins + vm_pin(), machine_pins());

	pattern_fill(self->buf, self->page, 1);
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &second, self->page,
			      &self->r, 0, self->page));
	EXPECT_EQ(-1, pattern_check(self->buf + self->page, self->page, 1));
	ASSERT_EQ(0, region_unregister(self->fd, self->r.handle));
	EXPECT_EQ(4, vm_pin());
	ASSERT_EQ(0, shmdt(self->buf));
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &second, 2 * self->page,
			      &second, 0, self->page));
	EXPECT_EQ(-1, pattern_check(again + 2 * self->page, self->page, 1));
	ASSERT_EQ(0, region_unregister(self->fd, second.handle));
	EXPECT_EQ(self->pins, machine_pins());
}

TEST_F(sysv, attaches_are_not_counted)
{
	ASSERT_EQ(1, attached(self));
	ASSERT_EQ(0, register_at(self, self->buf, RW, &self->r));
	EXPECT_EQ(1, attached(self));
	ASSERT_EQ(0, region_unregister(self->fd, self->r.handle));
	EXPECT_EQ(1, attached(self));
}

TEST_F(sysv, removed_while_registered)
{
	int id = self->id;

	ASSERT_EQ(0, register_at(self, self->buf, RW, &self->r));
	ASSERT_EQ(0, shmctl(id, IPC_RMID, NULL));
	pattern_fill(self->buf, self->page, 1);
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &self->r, self->page,
			      &self->r, 0, self->page));
	EXPECT_EQ(-1, pattern_check(self->buf + self->page, self->page, 1));
	/* The region does not keep the segment, only its frames. */
	ASSERT_EQ(0, shmdt(self->buf));
	EXPECT_EQ((void *)-1, shmat(id, NULL, 0));
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &self->r, 2 * self->page,
			      &self->r, 0, self->page));
	ASSERT_EQ(0, region_unregister(self->fd, self->r.handle));
	EXPECT_EQ(0, vm_pin());
	EXPECT_EQ(self->pins, machine_pins());
}

/* Memory that is mapped for reading only can be a source of what others write. */
TEST_F(sysv, readonly_attach)
{
	char *reader = shmat(self->id, NULL, SHM_RDONLY);
	char *copy = buffer(self->page);
	struct region to, refused;

	ASSERT_NE((void *)-1, reader);
	ASSERT_NE(NULL, copy);
	ASSERT_EQ(0, region_register(self->fd, copy, self->page, RW, &to));
	EXPECT_EQ(-EFAULT, register_at(self, reader, RW, &refused));
	EXPECT_EQ(-EFAULT, register_at(self, reader, ULDMA_ACCESS_WRITE,
				       &refused));
	ASSERT_EQ(0, register_at(self, reader, ULDMA_ACCESS_READ, &self->r));
	for (int seed = 1; seed < 4; seed++) {
		pattern_fill(self->buf, self->page, seed);
		EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &to, 0, &self->r, 0,
				      self->page));
		EXPECT_EQ(-1, pattern_check(copy, self->page, seed));
	}
	/* Locked already, and refused all the same. */
	EXPECT_EQ(-EFAULT, register_at(self, reader, RW, &refused));
	EXPECT_EQ(5, vm_pin());
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
