// SPDX-License-Identifier: GPL-2.0
/*
 * Changes of registered memory by the kernel and the owner after which its
 * addresses still mean the same memory: no event comes, the frames stay, and
 * the device reads what the owner writes. uldma_stale.c has the other changes.
 */
#include <sys/syscall.h>

#include "uldma_harness.h"
#include "uldma_kinds.h"
#include "uldma_lmm.h"

#ifndef MPOL_MF_MOVE_ALL
#define MPOL_MF_MOVE_ALL 4
#endif

/* Waiting for daemons of the kernel, in steps that leave them the processor. */
#define ROUNDS 3000
#define ROUND_MS 10

/* The region is in the middle of the memory. */
FIXTURE(kept) {
	int fd;
	int other;
	size_t page;
	char *buf;
	size_t length;
	/* Of the region. */
	char *at;
	size_t bytes;
	struct region r;
	char *copy;
	struct region to;
	__u64 frames[HUGE / 4096];
	__u64 now[HUGE / 4096];
};

FIXTURE_VARIANT(kept) {
	void *(*map)(size_t length);
	size_t length;
	/* 0, or an error: EINVAL or ENOENT where there is no such thing. */
	int (*change)(struct _test_data_kept *self);
	/* True if memory outside of the region stays unmapped. */
	bool untouched;
};

FIXTURE_SETUP(kept)
{
	self->fd = uldma_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	self->other = uldma_open(O_NONBLOCK);
	ASSERT_LE(0, self->other);
	self->page = page_size();
	self->length = variant->length;
	self->buf = variant->map(self->length);
	if (!self->buf)
		SKIP(return, "%s", why_not);
	self->bytes = self->length / 2;
	self->at = self->buf + self->length / 4;
	self->copy = buffer(self->bytes);
	ASSERT_NE(NULL, self->copy);
	if (!variant->untouched)
		memset(self->buf, 0x11, self->length);
	ASSERT_EQ(0, region_register(self->fd, self->copy, self->bytes, RW,
				     &self->to));
	ASSERT_EQ(0, region_register(self->fd, self->at, self->bytes, RW,
				     &self->r));
}

FIXTURE_TEARDOWN(kept)
{
	close(self->other);
	close(self->fd);
	hugepages_done();
}

static int advise(void *at, size_t length, int advice)
{
	return madvise(at, length, advice) ? -errno : 0;
}

static int mprotect_readonly(struct _test_data_kept *self)
{
	return mprotect(self->at, self->bytes, PROT_READ) ? -errno : 0;
}

static int mprotect_none(struct _test_data_kept *self)
{
	return mprotect(self->at + self->page, self->page, PROT_NONE) ? -errno :
									0;
}

static int mlock_and_munlock(struct _test_data_kept *self)
{
	if (mlock(self->buf, self->length) ||
	    munlock(self->buf + self->page, self->length / 2) ||
	    munlock(self->buf, self->length))
		return -errno;
	return 0;
}

static int page_out(struct _test_data_kept *self)
{
	return advise(self->buf, self->length, MADV_PAGEOUT);
}

static int cool(struct _test_data_kept *self)
{
	return advise(self->buf, self->length, MADV_COLD);
}

static int discard(struct _test_data_kept *self)
{
	return advise(self->buf, self->length, MADV_DONTNEED);
}

static int grow_in_place(struct _test_data_kept *self)
{
	size_t tail = self->at + self->bytes - self->buf;

	/* Gives the neighbours up, and takes them again. */
	return mremap(self->buf, self->length, tail, 0) == self->buf &&
			       mremap(self->buf, tail, self->length, 0) ==
				       self->buf ? 0 : -errno;
}

static int discard_around(struct _test_data_kept *self)
{
	char *end = self->at + self->bytes;

	return advise(self->buf, self->at - self->buf, MADV_DONTNEED) ?:
	       advise(end, self->buf + self->length - end, MADV_DONTNEED);
}

static int touch_around(struct _test_data_kept *self)
{
	char *end = self->at + self->bytes;

	memset(self->buf, 2, self->at - self->buf);
	memset(end, 2, self->buf + self->length - end);
	return 0;
}

/* Each of these splits a large page that the region has a part of. */
static int protect_around(struct _test_data_kept *self)
{
	return mprotect(self->buf, self->at - self->buf, PROT_READ) ? -errno :
								      0;
}

static int no_hugepage_around(struct _test_data_kept *self)
{
	return advise(self->buf, self->at - self->buf, MADV_NOHUGEPAGE);
}

static int unmap_around(struct _test_data_kept *self)
{
	char *end = self->at + self->bytes;

	return munmap(self->buf, self->at - self->buf) ||
			       munmap(end, self->buf + self->length - end) ?
		       -errno :
		       0;
}

/* Small pages where large ones could be. */
static void *map_small(size_t length)
{
	char *p = map_aligned(length);

	if (!p || advise(p, length, MADV_NOHUGEPAGE))
		return no_memory("no small pages: %s", strerror(errno));
	memset(p, 0, length);
	return advise(p, length, MADV_HUGEPAGE) ? NULL : p;
}

static int collapse(struct _test_data_kept *self)
{
	/* Refused, as a rule, for pages that are pinned. */
	if (!advise(self->buf, self->length, MADV_COLLAPSE))
		return 0;
	return errno == EINVAL ? -EINVAL : 0;
}

static int write_pages(void *arg)
{
	struct _test_data_kept *self = arg;

	memset(self->buf, 0x33, self->length);
	return 0;
}

static void stay(int fd, void *arg)
{
	if (write(fd, "", 1) != 1)
		_exit(1);
}

/* Both sides write to what fork() shares. */
static int fork_and_write(struct _test_data_kept *self)
{
	struct helper child = { };
	int ret = helper_start(&child, stay, NULL);
	char byte;

	if (ret || read(child.fd, &byte, 1) != 1)
		return ret ?: -EPIPE;
	memset(self->buf, 0x44, self->length);
	return in_child(write_pages, self) ?: helper_kill(&child);
}

static int move_to_node(struct _test_data_kept *self)
{
	unsigned long count = self->bytes / self->page;
	int nodes[16] = { }, status[16] = { };
	void *pages[16];

	if (access("/sys/devices/system/node", F_OK))
		return -ENOENT;
	for (int i = 0; i < 16 && i < count; i++)
		pages[i] = self->at + i * self->page;
	if (syscall(__NR_move_pages, 0, count < 16 ? count : 16, pages, nodes,
		    status, MPOL_MF_MOVE_ALL) < 0)
		return -errno;
	return 0;
}

static int compact(struct _test_data_kept *self)
{
	int ret = 0;

	for (int i = 0; i < 5 && !ret; i++)
		ret = put("/proc/sys/vm/compact_memory", "1");
	return ret;
}

#define KSM "/sys/kernel/mm/ksm/"

/* Pages alike, of which two are not registered and have to be merged. */
static int merge(struct _test_data_kept *self)
{
	char *others = buffer(2 * self->page);
	int ret;

	memset(self->buf, 0x77, self->length);
	memset(others, 0x77, 2 * self->page);
	ret = put(KSM "pages_to_scan", "1000") ?:
	      put(KSM "sleep_millisecs", "1") ?:
	      advise(others, 2 * self->page, MADV_MERGEABLE) ?:
	      advise(self->buf, self->length, MADV_MERGEABLE) ?:
	      put(KSM "run", "1");
	for (int i = 0; !ret && frame(others) != frame(others + self->page);
	     i++) {
		poll(NULL, 0, ROUND_MS);
		if (i == ROUNDS)
			ret = -ETIMEDOUT;
	}
	return put(KSM "run", "0") ?: ret;
}

#define K(_pages) ((_pages) * 4096UL)

FIXTURE_VARIANT_ADD(kept, mprotect_readonly) {
	map_anonymous, K(32), mprotect_readonly };
FIXTURE_VARIANT_ADD(kept, mprotect_readonly_shared) {
	map_memfd, K(32), mprotect_readonly };
FIXTURE_VARIANT_ADD(kept, mprotect_none) {
	map_anonymous, K(32), mprotect_none };
FIXTURE_VARIANT_ADD(kept, mprotect_none_shared) {
	map_memfd, K(32), mprotect_none };
FIXTURE_VARIANT_ADD(kept, mlock) {
	map_anonymous, K(32), mlock_and_munlock };
FIXTURE_VARIANT_ADD(kept, mlock_shared) {
	map_memfd, K(32), mlock_and_munlock };
FIXTURE_VARIANT_ADD(kept, paged_out) { map_anonymous, K(32), page_out };
FIXTURE_VARIANT_ADD(kept, paged_out_shared) { map_memfd, K(32), page_out };
FIXTURE_VARIANT_ADD(kept, paged_out_sysv) { map_sysv, K(32), page_out };
FIXTURE_VARIANT_ADD(kept, cold) { map_anonymous, K(32), cool };
FIXTURE_VARIANT_ADD(kept, cold_shared) { map_memfd, K(32), cool };
/* The file still has the pages. */
FIXTURE_VARIANT_ADD(kept, discarded_memfd) { map_memfd, K(32), discard };
FIXTURE_VARIANT_ADD(kept, discarded_tmpfs) { map_tmpfs, K(32), discard };
FIXTURE_VARIANT_ADD(kept, discarded_sysv) { map_sysv, K(32), discard };
FIXTURE_VARIANT_ADD(kept, discarded_shared) { map_shared, K(32), discard };
FIXTURE_VARIANT_ADD(kept, discarded_hugetlb) {
	map_hugetlb_memfd, 2 * HUGE, discard };
FIXTURE_VARIANT_ADD(kept, grown_in_place) {
	map_anonymous, K(32), grow_in_place };
FIXTURE_VARIANT_ADD(kept, discarded_around) {
	map_anonymous, K(32), discard_around };
FIXTURE_VARIANT_ADD(kept, unmapped_around) {
	map_anonymous, K(32), unmap_around };
FIXTURE_VARIANT_ADD(kept, touched_around) {
	map_anonymous, K(32), touch_around, true };
FIXTURE_VARIANT_ADD(kept, touched_around_shared) {
	map_memfd, K(32), touch_around, true };
FIXTURE_VARIANT_ADD(kept, thp_protected_around) {
	map_thp, HUGE, protect_around };
FIXTURE_VARIANT_ADD(kept, thp_not_hugepage_around) {
	map_thp, HUGE, no_hugepage_around };
FIXTURE_VARIANT_ADD(kept, thp_unmapped_around) {
	map_thp, HUGE, unmap_around };
FIXTURE_VARIANT_ADD(kept, thp_discarded_around) {
	map_thp, HUGE, discard_around };
FIXTURE_VARIANT_ADD(kept, thp_paged_out) { map_thp, HUGE, page_out };
FIXTURE_VARIANT_ADD(kept, thp_forked) { map_thp, HUGE, fork_and_write };
FIXTURE_VARIANT_ADD(kept, thp_compacted) { map_thp, HUGE, compact };
FIXTURE_VARIANT_ADD(kept, collapsed) { map_small, HUGE, collapse };
FIXTURE_VARIANT_ADD(kept, forked) { map_anonymous, K(32), fork_and_write };
FIXTURE_VARIANT_ADD(kept, forked_hugetlb) {
	map_hugetlb, HUGE, fork_and_write };
FIXTURE_VARIANT_ADD(kept, moved_to_node) {
	map_anonymous, K(32), move_to_node };
FIXTURE_VARIANT_ADD(kept, moved_to_node_shared) {
	map_memfd, K(32), move_to_node };
FIXTURE_VARIANT_ADD(kept, compacted) { map_anonymous, K(32), compact };
FIXTURE_VARIANT_ADD(kept, compacted_shared) { map_memfd, K(32), compact };
FIXTURE_VARIANT_ADD(kept, merged) { map_anonymous, K(32), merge };

static void note_frames(struct _test_data_kept *self, __u64 *frames)
{
	for (size_t i = 0; i < self->bytes; i += self->page)
		READ_ONCE(self->at[i]);
	frames_of(self->at, self->bytes / self->page, frames);
}

TEST_F(kept, is_not_told)
{
	struct region again;
	long before;
	int ret;

	note_frames(self, self->frames);
	EXPECT_NE(0, self->frames[0]);
	ret = variant->change(self);
	if (ret == -EINVAL || ret == -ENOENT)
		SKIP(return, "this kernel does not do that to such memory");
	ASSERT_EQ(0, ret);
	ASSERT_EQ(0, stale_fence(self->other));
	EXPECT_EQ(0, stale_told(self->fd, self->r.handle).events);
	EXPECT_EQ(0, stale_pages(self->fd, self->r.handle));

	/* The device reads the bytes that the owner writes. */
	ASSERT_EQ(0, mprotect(self->at, self->bytes, PROT_READ | PROT_WRITE));
	pattern_fill(self->at, self->bytes, 5);
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &self->to, 0, &self->r, 0,
			      self->bytes));
	EXPECT_EQ(-1, pattern_check(self->copy, self->bytes, 5));
	note_frames(self, self->now);
	for (size_t i = 0; i < self->bytes / self->page; i++) {
		ASSERT_EQ(self->frames[i], self->now[i])
			TH_LOG("page %zu", i);
	}

	/* And a new registration finds all of it locked. */
	before = vm_pin();
	ASSERT_EQ(0, region_register(self->fd, self->at, self->bytes, RW,
				     &again));
	EXPECT_EQ(before, vm_pin());
	ASSERT_EQ(0, stale_fence(self->other));
	EXPECT_EQ(0, stale_told(self->fd, self->r.handle).events);
}

FIXTURE(rights) {
	int fd;
	size_t page;
	char *buf;
	struct region r;
};

FIXTURE_SETUP(rights)
{
	self->fd = uldma_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	self->page = page_size();
	self->buf = buffer(4 * self->page);
	ASSERT_NE(NULL, self->buf);
	ASSERT_EQ(0, region_register(self->fd, self->buf, 4 * self->page, RW,
				     &self->r));
}

FIXTURE_TEARDOWN(rights)
{
	close(self->fd);
}

static int register_with(struct _test_data_rights *self, int first, int count,
			 __u32 access)
{
	struct region r;
	int ret;

	ret = region_register(self->fd, self->buf + first * self->page,
			      count * self->page, access, &r);
	return ret ?: region_unregister(self->fd, r.handle);
}

/* That pages are locked does not say that the owner may still write them. */
TEST_F(rights, taken_by_mprotect)
{
	ASSERT_EQ(0, mprotect(self->buf + self->page, self->page, PROT_READ));
	EXPECT_EQ(-EFAULT, register_with(self, 1, 1, ULDMA_ACCESS_WRITE));
	EXPECT_EQ(-EFAULT, register_with(self, 0, 4, RW));
	EXPECT_EQ(0, register_with(self, 0, 4, ULDMA_ACCESS_READ));
	EXPECT_EQ(0, register_with(self, 2, 2, RW));
	EXPECT_EQ(4, vm_pin());

	ASSERT_EQ(0, mprotect(self->buf + self->page, self->page, PROT_NONE));
	EXPECT_EQ(-EFAULT, register_with(self, 1, 1, ULDMA_ACCESS_READ));
	EXPECT_EQ(-EFAULT, register_with(self, 0, 4, ULDMA_ACCESS_READ));
	EXPECT_EQ(0, register_with(self, 2, 2, RW));

	ASSERT_EQ(0, mprotect(self->buf, 4 * self->page,
			      PROT_READ | PROT_WRITE));
	EXPECT_EQ(0, register_with(self, 0, 4, RW));
	EXPECT_EQ(4, vm_pin());
	EXPECT_EQ(0, stale_pages(self->fd, self->r.handle));
}

/* Locked for reading by the device says nothing about writing. */
TEST_F(rights, not_given_by_a_lock)
{
	char *readonly = map_memfd(self->page);
	struct region r;

	ASSERT_NE(NULL, readonly);
	ASSERT_EQ(0, mprotect(readonly, self->page, PROT_READ));
	ASSERT_EQ(0, region_register(self->fd, readonly, 8, ULDMA_ACCESS_READ,
				     &r));
	EXPECT_EQ(-EFAULT, region_register(self->fd, readonly, 8, RW, &r));
	ASSERT_EQ(0, mprotect(readonly, self->page, PROT_READ | PROT_WRITE));
	ASSERT_EQ(0, region_register(self->fd, readonly, self->page, RW, &r));
	EXPECT_EQ(5, vm_pin());
	/* Whose writes the file has, as those of a processor. */
	pattern_fill(self->buf, self->page, 3);
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &r, 0, &self->r, 0,
			      self->page));
	EXPECT_EQ(-1, pattern_check(readonly, self->page, 3));
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
