// SPDX-License-Identifier: GPL-2.0
/*
 * Memory of the other node that nothing pins there: this node reads and writes
 * what is mapped, and learns of what is not.
 */
#include "uldma_harness.h"
#include "uldma_optimistic.h"
#include "uldma_peer_client.h"
#include "uldma_two_nodes.h"

#define PAGES 64

FIXTURE(peer_optimistic) {
	struct peer peer;
	int fd;
	size_t page;
	/* The other node's. */
	struct region r;
	char *copy;
	struct region to;
};

FIXTURE_SETUP(peer_optimistic)
{
	int ret;

	self->page = page_size();
	self->fd = uldma_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	if (!link_up(self->fd))
		SKIP(return, "the link is down");
	ASSERT_EQ(0, peer_connect(&self->peer));
	ret = peer_call(&self->peer, PEER_EXPORT_PAGES,
			{ 0, NAME, PAGES * self->page,
			  RW | ULDMA_REGISTER_OPTIMISTIC });
	if (ret == -EOPNOTSUPP)
		SKIP(return, "the device has no optimistic entries");
	ASSERT_EQ(0, ret);
	ASSERT_EQ(0, peer_call(&self->peer, PEER_FILL, { 0, 1 }));
	ASSERT_EQ(0, region_import(self->fd, NAME, RW, &self->r));
	self->copy = buffer(PAGES * self->page);
	ASSERT_NE(NULL, self->copy);
	ASSERT_EQ(0, region_register(self->fd, self->copy, PAGES * self->page,
				     RW, &self->to));
}

FIXTURE_TEARDOWN(peer_optimistic)
{
	close(self->peer.fd);
	close(self->fd);
}

TEST_F(peer_optimistic, reads_what_is_there)
{
	ASSERT_EQ(0, copy_all(self->fd, &self->to, 0, &self->r, 0,
			      PAGES * self->page));
	EXPECT_EQ(-1, pattern_check(self->copy, PAGES * self->page, 1));
}

TEST_F(peer_optimistic, writes_are_seen)
{
	size_t at = 7 * self->page + 100, length = 5 * self->page;

	pattern_fill(self->copy, length, 2);
	ASSERT_EQ(0, copy_all(self->fd, &self->r, at, &self->to, 0, length));
	EXPECT_EQ(-1, peer_call(&self->peer, PEER_CHECK, { 0, at, length, 2 }));
	EXPECT_EQ(-1, peer_call(&self->peer, PEER_CHECK, { 0, 0, 4096, 1 }));
}

TEST_F(peer_optimistic, writes_outlive_the_mapping)
{
	__u64 bytes;

	pattern_fill(self->copy, 4 * self->page, 3);
	ASSERT_EQ(0, copy_all(self->fd, &self->r, 0, &self->to, 0,
			      4 * self->page));
	/* The pages of shared memory stay; they are not mapped any more. */
	ASSERT_EQ(0, peer_call(&self->peer, PEER_UNMAP_PAGES,
			       { 0, 2 * self->page, self->page }));
	EXPECT_EQ(ULDMA_DMA_NOT_RESIDENT,
		  copy(self->fd, &self->to, 0, &self->r, 0, 4 * self->page,
		       &bytes));
	EXPECT_EQ(2 * self->page, bytes);
	/* This maps it. */
	EXPECT_EQ(-1, peer_call(&self->peer, PEER_CHECK,
				{ 0, 0, 4 * self->page, 3 }));
	EXPECT_EQ(0, copy_all(self->fd, &self->to, 0, &self->r, 0,
			      4 * self->page));
	EXPECT_EQ(-1, pattern_check(self->copy, 4 * self->page, 3));
}

/* The peer's transfer sleeps until the owner's driver has mapped the page cache's. */
TEST_F(peer_optimistic, transfers_wait_for_pages)
{
	size_t length = PAGES * self->page;
	struct region r;
	__u64 bytes;

	ASSERT_EQ(0, peer_call(&self->peer, PEER_EXPORT_PAGES,
			       { 1, NAME + 1, length,
				 RW | ULDMA_REGISTER_OPTIMISTIC |
					 ULDMA_REGISTER_LOOK_UP }));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_FILL, { 1, 4 }));
	ASSERT_EQ(0, region_import(self->fd, NAME + 1, RW, &r));
	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(0, peer_call(&self->peer, PEER_UNMAP_PAGES,
				       { 1, 0, length }));
		memset(self->copy, 0, length);
		ASSERT_EQ(0, copy(self->fd, &self->to, 0, &r, 0, length,
				  &bytes));
		EXPECT_EQ(length, bytes);
		EXPECT_EQ(-1, pattern_check(self->copy, length, 4 + i));
		ASSERT_EQ(0, peer_call(&self->peer, PEER_UNMAP_PAGES,
				       { 1, 0, length }));
		pattern_fill(self->copy, length, 5 + i);
		ASSERT_EQ(0, copy(self->fd, &r, 0, &self->to, 0, length,
				  &bytes));
		EXPECT_EQ(-1, peer_call(&self->peer, PEER_CHECK,
					{ 1, 0, length, 5 + i }));
	}
}

TEST_F(peer_optimistic, the_connection_lives_on)
{
	__u64 bytes;

	ASSERT_EQ(0, peer_call(&self->peer, PEER_UNMAP_PAGES,
			       { 0, 0, PAGES * self->page }));
	for (int i = 0; i < 100; i++)
		ASSERT_EQ(ULDMA_DMA_NOT_RESIDENT,
			  copy(self->fd, &self->to, 0, &self->r,
			       i % PAGES * self->page, self->page, &bytes));
	ASSERT_EQ(-1, peer_call(&self->peer, PEER_CHECK,
				{ 0, 0, PAGES * self->page, 1 }));
	EXPECT_EQ(0, copy_all(self->fd, &self->to, 0, &self->r, 0,
			      PAGES * self->page));
	EXPECT_EQ(-1, pattern_check(self->copy, PAGES * self->page, 1));
}

TEST_F(peer_optimistic, the_owner_ends)
{
	__u64 bytes;

	ASSERT_EQ(0, copy_all(self->fd, &self->to, 0, &self->r, 0, self->page));
	ASSERT_EQ(0, peer_call(&self->peer, PEER_CLOSE, { 0 }));
	EXPECT_NE(0, copy(self->fd, &self->to, 0, &self->r, 0, self->page,
			  &bytes));
}

int main(int argc, char **argv)
{
	return two_nodes_main(argc, argv, peer_serve, peer_quit);
}
