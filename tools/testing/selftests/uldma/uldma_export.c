// SPDX-License-Identifier: GPL-2.0
/*
 * Offering regions to the peer, and asking for its regions, as far as one node
 * alone can tell. The rest is in uldma_peer.
 */
#include "uldma_harness.h"

#define NAME 0x74726f707865ULL

FIXTURE(export) {
	int fd;
	char *buf;
	struct region r;
	struct region other;
};

FIXTURE_SETUP(export)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->buf = buffer(page_size());
	ASSERT_NE(NULL, self->buf);
	ASSERT_EQ(0, region_register(self->fd, self->buf, page_size(), RW,
				     &self->r));
	ASSERT_EQ(0, region_register(self->fd, self->buf, page_size(), RW,
				     &self->other));
}

FIXTURE_TEARDOWN(export)
{
	close(self->fd);
}

TEST_F(export, and_unexport)
{
	EXPECT_EQ(-ENOENT, region_unexport(self->fd, self->r.handle));
	ASSERT_EQ(0, region_export(self->fd, self->r.handle, RW, NAME));
	ASSERT_EQ(0, region_unexport(self->fd, self->r.handle));
	EXPECT_EQ(-ENOENT, region_unexport(self->fd, self->r.handle));
	/* The region itself is as it was. */
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &self->r, 0, &self->r, 64,
			      32));
	EXPECT_EQ(0, region_export(self->fd, self->r.handle, RW, NAME));
}

TEST_F(export, name_zero)
{
	EXPECT_EQ(-EINVAL, region_export(self->fd, self->r.handle, RW, 0));
	EXPECT_EQ(-ENOENT, region_unexport(self->fd, self->r.handle));
}

TEST_F(export, no_access)
{
	EXPECT_EQ(-EINVAL, region_export(self->fd, self->r.handle, 0, NAME));
}

TEST_F(export, name_taken)
{
	int fd = uldma_open(0);
	struct region r;

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, region_export(self->fd, self->r.handle, RW, NAME));
	EXPECT_EQ(-EEXIST, region_export(self->fd, self->other.handle, RW,
					 NAME));
	EXPECT_EQ(0, region_export(self->fd, self->other.handle, RW,
				   NAME + 1));
	/* Names belong to the node, not to the file. */
	ASSERT_EQ(0, region_register(fd, self->buf, 64, RW, &r));
	EXPECT_EQ(-EEXIST, region_export(fd, r.handle, RW, NAME));
	ASSERT_EQ(0, region_unexport(self->fd, self->r.handle));
	EXPECT_EQ(0, region_export(fd, r.handle, RW, NAME));
	close(fd);
}

TEST_F(export, not_more_than_the_region_allows)
{
	struct region readable, writable;

	ASSERT_EQ(0, region_register(self->fd, self->buf, 64,
				     ULDMA_ACCESS_READ, &readable));
	ASSERT_EQ(0, region_register(self->fd, self->buf, 64,
				     ULDMA_ACCESS_WRITE, &writable));
	EXPECT_EQ(-EACCES, region_export(self->fd, readable.handle, RW, NAME));
	EXPECT_EQ(-EACCES, region_export(self->fd, readable.handle,
					 ULDMA_ACCESS_WRITE, NAME));
	EXPECT_EQ(-EACCES, region_export(self->fd, writable.handle,
					 ULDMA_ACCESS_READ, NAME));
	EXPECT_EQ(0, region_export(self->fd, readable.handle,
				   ULDMA_ACCESS_READ, NAME));
	EXPECT_EQ(0, region_export(self->fd, writable.handle,
				   ULDMA_ACCESS_WRITE, NAME + 1));
}

TEST_F(export, unregister_frees_the_name)
{
	ASSERT_EQ(0, region_export(self->fd, self->r.handle, RW, NAME));
	ASSERT_EQ(0, region_unregister(self->fd, self->r.handle));
	EXPECT_EQ(-ENOENT, region_unexport(self->fd, self->r.handle));
	EXPECT_EQ(0, region_export(self->fd, self->other.handle, RW, NAME));
}

static int export_and_die(void *arg)
{
	struct _test_data_export *self = arg;
	int fd = uldma_open(0);
	struct region r;
	int ret;

	if (fd < 0)
		return fd;
	ret = region_register(fd, self->buf, 64, RW, &r) ?:
	      region_export(fd, r.handle, RW, NAME);
	if (ret)
		return ret;
	raise(SIGKILL);
	return 0;
}

TEST_F(export, sigkill_frees_the_name)
{
	EXPECT_EQ(SIGKILL, in_child(export_and_die, self));
	EXPECT_EQ(0, region_export(self->fd, self->r.handle, RW, NAME));
}

TEST_F(export, of_another_file)
{
	int fd = uldma_open(0);

	ASSERT_LE(0, fd);
	EXPECT_EQ(-ENOENT, region_export(fd, self->r.handle, RW, NAME));
	ASSERT_EQ(0, region_export(self->fd, self->r.handle, RW, NAME));
	EXPECT_EQ(-ENOENT, region_unexport(fd, self->r.handle));
	close(fd);
}

TEST_F(export, import_bad_arguments)
{
	struct region r;

	EXPECT_EQ(-EINVAL, region_import(self->fd, 0, RW, &r));
	EXPECT_EQ(-EINVAL, region_import(self->fd, NAME, 0, &r));
	EXPECT_EQ(2, query(self->fd).out_file_regions);
}

TEST_F(export, import_without_peer)
{
	struct region r;

	if (link_up(self->fd))
		SKIP(return, "the link is up");
	EXPECT_EQ(-ENOTCONN, region_import(self->fd, NAME, RW, &r));
	EXPECT_EQ(2, query(self->fd).out_file_regions);
}

/* A node cannot import its own exports. */
TEST_F(export, import_of_own)
{
	struct region r;

	if (!link_up(self->fd))
		SKIP(return, "the link is down");
	ASSERT_EQ(0, region_export(self->fd, self->r.handle, RW, NAME));
	EXPECT_EQ(-ENOENT, region_import(self->fd, NAME, RW, &r));
	EXPECT_EQ(2, query(self->fd).out_file_regions);
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
