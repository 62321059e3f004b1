// SPDX-License-Identifier: GPL-2.0
/*
 * Transfers within a node: the right bytes arrive, and no other byte changes,
 * whatever the size and the alignment, by each way to start a transfer.
 */
#include "uldma_harness.h"

#define LARGE (4UL << 20)

FIXTURE(dma) {
	int fd;
	size_t page;
	struct context c;
	char *src;
	char *dst;
	/* Expected bytes of the destination. */
	char *model;
	struct region s;
	struct region d;
};

FIXTURE_VARIANT(dma) {
	enum how how;
};

FIXTURE_SETUP(dma)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->page = page_size();
	self->src = buffer(LARGE + self->page);
	self->dst = buffer(LARGE + self->page);
	self->model = buffer(LARGE + self->page);
	ASSERT_NE(NULL, self->src);
	ASSERT_NE(NULL, self->dst);
	ASSERT_NE(NULL, self->model);
	pattern_fill(self->src, LARGE + self->page, 1);
	pattern_fill(self->dst, LARGE + self->page, 2);
	memcpy(self->model, self->dst, LARGE + self->page);
	ASSERT_EQ(0, context_create(self->fd, &self->c));
	ASSERT_EQ(0, context_map(self->fd, &self->c));
}

FIXTURE_TEARDOWN(dma)
{
	close(self->fd);
}

FIXTURE_VARIANT_ADD(dma, kernel) { BY_KERNEL };
FIXTURE_VARIANT_ADD(dma, shadow) { BY_SHADOW };

/* Registers parts of both buffers, each with no right but the one it needs. */
static int register_both(struct _test_data_dma *self, size_t src_at,
			 size_t dst_at, size_t length)
{
	return region_register(self->fd, self->src + src_at, length,
			       ULDMA_ACCESS_READ, &self->s) ?:
	       region_register(self->fd, self->dst + dst_at, length,
			       ULDMA_ACCESS_WRITE, &self->d) ?:
	       region_map(self->fd, &self->s, PROT_READ) ?:
	       region_map(self->fd, &self->d, PROT_WRITE);
}

/* Copies, and says whether all of the destination is as it must be. */
static int copy(struct _test_data_dma *self, enum how how, size_t dst,
		size_t src, size_t bytes, size_t span)
{
	int ret = transfer(self->fd, how, &self->d, dst, &self->s, src, bytes);

	if (ret)
		return ret;
	memcpy(self->model + dst, self->src + src, bytes);
	return memcmp(self->model, self->dst, span) ? -EILSEQ : 0;
}

TEST_F(dma, small_sizes)
{
	ASSERT_EQ(0, register_both(self, 0, 0, 2 * self->page));
	for (size_t bytes = 1; bytes <= 130; bytes++) {
		ASSERT_EQ(0, copy(self, variant->how, 3 * bytes, 7 * bytes,
				  bytes, 3 * self->page))
			TH_LOG("%zu bytes", bytes);
	}
}

TEST_F(dma, sizes)
{
	ASSERT_EQ(0, register_both(self, 0, 0, LARGE));
	for (size_t size = 1; size <= LARGE; size *= 2)
		for (int off = -1; off <= 1; off++) {
			size_t bytes = size + off;

			if (!bytes || bytes > LARGE)
				continue;
			ASSERT_EQ(0, copy(self, variant->how, 0, 0, bytes,
					  LARGE + self->page))
				TH_LOG("%zu bytes", bytes);
		}
}

TEST_F(dma, alignments)
{
	size_t edge = self->page - 8;

	ASSERT_EQ(0, register_both(self, 0, 0, 4 * self->page));
	for (size_t d = 0; d < 8; d++)
		for (size_t s = 0; s < 8; s++) {
			ASSERT_EQ(0, copy(self, variant->how, 64 + d, 64 + s,
					  50, 4 * self->page))
				TH_LOG("offsets %zu, %zu", d, s);
			/* Each of the two crosses a page at another place. */
			ASSERT_EQ(0, copy(self, variant->how, edge + d,
					  2 * edge + s, self->page + 1,
					  4 * self->page))
				TH_LOG("edges %zu, %zu", d, s);
		}
}

/* A region that starts and ends within pages, moved to its last byte. */
TEST_F(dma, unaligned_regions)
{
	size_t length = 3 * self->page + 17;

	for (size_t d = 1; d < 4000; d += 571)
		for (size_t s = 1; s < 4000; s += 619) {
			ASSERT_EQ(0, register_both(self, s, d, length));
			ASSERT_EQ(0, transfer(self->fd, variant->how, &self->d,
					      0, &self->s, 0, length));
			memcpy(self->model + d, self->src + s, length);
			ASSERT_EQ(0, memcmp(self->model, self->dst,
					    6 * self->page))
				TH_LOG("at %zu, %zu", d, s);
			ASSERT_EQ(0, region_unmap(&self->s));
			ASSERT_EQ(0, region_unmap(&self->d));
			ASSERT_EQ(0, region_unregister(self->fd,
						       self->s.handle));
			ASSERT_EQ(0, region_unregister(self->fd,
						       self->d.handle));
		}
}

/* Pages that are not next to each other in memory, nor in the table. */
TEST_F(dma, scattered)
{
	struct region pages[16];

	/* Registered one by one from the end, so that no run can be one. */
	for (int i = ARRAY_SIZE(pages) - 1; i >= 0; i -= 2) {
		ASSERT_EQ(0, region_register(self->fd,
					     self->dst + i * self->page, 1, RW,
					     &pages[i]));
	}
	ASSERT_EQ(0, register_both(self, 0, 0, 16 * self->page));
	ASSERT_EQ(0, copy(self, variant->how, 100, 200, 15 * self->page,
			  17 * self->page));
	for (int i = ARRAY_SIZE(pages) - 1; i >= 0; i -= 2) {
		ASSERT_EQ(0, region_unregister(self->fd, pages[i].handle))
			TH_LOG("page %d", i);
	}
	ASSERT_EQ(0, copy(self, variant->how, 0, 777, 15 * self->page,
			  17 * self->page));
}

TEST_F(dma, within_one_region)
{
	ASSERT_EQ(0, region_register(self->fd, self->src, LARGE, RW,
				     &self->s));
	ASSERT_EQ(0, region_map(self->fd, &self->s, PROT_READ | PROT_WRITE));
	memcpy(self->model, self->src, LARGE);
	memcpy(self->model + LARGE / 2 + 3, self->src + 5, LARGE / 4);
	ASSERT_EQ(0, transfer(self->fd, variant->how, &self->s, LARGE / 2 + 3,
			      &self->s, 5, LARGE / 4));
	EXPECT_EQ(0, memcmp(self->model, self->src, LARGE));
}

/* Rights are those of a region, not of the pages that it shares. */
TEST_F(dma, overlapping_regions)
{
	struct region all;

	ASSERT_EQ(0, region_register(self->fd, self->dst, 8 * self->page, RW,
				     &all));
	ASSERT_EQ(0, register_both(self, 0, self->page, 2 * self->page));
	ASSERT_EQ(0, transfer(self->fd, variant->how, &self->d, 0, &self->s, 0,
			      2 * self->page));
	memcpy(self->model + self->page, self->src, 2 * self->page);
	EXPECT_EQ(0, memcmp(self->model, self->dst, 9 * self->page));
}

/*
 * Pages that were locked for reading are locked for writing, too, some of them
 * in the middle; what was passed for reading goes on meanwhile and afterwards.
 */
TEST_F(dma, read_then_written)
{
	struct region all;

	ASSERT_EQ(0, region_register(self->fd, self->dst, 8 * self->page,
				     ULDMA_ACCESS_READ, &all));
	ASSERT_EQ(0, region_map(self->fd, &all, PROT_READ));
	ASSERT_EQ(0, register_both(self, 0, self->page, 2 * self->page));
	ASSERT_EQ(0, transfer(self->fd, variant->how, &self->d, 0, &self->s, 0,
			      2 * self->page));
	memcpy(self->model + self->page, self->src, 2 * self->page);
	EXPECT_EQ(0, memcmp(self->model, self->dst, 9 * self->page));

	/* The old region names the same pages, old and new mapping of them. */
	ASSERT_EQ(0, transfer(self->fd, variant->how, &self->d, 0, &all,
			      self->page + 7, self->page));
	memmove(self->model + self->page, self->model + self->page + 7,
		self->page);
	EXPECT_EQ(0, memcmp(self->model, self->dst, 9 * self->page));
	EXPECT_EQ(8 + 2, vm_pin());

	ASSERT_EQ(0, region_unregister(self->fd, all.handle));
	ASSERT_EQ(0, transfer(self->fd, variant->how, &self->d, self->page,
			      &self->s, 0, self->page));
	memcpy(self->model + 2 * self->page, self->src, self->page);
	EXPECT_EQ(0, memcmp(self->model, self->dst, 9 * self->page));
	ASSERT_EQ(0, region_unregister(self->fd, self->d.handle));
	EXPECT_EQ(2, vm_pin());
}

TEST_F(dma, many_in_order)
{
	struct uldma_dma_wait result;
	__u64 ticket, last = 0;
	__u32 flags = variant->how == BY_SHADOW ? ULDMA_WAIT_CONTEXT : 0;
	int n = 40;

	ASSERT_EQ(0, register_both(self, 0, 0, n * self->page));
	for (int i = 0; i < n; i++) {
		ASSERT_EQ(0, transfer_start(self->fd, variant->how, &self->d,
					    (n - 1 - i) * self->page, &self->s,
					    i * self->page, self->page,
					    &ticket));
		EXPECT_LT(last, ticket);
		last = ticket;
		memcpy(self->model + (n - 1 - i) * self->page,
		       self->src + i * self->page, self->page);
	}
	/* Tickets end in order, so that the last stands for all. */
	ASSERT_EQ(0, dma_wait(self->fd, flags, last, PATIENCE, &result));
	EXPECT_EQ(ULDMA_DMA_OK, result.out_status);
	EXPECT_EQ(self->page, result.out_bytes);
	EXPECT_EQ(0, memcmp(self->model, self->dst, (n + 1) * self->page));
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
