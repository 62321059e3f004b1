// SPDX-License-Identifier: GPL-2.0
/*
 * Regions whose addresses come to mean other memory: which changes make them
 * stale and by how much, what they go on to mean, and how their owner learns
 * it. Changes that leave addresses what they are have uldma_kept.c.
 */
#include "uldma_harness.h"
#include "uldma_kinds.h"
#include "uldma_lmm.h"

#define PAGES 12
/* The region over the buffer: pages [FIRST, END). */
#define FIRST 4
#define END 8

/* The file behind the memory of the test, for changes of files. */
static int file = -1;

static void *map_kept_file(int fd, size_t length)
{
	file = fd;
	if (fd < 0)
		return no_memory("no such file: %s", strerror(-fd));
	return map_or_why(length, MAP_SHARED, fd);
}

static void *map_kept_memfd(size_t length)
{
	return map_kept_file(memfd(length, 0), length);
}

static void *map_kept_hugetlb(size_t length)
{
	/* The pages that this allocates, or reserves, are there for the file then. */
	void *p = map_hugetlb_memfd(length);

	if (!p || munmap(p, length))
		return NULL;
	return map_kept_file(memfd(length, MFD_HUGETLB), length);
}

static int unmap(char *buf, size_t at, size_t length)
{
	return munmap(buf + at, length) ? -errno : 0;
}

static int discard(char *buf, size_t at, size_t length)
{
	return madvise(buf + at, length, MADV_DONTNEED) ? -errno : 0;
}

static int map_over(char *buf, size_t at, size_t length)
{
	return mmap(buf + at, length, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		    0) == buf + at ? 0 : -errno;
}

static int move(char *buf, size_t at, size_t length)
{
	void *to = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
			-1, 0);

	return mremap(buf + at, length, length, MREMAP_MAYMOVE | MREMAP_FIXED,
		      to) == to ? 0 : -errno;
}

/* The addresses stay mapped, and empty. */
static int move_pages_alone(char *buf, size_t at, size_t length)
{
	return mremap(buf + at, length, length,
		      MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL) != MAP_FAILED ?
		       0 :
		       -errno;
}

static int shrink(char *buf, size_t at, size_t length)
{
	return mremap(buf, at + length, at, 0) == buf ? 0 : -errno;
}

static int remove_by_madvise(char *buf, size_t at, size_t length)
{
	return madvise(buf + at, length, MADV_REMOVE) ? -errno : 0;
}

static int punch_hole(char *buf, size_t at, size_t length)
{
	return fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at,
			 length) ? -errno : 0;
}

static int truncate_file(char *buf, size_t at, size_t length)
{
	return ftruncate(file, at) ? -errno : 0;
}

static int install_guard(char *buf, size_t at, size_t length)
{
	return madvise(buf + at, length, MADV_GUARD_INSTALL) ? -errno : 0;
}

static int detach(char *buf, size_t at, size_t length)
{
	return shmdt(buf) ? -errno : 0;
}

FIXTURE(relation) {
	int fd;
	int other;
	size_t page;
	char *buf;
	char *copy;
	struct region to;
	struct region r;
};

/* Pages [from, to) are changed. */
FIXTURE_VARIANT(relation) {
	int from;
	int to;
};

FIXTURE_SETUP(relation)
{
	self->fd = uldma_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	self->other = uldma_open(O_NONBLOCK);
	ASSERT_LE(0, self->other);
	self->page = page_size();
	self->copy = buffer(self->page);
	ASSERT_NE(NULL, self->copy);
	ASSERT_EQ(0, region_register(self->fd, self->copy, self->page, RW,
				     &self->to));
}

FIXTURE_TEARDOWN(relation)
{
	close(self->other);
	close(self->fd);
}

FIXTURE_VARIANT_ADD(relation, before) { 1, 3 };
FIXTURE_VARIANT_ADD(relation, meets) { 2, 4 };
FIXTURE_VARIANT_ADD(relation, overlaps) { 2, 6 };
FIXTURE_VARIANT_ADD(relation, starts) { 4, 6 };
FIXTURE_VARIANT_ADD(relation, during) { 5, 7 };
FIXTURE_VARIANT_ADD(relation, finishes) { 6, 8 };
FIXTURE_VARIANT_ADD(relation, equals) { 4, 8 };
FIXTURE_VARIANT_ADD(relation, started_by) { 4, 10 };
FIXTURE_VARIANT_ADD(relation, contains) { 2, 10 };
FIXTURE_VARIANT_ADD(relation, finished_by) { 2, 8 };
FIXTURE_VARIANT_ADD(relation, overlapped_by) { 6, 10 };
FIXTURE_VARIANT_ADD(relation, met_by) { 8, 10 };
FIXTURE_VARIANT_ADD(relation, after) { 9, 11 };

/* Returns the word that the device reads from a page of a region. */
static int device_reads(struct _test_data_relation *self,
			const struct region *r, int page, __u64 seed)
{
	int ret;

	memset(self->copy, 0, self->page);
	ret = transfer(self->fd, BY_KERNEL, &self->to, 0, r, page * self->page,
		       self->page);
	if (!ret && pattern_check(self->copy, self->page, seed) >= 0)
		ret = -EBADMSG;
	return ret;
}

static void check_relation(struct __test_metadata *_metadata,
			   struct _test_data_relation *self,
			   const struct _fixture_variant_relation *variant,
			   void *(*map)(size_t length),
			   int (*change)(char *buf, size_t at, size_t length))
{
	int from = variant->from, to = variant->to, lost = 0;
	size_t at = from * self->page, length = (to - from) * self->page;
	long before = vm_pin();
	struct region anew;
	struct told told;
	__u64 pins;

	self->buf = map(PAGES * self->page);
	ASSERT_NE(NULL, self->buf);
	for (int p = 0; p < PAGES; p++)
		pattern_fill(self->buf + p * self->page, self->page, p);
	for (int p = FIRST; p < END; p++)
		lost += from <= p && p < to;
	ASSERT_EQ(0, region_register(self->fd, self->buf + FIRST * self->page,
				     (END - FIRST) * self->page, RW,
				     &self->r));

	ASSERT_EQ(0, change(self->buf, at, length));
	ASSERT_EQ(0, stale_fence(self->other));
	EXPECT_EQ(lost, stale_pages(self->fd, self->r.handle));
	told = stale_told(self->fd, self->r.handle);
	EXPECT_EQ(!!lost, told.events);
	EXPECT_EQ(lost, told.pages);
	for (int p = FIRST; p < END; p++) {
		EXPECT_EQ(0, device_reads(self, &self->r, p - FIRST, p))
			TH_LOG("page %d", p);
	}
	EXPECT_EQ(before + END - FIRST, vm_pin());

	/* New memory at the same addresses: new pages, and the old that stay. */
	if (map != map_kept_memfd)
		ASSERT_EQ(0, map_over(self->buf, at, length));
	for (int p = from; p < to; p++)
		pattern_fill(self->buf + p * self->page, self->page, 100 + p);
	pins = lmm(self->fd).out_pins;
	ASSERT_EQ(0, region_register(self->fd, self->buf + FIRST * self->page,
				     (END - FIRST) * self->page, RW, &anew));
	EXPECT_EQ(before + END - FIRST + lost, vm_pin());
	EXPECT_EQ(pins + lost, lmm(self->fd).out_pins);
	EXPECT_EQ(0, stale_pages(self->fd, anew.handle));
	for (int p = FIRST; p < END; p++) {
		EXPECT_EQ(0, device_reads(self, &anew, p - FIRST,
					  from <= p && p < to ? 100 + p : p))
			TH_LOG("page %d", p);
		EXPECT_EQ(0, device_reads(self, &self->r, p - FIRST, p))
			TH_LOG("old page %d", p);
	}
	EXPECT_EQ(lost, stale_pages(self->fd, self->r.handle));

	ASSERT_EQ(0, region_unregister(self->fd, self->r.handle));
	EXPECT_EQ(before + END - FIRST, vm_pin());
	for (int p = FIRST; p < END; p++)
		EXPECT_EQ(0, device_reads(self, &anew, p - FIRST,
					  from <= p && p < to ? 100 + p : p));
	ASSERT_EQ(0, region_unregister(self->fd, anew.handle));
	EXPECT_EQ(before, vm_pin());
	ASSERT_EQ(0, stale_fence(self->other));
	EXPECT_EQ(0, stale_told(self->fd, anew.handle).events);
}

TEST_F(relation, unmapped)
{
	check_relation(_metadata, self, variant, map_anonymous, unmap);
}

TEST_F(relation, mapped_over)
{
	check_relation(_metadata, self, variant, map_anonymous, map_over);
}

TEST_F(relation, moved)
{
	check_relation(_metadata, self, variant, map_anonymous, move);
}

TEST_F(relation, discarded)
{
	check_relation(_metadata, self, variant, map_anonymous, discard);
}

TEST_F(relation, hole_punched)
{
	check_relation(_metadata, self, variant, map_kept_memfd, punch_hole);
}

FIXTURE(lost) {
	int fd;
	int other;
	size_t page;
	size_t length;
	char *buf;
	struct region r;
	long long pins;
};

/* Bytes [at, at + bytes) of a region over all of the memory are changed. */
FIXTURE_VARIANT(lost) {
	void *(*map)(size_t length);
	size_t length;
	int (*change)(char *buf, size_t at, size_t length);
	size_t at;
	size_t bytes;
	long pages;
};

FIXTURE_SETUP(lost)
{
	self->fd = uldma_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	self->other = uldma_open(O_NONBLOCK);
	ASSERT_LE(0, self->other);
	self->page = page_size();
	self->pins = machine_pins();
	self->length = variant->length;
	self->buf = variant->map(self->length);
	if (!self->buf)
		SKIP(return, "%s", why_not);
}

FIXTURE_TEARDOWN(lost)
{
	close(self->other);
	close(self->fd);
	if (file >= 0)
		close(file);
	hugepages_done();
}

#define K(_pages) ((_pages) * 4096UL)

FIXTURE_VARIANT_ADD(lost, not_unmapped_of_pages) {
	map_anonymous, K(8), move_pages_alone, 0, K(8), 8 };
FIXTURE_VARIANT_ADD(lost, shrunk) {
	map_anonymous, K(8), shrink, K(3), K(5), 5 };
FIXTURE_VARIANT_ADD(lost, guarded) {
	map_anonymous, K(8), install_guard, K(2), K(3), 3 };
FIXTURE_VARIANT_ADD(lost, private_file_discarded) {
	map_memfd_private, K(8), discard, K(2), K(3), 3 };
FIXTURE_VARIANT_ADD(lost, shared_unmapped) {
	map_shared, K(8), unmap, K(1), K(6), 6 };
FIXTURE_VARIANT_ADD(lost, shared_removed) {
	map_shared, K(8), remove_by_madvise, K(1), K(6), 6 };
FIXTURE_VARIANT_ADD(lost, shared_moved) {
	map_kept_memfd, K(8), move, K(1), K(6), 6 };
FIXTURE_VARIANT_ADD(lost, truncated) {
	map_kept_memfd, K(8), truncate_file, K(3), 0, 5 };
/* The rest of a page that is cut is cleared, and stays. */
FIXTURE_VARIANT_ADD(lost, truncated_in_a_page) {
	map_kept_memfd, K(8), truncate_file, K(3) + 100, 0, 4 };
FIXTURE_VARIANT_ADD(lost, hole_of_parts) {
	map_kept_memfd, K(8), punch_hole, K(2) - 5, K(3) + 10, 3 };
FIXTURE_VARIANT_ADD(lost, detached) {
	map_sysv, K(8), detach, 0, K(8), 8 };
FIXTURE_VARIANT_ADD(lost, transparent_huge_unmapped) {
	map_thp, HUGE, unmap, 0, HUGE, 512 };
FIXTURE_VARIANT_ADD(lost, part_of_transparent_huge_unmapped) {
	map_thp, HUGE, unmap, K(100), K(50), 50 };
FIXTURE_VARIANT_ADD(lost, part_of_transparent_huge_discarded) {
	map_thp, HUGE, discard, K(511), K(1), 1 };
FIXTURE_VARIANT_ADD(lost, transparent_huge_moved) {
	map_thp, HUGE, move, 0, HUGE, 512 };
FIXTURE_VARIANT_ADD(lost, hugetlb_unmapped) {
	map_hugetlb, HUGE, unmap, 0, HUGE, 512 };
FIXTURE_VARIANT_ADD(lost, hugetlb_discarded) {
	map_hugetlb, HUGE, discard, 0, HUGE, 512 };
FIXTURE_VARIANT_ADD(lost, hugetlb_hole_punched) {
	map_kept_hugetlb, HUGE, punch_hole, 0, HUGE, 512 };
FIXTURE_VARIANT_ADD(lost, hugetlb_truncated) {
	map_kept_hugetlb, HUGE, truncate_file, 0, 0, 512 };

TEST_F(lost, is_told)
{
	char *copy = buffer(self->length);
	struct region to;
	struct told told;
	size_t same;
	int ret;

	ASSERT_NE(NULL, copy);
	ASSERT_EQ(0, region_register(self->fd, copy, self->length, RW, &to));
	pattern_fill(self->buf, self->length, 1);
	ASSERT_EQ(0, region_register(self->fd, self->buf, self->length, RW,
				     &self->r));
	ret = variant->change(self->buf, variant->at, variant->bytes);
	if (ret == -EINVAL)
		SKIP(return, "this kernel does not change such memory so");
	ASSERT_EQ(0, ret);
	ASSERT_EQ(0, stale_fence(self->other));
	told = stale_told(self->fd, self->r.handle);
	EXPECT_EQ(1, told.events);
	EXPECT_EQ(variant->pages, told.pages);
	EXPECT_EQ(variant->pages, stale_pages(self->fd, self->r.handle));

	/* Cutting a file clears the rest of a page, which is the region's. */
	same = variant->at % self->page ? variant->at : self->length;
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &to, 0, &self->r, 0, same));
	EXPECT_EQ(-1, pattern_check(copy, same, 1));
	ASSERT_EQ(0, region_unregister(self->fd, self->r.handle));
	ASSERT_EQ(0, region_unregister(self->fd, to.handle));
	EXPECT_EQ(0, vm_pin());
	EXPECT_EQ(self->pins, machine_pins());
}

/* The end of the heap, which the library does not use: it has mappings. */
TEST(heap_shrunk)
{
	size_t page = page_size();
	int fd = uldma_open(O_NONBLOCK);
	int other = uldma_open(O_NONBLOCK);
	uintptr_t top = (uintptr_t)sbrk(0);
	char *buf = (char *)((top + page - 1) & ~(page - 1));
	struct region r;
	struct told told;

	ASSERT_LE(0, fd);
	ASSERT_LE(0, other);
	ASSERT_EQ(0, brk(buf + 8 * page));
	memset(buf, 1, 8 * page);
	ASSERT_EQ(0, region_register(fd, buf, 8 * page, RW, &r));
	ASSERT_EQ(0, brk(buf + 5 * page));
	ASSERT_EQ(0, stale_fence(other));
	told = stale_told(fd, r.handle);
	EXPECT_EQ(1, told.events);
	EXPECT_EQ(3, told.pages);
	close(other);
	close(fd);
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
