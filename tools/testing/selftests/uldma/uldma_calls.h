/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The calling convention, which is the same for every ioctl: sizes, flags,
 * reserved fields, bad pointers. A program has a table of calls, includes this
 * once, and adds a variant per call to the fixtures.
 */
#ifndef __SELFTEST_ULDMA_CALLS_H
#define __SELFTEST_ULDMA_CALLS_H

#include <stddef.h>

#include "uldma_args.h"
#include "uldma_harness.h"

struct uldma_call {
	unsigned long cmd;
	union uldma_args args;
	/* Expected errno of the arguments above, which no check of form returns. */
	int result;
	/* Undoes a success. */
	unsigned long undo;
	/* Changes nothing, so that a file open for reading is enough. */
	bool asks;
	/* Asks the peer, so ENOTCONN without one. */
	bool peer;
	__u32 known_flags;
	/* Size of the first version, if there have been others. */
	__u32 first;
	/* Fields that have to be zero, or zero for none. */
	size_t reserved_at[2];
};

#define SIZED(_type) .size = sizeof(struct uldma_##_type)
#define FIRST(_type, _next) .first = offsetof(struct uldma_##_type, _next)
#define RESERVED(_type) \
	.reserved_at = { offsetof(struct uldma_##_type, reserved) }
#define RESERVED_TWICE(_type) \
	.reserved_at = { offsetof(struct uldma_##_type, reserved), \
			 offsetof(struct uldma_##_type, reserved2) }

/* Bytes that the kernel must not change. */
#define GUARD 0x5a

/* Makes a call with changed arguments, and undoes what it did. */
static int try_call(int fd, const struct uldma_call *call, union uldma_args *args)
{
	int ret = uldma_ioctl(fd, call->cmd, args);

	if (!ret && call->undo)
		handle_ioctl(fd, call->undo, 0);
	return ret;
}

static int right_result(int fd, const struct uldma_call *call)
{
	return call->peer && !link_up(fd) ? -ENOTCONN : call->result;
}

FIXTURE(call) {
	int fd;
	union uldma_args args;
	int result;
};

FIXTURE_VARIANT(call) {
	const struct uldma_call *call;
};

FIXTURE_SETUP(call)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->args = variant->call->args;
	self->result = right_result(self->fd, variant->call);
}

FIXTURE_TEARDOWN(call)
{
	close(self->fd);
}

/* The size that the caller was compiled with decides what the driver reads. */
TEST_F(call, size)
{
	__u32 size = variant->call->first ?: variant->call->args.size;
	union uldma_args before;

	EXPECT_EQ(self->result, try_call(self->fd, variant->call, &self->args));

	for (__u32 wrong = 0; wrong < size; wrong += 4) {
		self->args = variant->call->args;
		self->args.size = wrong;
		before = self->args;
		EXPECT_EQ(-EINVAL, try_call(self->fd, variant->call, &self->args))
			TH_LOG("size %u", wrong);
		EXPECT_EQ(0, memcmp(&before, &self->args, sizeof(before)));
	}
	self->args.size = size - 1;
	EXPECT_EQ(-EINVAL, try_call(self->fd, variant->call, &self->args));
}

/* Programs of all versions find nothing changed behind what they know. */
TEST_F(call, older)
{
	const struct uldma_call *call = variant->call;
	union uldma_args rest;

	memset(&rest, GUARD, sizeof(rest));
	for (__u32 size = call->first ?: call->args.size;
	     size <= call->args.size; size += 4) {
		self->args = call->args;
		self->args.size = size;
		memset(self->args.bytes + size, GUARD, sizeof(rest) - size);
		EXPECT_EQ(self->result, try_call(self->fd, call, &self->args))
			TH_LOG("size %u", size);
		EXPECT_EQ(0, memcmp(self->args.bytes + size, &rest,
				    sizeof(rest) - size))
			TH_LOG("size %u", size);
	}
}

/* A newer program may leave what this kernel does not know at zero. */
TEST_F(call, tail)
{
	__u32 size = variant->call->args.size;

	self->args.size = sizeof(self->args);
	EXPECT_EQ(self->result, try_call(self->fd, variant->call, &self->args));

	self->args = variant->call->args;
	self->args.size = size + 1;
	self->args.bytes[size] = 1;
	EXPECT_EQ(-E2BIG, try_call(self->fd, variant->call, &self->args));

	self->args = variant->call->args;
	self->args.size = sizeof(self->args);
	self->args.bytes[sizeof(self->args) - 1] = 0x80;
	EXPECT_EQ(-E2BIG, try_call(self->fd, variant->call, &self->args));
}

/* More than a page is refused unread; a page is not. */
TEST_F(call, page)
{
	union uldma_args *args = buffer(2 * page_size());

	ASSERT_NE(NULL, args);
	memcpy(args, &variant->call->args, variant->call->args.size);
	args->size = page_size() + 1;
	EXPECT_EQ(-E2BIG, try_call(self->fd, variant->call, args));
	args->size = page_size();
	EXPECT_EQ(self->result, try_call(self->fd, variant->call, args));
}

/* Who may only read a device may not change what it does. */
TEST_F(call, readonly)
{
	int fd = open(uldma_node(), O_RDONLY | O_CLOEXEC);

	ASSERT_LE(0, fd);
	EXPECT_EQ(variant->call->asks ? self->result : -EBADF,
		  try_call(fd, variant->call, &self->args));
	close(fd);
}

TEST_F(call, pointer)
{
	char *page = buffer(2 * page_size());
	char *edge = page + page_size();
	union uldma_args *args;

	ASSERT_NE(NULL, page);
	ASSERT_EQ(0, munmap(edge, page_size()));
	EXPECT_EQ(-EFAULT, uldma_ioctl(self->fd, variant->call->cmd, NULL));
	EXPECT_EQ(-EFAULT,
		  uldma_ioctl(self->fd, variant->call->cmd, (void *)(~0UL - 64)));
	EXPECT_EQ(-EFAULT, uldma_ioctl(self->fd, variant->call->cmd, edge));

	/* The size can be read, the rest cannot. */
	memcpy(edge - 4, &variant->call->args, 4);
	EXPECT_EQ(-EFAULT, uldma_ioctl(self->fd, variant->call->cmd, edge - 4));

	/* What is wrong with the size counts, also if there is no more. */
	memset(edge - 4, 0, 4);
	EXPECT_EQ(-EINVAL, uldma_ioctl(self->fd, variant->call->cmd, edge - 4));

	/* Up to the very end of what is mapped is good. */
	args = (union uldma_args *)(edge - variant->call->args.size);
	memcpy(args, &variant->call->args, variant->call->args.size);
	EXPECT_EQ(self->result, try_call(self->fd, variant->call, args));
	if (variant->call->first) {
		args = (union uldma_args *)(edge - variant->call->first);
		memcpy(args, &variant->call->args, variant->call->first);
		*(__u32 *)args = variant->call->first;
		EXPECT_EQ(self->result,
			  try_call(self->fd, variant->call, args));
	}
}

FIXTURE(flags) {
	int fd;
};

FIXTURE_VARIANT(flags) {
	const struct uldma_call *call;
};

FIXTURE_SETUP(flags)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(flags)
{
	close(self->fd);
}

TEST_F(flags, unknown)
{
	for (int bit = 0; bit < 32; bit++) {
		union uldma_args args = variant->call->args;

		if (variant->call->known_flags & 1U << bit)
			continue;
		args.head.flags |= 1U << bit;
		EXPECT_EQ(-EOPNOTSUPP, try_call(self->fd, variant->call, &args))
			TH_LOG("bit %d", bit);
	}
}

FIXTURE(reserved) {
	int fd;
};

FIXTURE_VARIANT(reserved) {
	const struct uldma_call *call;
};

FIXTURE_SETUP(reserved)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(reserved)
{
	close(self->fd);
}

TEST_F(reserved, must_be_zero)
{
	const struct uldma_call *call = variant->call;

	for (int i = 0; i < ARRAY_SIZE(call->reserved_at); i++)
		for (int bit = 0; call->reserved_at[i] && bit < 32; bit++) {
			union uldma_args args = call->args;
			__u32 value = 1U << bit;

			memcpy(args.bytes + call->reserved_at[i], &value, 4);
			EXPECT_EQ(-EINVAL, try_call(self->fd, call, &args))
				TH_LOG("bit %d at %zu", bit,
				       call->reserved_at[i]);
		}
}

#endif /* __SELFTEST_ULDMA_CALLS_H */
