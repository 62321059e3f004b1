// SPDX-License-Identifier: GPL-2.0
/*
 * The bus addresses of a region: in pages, merged, in several calls, compared
 * with what /proc says of the pages; and the rights that reading them needs.
 */
#include <dirent.h>

#include "uldma_harness.h"
#include "uldma_kinds.h"
#include "uldma_lmm.h"

#define PAGES 64

FIXTURE(blocks) {
	int fd;
	size_t page;
	char *buf;
	struct region r;
	struct uldma_region_blocks b;
	struct uldma_block block[HUGE / 4096 + 1];
};

FIXTURE_SETUP(blocks)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->page = page_size();
	self->buf = buffer(PAGES * self->page);
	ASSERT_NE(NULL, self->buf);
}

FIXTURE_TEARDOWN(blocks)
{
	close(self->fd);
	hugepages_done();
}

static int ask(struct _test_data_blocks *self, __u32 flags, __u64 first,
	       __u32 capacity)
{
	return region_blocks(self->fd, self->r.handle, flags, first,
			     self->block, capacity, &self->b);
}

static int lock_pages(struct _test_data_blocks *self, void *at, size_t pages)
{
	return region_register(self->fd, at, pages * self->page, RW, &self->r);
}

/* Returns true if devices use other addresses than the processor. */
static bool has_iommu(void)
{
	DIR *d = opendir("/sys/kernel/iommu_groups");
	int entries = 0;

	if (!d)
		return false;
	while (readdir(d))
		entries++;
	closedir(d);
	return entries > 2;
}

/* Checks that blocks are the pages of memory that is mapped. */
static void check_frames(struct __test_metadata *_metadata,
			 struct _test_data_blocks *self, const char *at,
			 size_t pages)
{
	static __u64 frames[HUGE / 4096];
	bool same = !has_iommu();
	size_t p = 0;

	ASSERT_EQ(pages, frames_of(at, pages, frames));
	for (int i = 0; i < self->b.out_count; i++) {
		EXPECT_EQ(0, self->block[i].address % self->page);
		EXPECT_EQ(0, self->block[i].length % self->page);
		for (__u64 in = 0; in < self->block[i].length;
		     in += self->page, p++) {
			ASSERT_LT(p, pages);
			if (!same)
				continue;
			ASSERT_EQ(frames[p], (self->block[i].address + in) /
					     self->page)
				TH_LOG("page %zu", p);
		}
	}
	EXPECT_EQ(pages, p);
}

TEST_F(blocks, pages)
{
	ASSERT_EQ(0, lock_pages(self, self->buf, PAGES));
	ASSERT_EQ(0, ask(self, ULDMA_BLOCKS_PAGES, 0, PAGES));
	EXPECT_EQ(PAGES, self->b.out_count);
	EXPECT_EQ(PAGES, self->b.out_next_page);
	for (int i = 0; i < PAGES; i++)
		EXPECT_EQ(self->page, self->block[i].length);
	check_frames(_metadata, self, self->buf, PAGES);
}

/* Merged as far as can be, also where areas meet. */
TEST_F(blocks, merged)
{
	struct uldma_block expected[PAGES];
	struct region other;
	int count = 0;

	ASSERT_EQ(0, region_register(self->fd, self->buf + 9 * self->page,
				     7 * self->page, RW, &other));
	ASSERT_EQ(0, lock_pages(self, self->buf, PAGES));
	ASSERT_EQ(0, ask(self, ULDMA_BLOCKS_PAGES, 0, PAGES));
	for (int i = 0; i < PAGES; i++) {
		struct uldma_block *last = &expected[count - 1];

		if (count && last->address + last->length ==
				     self->block[i].address)
			last->length += self->page;
		else
			expected[count++] = self->block[i];
	}
	ASSERT_EQ(0, ask(self, 0, 0, PAGES));
	EXPECT_EQ(PAGES, self->b.out_next_page);
	ASSERT_EQ(count, self->b.out_count);
	EXPECT_EQ(0, memcmp(expected, self->block, count * sizeof(*expected)));
	check_frames(_metadata, self, self->buf, PAGES);
}

TEST_F(blocks, in_several_calls)
{
	static const __u32 capacities[] = { 1, 3, 64, 100 };
	struct uldma_block all[PAGES + 1];
	__u32 count;
	__u64 next;

	ASSERT_EQ(0, lock_pages(self, self->buf, PAGES));
	for (int i = 0; i < ARRAY_SIZE(capacities); i++) {
		count = 0;
		next = 0;
		do {
			ASSERT_EQ(0, ask(self, ULDMA_BLOCKS_PAGES, next,
					 capacities[i]));
			ASSERT_LT(0, self->b.out_count);
			ASSERT_GE(capacities[i], self->b.out_count);
			ASSERT_EQ(next + self->b.out_count,
				  self->b.out_next_page);
			ASSERT_GE(PAGES, self->b.out_next_page);
			memcpy(all + count, self->block,
			       self->b.out_count * sizeof(*all));
			count += self->b.out_count;
			next = self->b.out_next_page;
		} while (next < PAGES);
		ASSERT_EQ(0, ask(self, ULDMA_BLOCKS_PAGES, 0, PAGES));
		EXPECT_EQ(0, memcmp(all, self->block, sizeof(*all) * PAGES));
	}
	/* From the middle, and from the end. */
	ASSERT_EQ(0, ask(self, ULDMA_BLOCKS_PAGES, 17, PAGES));
	EXPECT_EQ(PAGES - 17, self->b.out_count);
	EXPECT_EQ(all[17].address, self->block[0].address);
	ASSERT_EQ(0, ask(self, 0, PAGES, PAGES));
	EXPECT_EQ(0, self->b.out_count);
	EXPECT_EQ(PAGES, self->b.out_next_page);
	EXPECT_EQ(-EINVAL, ask(self, 0, PAGES + 1, PAGES));
	EXPECT_EQ(-EINVAL, ask(self, 0, ~0ULL, PAGES));
}

/* The kernel must not write blocks that do not fit. */
TEST_F(blocks, capacity)
{
	ASSERT_EQ(0, lock_pages(self, self->buf, PAGES));
	memset(self->block, 0x5a, sizeof(self->block));
	ASSERT_EQ(0, ask(self, ULDMA_BLOCKS_PAGES, 0, 5));
	EXPECT_EQ(5, self->b.out_count);
	EXPECT_EQ(5, self->b.out_next_page);
	for (char *p = (char *)&self->block[5]; p < (char *)(self->block + 64);
	     p++) {
		ASSERT_EQ(0x5a, *p);
	}
}

/* Bytes in pages: the kernel reports whole pages. */
TEST_F(blocks, not_aligned)
{
	char *at = self->buf + 3 * self->page - 1;

	ASSERT_EQ(0, region_register(self->fd, at, self->page + 2, RW,
				     &self->r));
	ASSERT_EQ(0, ask(self, 0, 0, PAGES));
	EXPECT_EQ(3, self->b.out_next_page);
	check_frames(_metadata, self, self->buf + 2 * self->page, 3);
}

static void check_huge(struct __test_metadata *_metadata,
		       struct _test_data_blocks *self, char *huge)
{
	size_t pages = HUGE / self->page;

	ASSERT_EQ(0, lock_pages(self, huge, pages));
	ASSERT_EQ(0, ask(self, 0, 0, ARRAY_SIZE(self->block)));
	EXPECT_EQ(1, self->b.out_count);
	EXPECT_EQ(HUGE, self->block[0].length);
	EXPECT_EQ(pages, self->b.out_next_page);
	check_frames(_metadata, self, huge, pages);
	ASSERT_EQ(0, ask(self, ULDMA_BLOCKS_PAGES, 0,
			 ARRAY_SIZE(self->block)));
	EXPECT_EQ(pages, self->b.out_count);
	check_frames(_metadata, self, huge, pages);
	ASSERT_EQ(0, region_unregister(self->fd, self->r.handle));

	/* A part of the large page shows nothing of the rest. */
	ASSERT_EQ(0, lock_pages(self, huge + 5 * self->page, 2));
	ASSERT_EQ(0, ask(self, 0, 0, PAGES));
	EXPECT_EQ(1, self->b.out_count);
	EXPECT_EQ(2 * self->page, self->block[0].length);
	check_frames(_metadata, self, huge + 5 * self->page, 2);
}

TEST_F(blocks, hugetlb)
{
	char *huge = map_hugetlb(HUGE);

	if (!huge)
		SKIP(return, "no huge page: %s", why_not);
	check_huge(_metadata, self, huge);
}

TEST_F(blocks, transparent_huge)
{
	char *huge = map_thp(HUGE);

	if (!huge)
		SKIP(return, "%s", why_not);
	check_huge(_metadata, self, huge);
}

/* The region's pages, not those that are mapped there now. */
TEST_F(blocks, stale)
{
	struct uldma_block old[4];

	ASSERT_EQ(0, lock_pages(self, self->buf, 4));
	ASSERT_EQ(0, ask(self, ULDMA_BLOCKS_PAGES, 0, 4));
	memcpy(old, self->block, sizeof(old));
	ASSERT_EQ(0, madvise(self->buf, 4 * self->page, MADV_DONTNEED));
	memset(self->buf, 1, 4 * self->page);
	ASSERT_EQ(0, ask(self, ULDMA_BLOCKS_PAGES, 0, 4));
	EXPECT_EQ(4, self->b.out_count);
	EXPECT_EQ(0, memcmp(old, self->block, sizeof(old)));
}

TEST_F(blocks, bad_array)
{
	char *edge = buffer(2 * self->page) + self->page;
	struct uldma_region_blocks before;
	void *bad[] = { NULL, (void *)(~0UL - 64), edge, edge - 24 };

	ASSERT_EQ(0, munmap(edge, self->page));
	ASSERT_EQ(0, lock_pages(self, self->buf, PAGES));
	for (int i = 0; i < ARRAY_SIZE(bad); i++) {
		self->b = (struct uldma_region_blocks){
			.size = sizeof(self->b),
			.flags = ULDMA_BLOCKS_PAGES,
			.handle = self->r.handle,
			.capacity = PAGES,
			.blocks = (uintptr_t)bad[i],
		};
		before = self->b;
		EXPECT_EQ(-EFAULT, uldma_ioctl(self->fd,
					       ULDMA_IOC_REGION_BLOCKS,
					       &self->b))
			TH_LOG("array %d", i);
		EXPECT_EQ(0, memcmp(&before, &self->b, sizeof(before)));
	}
	/* Up to the very end of what is mapped is good. */
	EXPECT_EQ(0, region_blocks(self->fd, self->r.handle,
				   ULDMA_BLOCKS_PAGES, 0, edge - 4 * 16, 4,
				   &self->b));
	EXPECT_EQ(4, self->b.out_count);
}

/* A process must not learn the layout of memory, not even of its own. */
TEST_F(blocks, unprivileged)
{
	ASSERT_EQ(0, lock_pages(self, self->buf, 1));
	ASSERT_EQ(0, drop_privileges());
	memset(self->block, 0, sizeof(self->block));
	EXPECT_EQ(-EPERM, ask(self, 0, 0, PAGES));
	EXPECT_EQ(0, self->block[0].address);
	EXPECT_EQ(-EPERM, ask(self, ULDMA_BLOCKS_PAGES, 0, PAGES));
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
