// SPDX-License-Identifier: GPL-2.0
/*
 * Message slots on one node: what can be made of them, what is refused, and who
 * pays for them.
 */
#include "uldma_harness.h"
#include "uldma_process.h"
#include "uldma_msg.h"

#define MOST 65536
#define COUNT 4

FIXTURE(msg) {
	int fd;
	size_t page;
	char *buf;
	struct endpoint e;
	struct context c;
};

FIXTURE_SETUP(msg)
{
	int ret;

	self->fd = uldma_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	ret = endpoint_create(self->fd, NO_LIMIT, MOST, &self->e);
	if (ret == -EOPNOTSUPP)
		SKIP(return, "the device does not match messages");
	ASSERT_EQ(0, ret);
	self->page = page_size();
	self->buf = buffer(4 * self->page);
	ASSERT_NE(NULL, self->buf);
	ASSERT_EQ(0, context_create_as(self->fd, ULDMA_METHOD_QUEUE, 0,
				       &self->c));
	ASSERT_EQ(0, context_map(self->fd, &self->c));
}

FIXTURE_TEARDOWN(msg)
{
	close(self->fd);
}

static int make(struct _test_data_msg *self, __u32 flags, struct slots *s)
{
	return slots_create(self->fd, flags, self->e.handle, COUNT, self->page,
			    s);
}

TEST_F(msg, sizes)
{
	__u32 handle = self->e.handle;
	size_t page = self->page;
	struct slots s;

	EXPECT_EQ(-EINVAL, slots_create(self->fd, 0, handle, 0, page, &s));
	EXPECT_EQ(-EINVAL, slots_create(self->fd, 0, handle, 65, page, &s));
	EXPECT_EQ(-EINVAL, slots_create(self->fd, 0, handle, ~0U, page, &s));
	EXPECT_EQ(-EINVAL, slots_create(self->fd, 0, handle, 1, 0, &s));
	EXPECT_EQ(-EINVAL, slots_create(self->fd, 0, handle, 1, page - 1, &s));
	EXPECT_EQ(-EINVAL, slots_create(self->fd, 0, handle, 1, page + 1, &s));
	EXPECT_EQ(-EINVAL, slots_create(self->fd, 0, handle, 1,
					ULDMA_MSG_MAX_SLOT + page, &s));
	EXPECT_EQ(-EINVAL, slots_create(self->fd, 0, handle, 1,
					0ULL - page, &s));
	EXPECT_EQ(-EOPNOTSUPP, slots_create(self->fd, 2, handle, 1, page, &s));
	EXPECT_EQ(-ENOENT, slots_create(self->fd, 0, 77, 1, page, &s));
	EXPECT_EQ(0, query(self->fd).out_user_regions);
	EXPECT_EQ(0, slots_create(self->fd, 0, handle, 64, page, &s));
	EXPECT_EQ(0, slots_create(self->fd, 0, handle, 1, ULDMA_MSG_MAX_SLOT,
				  &s));
}

TEST_F(msg, handles)
{
	struct uldma_msg_recv got;
	struct slots out, in, none = { .handle = self->e.handle };
	struct region r;

	ASSERT_EQ(0, make(self, 0, &out));
	ASSERT_EQ(0, make(self, ULDMA_MSG_RECEIVE, &in));
	EXPECT_EQ(-ENOENT, msg_send_as(self->fd, &none, self->buf, 1, 1, 0));
	EXPECT_EQ(-ENOENT, msg_recv(self->fd, &none, self->buf, 1, 0, &got));
	EXPECT_EQ(-EINVAL, msg_send_as(self->fd, &in, self->buf, 1, 1, 0));
	EXPECT_EQ(-EINVAL, msg_recv(self->fd, &out, self->buf, 1, 0, &got));
	/* Registered memory is no slots, nor is a region an endpoint. */
	ASSERT_EQ(0, region_register(self->fd, self->buf, self->page, RW, &r));
	none.handle = r.handle;
	EXPECT_EQ(-ENOENT, msg_send_as(self->fd, &none, self->buf, 1, 1, 0));
	EXPECT_EQ(-ENOENT, slots_create(self->fd, 0, r.handle, 1, self->page,
					&none));
	/* The slots of an endpoint do not become those of the next one. */
	ASSERT_EQ(0, endpoint_destroy(self->fd, &self->e));
	EXPECT_EQ(-ENOENT, msg_send_as(self->fd, &out, self->buf, 1, 1, 0));
	ASSERT_EQ(0, endpoint_create(self->fd, 0, MOST, &self->e));
	EXPECT_EQ(-ENOENT, msg_send_as(self->fd, &out, self->buf, 1, 1, 0));
	EXPECT_EQ(-ENOENT, msg_recv(self->fd, &in, self->buf, 1, 0, &got));
	EXPECT_EQ(0, region_unregister(self->fd, out.handle));
	EXPECT_EQ(0, region_unregister(self->fd, in.handle));
	EXPECT_EQ(-ENOENT, region_unregister(self->fd, in.handle));
	EXPECT_EQ(-ENOENT, msg_send_as(self->fd, &out, self->buf, 1, 1, 0));
}

TEST_F(msg, arguments)
{
	struct slots s;
	struct uldma_msg_send send = {
		.size = sizeof(send),
		.addr = (uintptr_t)self->buf,
		.length = 1,
		.ticket = 1,
	};
	struct uldma_msg_recv recv = {
		.size = sizeof(recv),
		.addr = (uintptr_t)self->buf,
		.length = 1,
	};

	ASSERT_EQ(0, make(self, 0, &s));
	send.slots = s.handle;
	send.flags = ~(__u32)ULDMA_DESC_MORE;
	EXPECT_EQ(-EOPNOTSUPP, uldma_ioctl(self->fd, ULDMA_IOC_MSG_SEND, &send));
	send.flags = 0;
	send.reserved = 1;
	EXPECT_EQ(-EINVAL, uldma_ioctl(self->fd, ULDMA_IOC_MSG_SEND, &send));
	ASSERT_EQ(0, make(self, ULDMA_MSG_RECEIVE, &s));
	recv.slots = s.handle;
	recv.flags = 1;
	EXPECT_EQ(-EOPNOTSUPP, uldma_ioctl(self->fd, ULDMA_IOC_MSG_RECV, &recv));
	recv.flags = 0;
	recv.reserved = 1;
	EXPECT_EQ(-EINVAL, uldma_ioctl(self->fd, ULDMA_IOC_MSG_RECV, &recv));
	recv.reserved = 0;
	/* Nothing comes to an endpoint that is not connected. */
	EXPECT_EQ(-ENOTCONN, uldma_ioctl(self->fd, ULDMA_IOC_MSG_RECV, &recv));
}

TEST_F(msg, tickets)
{
	struct slots s;

	ASSERT_EQ(0, make(self, 0, &s));
	EXPECT_EQ(-EINVAL, msg_send_as(self->fd, &s, self->buf, 1, 0, 0));
	EXPECT_EQ(-EBUSY, msg_send_as(self->fd, &s, self->buf, 1, 65, 0));
	EXPECT_EQ(-EBUSY, msg_send_as(self->fd, &s, self->buf, 1, ~0ULL, 0));
	/* It is not connected, and its record says so. */
	ASSERT_EQ(1, msg_send(self->fd, &self->c, &s, self->buf, 1, PATIENCE));
	EXPECT_EQ(ULDMA_DMA_NOT_VALID, status_of(&self->c, 1));
	EXPECT_EQ(-EINVAL, msg_send_as(self->fd, &s, self->buf, 1, 1, 0));
	/* Descriptors of the program and of the driver are in one queue. */
	EXPECT_EQ(0, queue_do(&self->c, nop_of(0), NULL));
	ASSERT_EQ(3, msg_send(self->fd, &self->c, &s, self->buf, 1, PATIENCE));
	EXPECT_EQ(ULDMA_DMA_NOT_VALID, status_of(&self->c, 3));
}

TEST_F(msg, contexts)
{
	struct slots s;

	ASSERT_EQ(0, make(self, 0, &s));
	ASSERT_EQ(1, msg_send(self->fd, &self->c, &s, self->buf, 1, PATIENCE));
	ASSERT_EQ(0, context_unmap(&self->c));
	ASSERT_EQ(0, context_destroy(self->fd));
	EXPECT_EQ(-ENXIO, msg_send_as(self->fd, &s, self->buf, 1, 1, 0));
	ASSERT_EQ(0, context_create(self->fd, &self->c));
	EXPECT_EQ(-EINVAL, msg_send_as(self->fd, &s, self->buf, 1, 1, 0));
	ASSERT_EQ(0, context_destroy(self->fd));
	/* In another context, tickets begin anew, and all slots are free. */
	ASSERT_EQ(0, context_create_as(self->fd, ULDMA_METHOD_QUEUE, 0,
				       &self->c));
	ASSERT_EQ(0, context_map(self->fd, &self->c));
	for (int i = 1; i <= 3 * COUNT; i++) {
		ASSERT_EQ(i, msg_send(self->fd, &self->c, &s, self->buf, 1,
				      PATIENCE));
		EXPECT_EQ(ULDMA_DMA_NOT_VALID, status_of(&self->c, i));
	}
}

TEST_F(msg, bad_memory)
{
	char *hole = self->buf + self->page;
	struct slots s;

	ASSERT_EQ(0, slots_create(self->fd, 0, self->e.handle, 1,
				  4 * self->page, &s));
	ASSERT_EQ(0, munmap(hole, self->page));
	EXPECT_EQ(-EFAULT, msg_send_as(self->fd, &s, hole, 1, 1, 0));
	/* In the middle of the copy. */
	EXPECT_EQ(-EFAULT, msg_send_as(self->fd, &s, self->buf,
				       self->page + 1, 1, 0));
	EXPECT_EQ(-EFAULT, msg_send_as(self->fd, &s, self->buf + 1, self->page,
				       1, 0));
	EXPECT_EQ(-EFAULT, msg_send_as(self->fd, &s, (void *)(-4096L), 8, 1,
				       0));
	EXPECT_EQ(-EMSGSIZE, msg_send_as(self->fd, &s, self->buf,
					 4 * self->page + 1, 1, 0));
	EXPECT_EQ(-EMSGSIZE, msg_send_as(self->fd, &s, self->buf, ~0ULL, 1, 0));
	/* None of these has sent anything, or used the only slot up. */
	EXPECT_EQ(0, self->c.status->completed);
	ASSERT_EQ(1, msg_send(self->fd, &self->c, &s, self->buf, self->page,
			      PATIENCE));
	EXPECT_EQ(ULDMA_DMA_NOT_VALID, status_of(&self->c, 1));
	EXPECT_EQ(1, self->c.status->completed);
}

TEST_F(msg, are_paid_for)
{
	struct uldma_query before = query(self->fd), with, after;
	long pins = vm_pin();
	struct slots s;

	ASSERT_EQ(0, make(self, 0, &s));
	with = query(self->fd);
	EXPECT_EQ(before.out_user_pages + COUNT, with.out_user_pages);
	EXPECT_EQ(before.out_user_regions + 1, with.out_user_regions);
	EXPECT_EQ(pins + COUNT, vm_pin());
	ASSERT_EQ(0, region_unregister(self->fd, s.handle));
	after = query(self->fd);
	EXPECT_EQ(before.out_user_pages, after.out_user_pages);
	EXPECT_EQ(before.out_user_regions, after.out_user_regions);
	EXPECT_EQ(pins, vm_pin());
}

/* Its address space has to pay, so it opens the device. */
static int without_room(void *arg)
{
	int ret = become(HOSTILE, (COUNT - 1) * page_size());
	struct endpoint e;
	struct slots s;
	int fd;

	if (ret)
		return ret;
	fd = uldma_open(0);
	if (fd < 0)
		return fd;
	ret = endpoint_create(fd, 0, MOST, &e);
	if (ret)
		return ret;
	ret = slots_create(fd, 0, e.handle, COUNT, page_size(), &s);
	if (ret != -ENOMEM)
		return -EPROTO;
	return slots_create(fd, 0, e.handle, COUNT - 1, page_size(), &s);
}

TEST_F(msg, within_memlock)
{
	mode_t mode;

	ASSERT_EQ(0, node_open_to_all(&mode));
	EXPECT_EQ(0, in_child(without_room, NULL));
	EXPECT_EQ(0, chmod(uldma_node(), mode));
}

static int of_another_process(void *arg)
{
	struct _test_data_msg *self = arg;
	struct uldma_msg_recv got;
	struct slots s = { };

	if (slots_create(self->fd, 0, self->e.handle, 1, self->page, &s) !=
	    -EPERM)
		return -ENOENT;
	if (msg_send_as(self->fd, &s, self->buf, 1, 1, 0) != -EPERM)
		return -EIO;
	return msg_recv(self->fd, &s, self->buf, 1, 0, &got) == -EPERM ?
		       0 : -EPROTO;
}

TEST_F(msg, of_one_process)
{
	EXPECT_EQ(0, in_child(of_another_process, self));
}

TEST_F(msg, read_only_files)
{
	int fd = open(uldma_node(), O_RDONLY | O_CLOEXEC);
	struct uldma_msg_recv got;
	struct slots s = { };

	ASSERT_LE(0, fd);
	EXPECT_EQ(-EBADF, slots_create(fd, 0, 0, 1, self->page, &s));
	EXPECT_EQ(-EBADF, msg_send_as(fd, &s, self->buf, 1, 1, 0));
	EXPECT_EQ(-EBADF, msg_recv(fd, &s, self->buf, 1, 0, &got));
	close(fd);
}

TEST_HARNESS_MAIN
