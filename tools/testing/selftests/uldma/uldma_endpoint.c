// SPDX-License-Identifier: GPL-2.0
/*
 * Endpoints on one node: what can be made of them, and what is refused.
 */
#include "uldma_harness.h"
#include "uldma_endpoint.h"

#define MOST 65536

FIXTURE(endpoint) {
	int fd;
	struct uldma_query q;
	struct endpoint e;
};

FIXTURE_SETUP(endpoint)
{
	int ret;

	self->fd = uldma_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	self->q = query(self->fd);
	ret = endpoint_create(self->fd, NO_LIMIT, MOST, &self->e);
	if (ret == -EOPNOTSUPP)
		SKIP(return, "the device does not match messages");
	ASSERT_EQ(0, ret);
}

FIXTURE_TEARDOWN(endpoint)
{
	close(self->fd);
}

/* A node that is not this one, whether it can be reached or not. */
static __u32 other_node(const struct uldma_query *q)
{
	return q->out_node ? 0 : 1;
}

TEST_F(endpoint, arguments)
{
	struct uldma_endpoint_create arg = {
		.size = sizeof(arg),
		.max_message = MOST,
	};
	struct endpoint e;

	EXPECT_EQ(-EINVAL, endpoint_create(self->fd, 0, 0, &e));
	EXPECT_EQ(-EINVAL, endpoint_create(self->fd, 0,
					   self->q.out_max_transfer + 1, &e));
	EXPECT_EQ(0, endpoint_create(self->fd, 0, self->q.out_max_transfer, &e));
	arg.flags = ULDMA_ENDPOINT_STREAM << 1;
	EXPECT_EQ(-EOPNOTSUPP,
		  uldma_ioctl(self->fd, ULDMA_IOC_ENDPOINT_CREATE, &arg));
	arg.flags = 0;
	arg.reserved = 1;
	EXPECT_EQ(-EINVAL,
		  uldma_ioctl(self->fd, ULDMA_IOC_ENDPOINT_CREATE, &arg));
}

TEST_F(endpoint, names)
{
	struct endpoint other;

	ASSERT_EQ(0, endpoint_create(self->fd, 0, MOST, &other));
	EXPECT_NE(self->e.handle, other.handle);
	EXPECT_NE(self->e.index, other.index);
	EXPECT_NE(self->e.generation, other.generation);
	/* Its number is used again, its generation is not. */
	ASSERT_EQ(0, endpoint_destroy(self->fd, &self->e));
	ASSERT_EQ(0, endpoint_create(self->fd, 0, MOST, &other));
	EXPECT_EQ(self->e.index, other.index);
	EXPECT_NE(self->e.generation, other.generation);
	EXPECT_EQ(-ENOENT, endpoint_destroy(self->fd, &self->e));
}

TEST_F(endpoint, handles_are_of_endpoints)
{
	struct endpoint region = { };
	struct region r;
	char *memory;

	memory = mmap(NULL, page_size(), PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, memory);
	ASSERT_EQ(0, region_register(self->fd, memory, page_size(), RW, &r));
	region.handle = r.handle;
	EXPECT_EQ(-ENOENT, endpoint_destroy(self->fd, &region));
	EXPECT_EQ(-ENOENT, endpoint_wait(self->fd, &region, 1, 0));
	EXPECT_EQ(-ENOENT, endpoint_connect(self->fd, &region,
					    other_node(&self->q), 0, 0));
	EXPECT_EQ(-ENOENT, region_unregister(self->fd, self->e.handle));
	EXPECT_EQ(0, region_unregister(self->fd, r.handle));
}

TEST_F(endpoint, pages)
{
	void *map;

	/* The device's answers are not for the program to write. */
	map = mremap(self->e.status, page_size(), page_size(), 0);
	EXPECT_EQ(self->e.status, map);
	EXPECT_EQ(-1, mprotect(self->e.status, page_size(),
			       PROT_READ | PROT_WRITE));
	EXPECT_EQ(EACCES, errno);
	EXPECT_EQ(0, self->e.status->completed);
	EXPECT_EQ(1, endpoint_post(&self->e, 1, 0, 1));
}

TEST_F(endpoint, nodes)
{
	EXPECT_EQ(-EINVAL, endpoint_connect(self->fd, &self->e,
					    self->q.out_node, 0, 0));
	EXPECT_EQ(-EINVAL, endpoint_connect(self->fd, &self->e,
					    self->q.out_nodes, 0, 0));
	EXPECT_EQ(-ENOTCONN, endpoint_wait(self->fd, &self->e, 1, PATIENCE));
}

TEST_F(endpoint, unconnected_sends_nothing)
{
	struct region r;
	struct context c;
	char *memory;

	memory = mmap(NULL, page_size(), PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, memory);
	ASSERT_EQ(0, region_register(self->fd, memory, page_size(), RW, &r));
	ASSERT_EQ(0, context_create_as(self->fd, ULDMA_METHOD_QUEUE, 0, &c));
	ASSERT_EQ(0, context_map(self->fd, &c));
	EXPECT_EQ(ULDMA_DMA_NOT_VALID,
		  queue_do(&c, message_of(&self->e, r.index, 0, 8), NULL));
	/* A receive descriptor belongs elsewhere. */
	EXPECT_EQ(ULDMA_DMA_NOT_VALID,
		  queue_do(&c, (struct uldma_descriptor){
				       .op = ULDMA_OP_RECV,
				       .dst = r.index,
				       .length = 8,
			       }, NULL));
}

TEST_F(endpoint, limit_of_a_user)
{
	struct uldma_query q = query(self->fd);
	__u32 most = q.out_user_max_endpoints;
	int ret = 0, made = 0;
	struct endpoint e;

	EXPECT_EQ(1, q.out_user_endpoints);
	/* As root the device's limit is the user's. */
	while (!ret && made < most) {
		ret = endpoint_create(self->fd, 0, MOST, &e);
		made += !ret;
	}
	EXPECT_EQ(-ENOSPC, ret);
	EXPECT_EQ(most, made + 1);
	q = query(self->fd);
	EXPECT_EQ(most, q.out_user_endpoints);
}

TEST_F(endpoint, read_only_files)
{
	int fd = open(uldma_node(), O_RDONLY | O_CLOEXEC);
	struct endpoint e;

	ASSERT_LE(0, fd);
	EXPECT_EQ(-EBADF, endpoint_create(fd, 0, MOST, &e));
	close(fd);
}

TEST_HARNESS_MAIN
