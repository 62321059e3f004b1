// SPDX-License-Identifier: GPL-2.0
/*
 * Many sends and exchanges: there are as many pages as before, charged as before.
 */
#include "uldma_harness.h"
#include "uldma_exchange.h"
#include "uldma_lmm.h"

#define PAGES 8
/* Pages that are copied, and exchanged, a few at a time. */
#define COPIES 100000
#define EXCHANGES 100000

FIXTURE(many) {
	int fd;
	size_t page;
	size_t length;
	struct memory m;
	struct memory slots;
	/* Before. */
	struct uldma_query q;
	long pinned;
};

FIXTURE_SETUP(many)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->page = page_size();
	self->length = PAGES * self->page;
	ASSERT_EQ(0, memory_create(self->fd, self->length, &self->m));
	ASSERT_EQ(0, memory_map(self->fd, &self->m));
	ASSERT_EQ(0, memory_create(self->fd, self->length, &self->slots));
	self->q = query(self->fd);
	self->pinned = vm_pin();
}

FIXTURE_TEARDOWN(many)
{
	struct uldma_query q = query(self->fd);

	EXPECT_EQ(self->pinned, vm_pin());
	EXPECT_EQ(self->q.out_pages, q.out_pages);
	EXPECT_EQ(self->q.out_user_pages, q.out_user_pages);
	close(self->fd);
}

/* What is not freed would be more memory than there is. */
TEST_F_TIMEOUT(many, sends, 900)
{
	long i, copied = 0;
	size_t at;
	int ret;

	for (i = 0; copied < COPIES; i++) {
		ASSERT_EQ(0, memory_protect(self->fd, &self->m, 0,
					    self->length));
		/* Half of them, not the same each time. */
		for (at = i % 2; at < PAGES; at += 2)
			self->m.at[at * self->page] = i;
		ret = memory_release(self->fd, &self->m, 0, self->length);
		ASSERT_EQ(PAGES / 2, ret);
		copied += ret;
	}
}

static int frames(int fd, const struct memory *m, struct uldma_block *blocks)
{
	struct uldma_region_blocks b;

	return region_blocks(fd, m->r.handle, ULDMA_BLOCKS_PAGES, 0, blocks,
			     PAGES, &b) ?: b.out_count - PAGES;
}

static int by_address(const void *a, const void *b)
{
	const struct uldma_block *one = a, *other = b;

	return one->address < other->address ? -1 : one->address > other->address;
}

/* All pages of both, in the order of their addresses. */
static int all_frames(struct _test_data_many *self, struct uldma_block *blocks)
{
	int ret = frames(self->fd, &self->m, blocks) ?:
		  frames(self->fd, &self->slots, blocks + PAGES);

	qsort(blocks, 2 * PAGES, sizeof(*blocks), by_address);
	return ret;
}

TEST_F_TIMEOUT(many, exchanges, 900)
{
	struct uldma_block before[2 * PAGES], after[2 * PAGES];
	long i;

	ASSERT_EQ(0, all_frames(self, before));
	for (i = 0; i < EXCHANGES / PAGES; i++) {
		size_t at = i % PAGES * self->page;

		/* One page more, so that not always the same two meet. */
		ASSERT_EQ(0, memory_swap(self->fd, &self->m, 0, &self->slots,
					 0, self->length));
		if (at)
			ASSERT_EQ(0, memory_swap(self->fd, &self->m, 0,
						 &self->m, at, self->page));
		self->m.at[at] = i;
		ASSERT_EQ((char)i, self->m.at[at]);
	}
	ASSERT_EQ(0, all_frames(self, after));
	EXPECT_EQ(0, memcmp(before, after, sizeof(before)));
}

TEST_HARNESS_MAIN
