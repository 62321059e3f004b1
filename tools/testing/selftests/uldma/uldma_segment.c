// SPDX-License-Identifier: GPL-2.0
/*
 * Parts of this node's half of the window: making them, sharing the space out,
 * and leaving nothing of one owner's to the next.
 */
#include "uldma_harness.h"

#define NAME 0x746e656d676573ULL

FIXTURE(segment) {
	int fd;
	size_t page;
	struct segment s;
	__u64 used;
};

FIXTURE_SETUP(segment)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->page = page_size();
	self->used = query(self->fd).out_window_used;
}

FIXTURE_TEARDOWN(segment)
{
	close(self->fd);
}

static bool is_zero(const struct segment *s)
{
	for (size_t i = 0; i < s->length / sizeof(__u64); i++)
		if (READ_ONCE(s->map[i]))
			return false;
	return true;
}

TEST_F(segment, create_and_destroy)
{
	ASSERT_EQ(0, segment_create(self->fd, NAME, 3 * self->page, &self->s));
	EXPECT_NE(0, self->s.handle);
	EXPECT_EQ(3 * self->page, self->s.length);
	EXPECT_LE(self->used + self->s.length,
		  query(self->fd).out_window_used);
	ASSERT_EQ(0, segment_map(self->fd, &self->s));
	EXPECT_TRUE(is_zero(&self->s));
	pattern_fill(self->s.map, self->s.length, 1);
	EXPECT_EQ(-1, pattern_check(self->s.map, self->s.length, 1));
	ASSERT_EQ(0, segment_destroy(self->fd, self->s.handle));
	EXPECT_EQ(-ENOENT, segment_destroy(self->fd, self->s.handle));
	EXPECT_EQ(self->used, query(self->fd).out_window_used);
}

TEST_F(segment, length_is_rounded_up)
{
	ASSERT_EQ(0, segment_create(self->fd, NAME, 1, &self->s));
	EXPECT_EQ(self->page, self->s.length);
	ASSERT_EQ(0, segment_destroy(self->fd, self->s.handle));
	ASSERT_EQ(0, segment_create(self->fd, NAME, self->page + 1,
				    &self->s));
	EXPECT_EQ(2 * self->page, self->s.length);
}

TEST_F(segment, bad_arguments)
{
	__u64 size = query(self->fd).out_window_size;
	int ret;

	EXPECT_EQ(-EINVAL, segment_create(self->fd, 0, self->page, &self->s));
	EXPECT_EQ(-EINVAL, segment_create(self->fd, NAME, 0, &self->s));
	EXPECT_EQ(-ENOSPC, segment_create(self->fd, NAME, size + 1, &self->s));
	EXPECT_EQ(-ENOSPC, segment_create(self->fd, NAME, 1ULL << 60,
					  &self->s));
	/* Rounding up would wrap around. */
	ret = segment_create(self->fd, NAME, ~0ULL, &self->s);
	EXPECT_TRUE(ret == -ENOSPC || ret == -EOVERFLOW)
		TH_LOG("got %d", ret);
	EXPECT_EQ(self->used, query(self->fd).out_window_used);
}

/*
 * A segment is for one peer: not for this node, nor for one there is not. None has
 * to be named where there is one.
 */
TEST_F(segment, for_whom)
{
	struct uldma_query q = query(self->fd);
	struct uldma_segment_create arg = {
		.size = sizeof(arg),
		.name = NAME,
		.length = 1,
	};

	ASSERT_EQ(q.out_nodes == 2 ? 0 : -EINVAL,
		  uldma_ioctl(self->fd, ULDMA_IOC_SEGMENT_CREATE, &arg));
	if (q.out_nodes == 2)
		ASSERT_EQ(0, segment_destroy(self->fd, arg.out_handle));
	for (arg.peer = 1; arg.peer <= q.out_nodes; arg.peer++) {
		bool own = arg.peer - 1 == q.out_node;

		ASSERT_EQ(own ? -EINVAL : 0,
			  uldma_ioctl(self->fd, ULDMA_IOC_SEGMENT_CREATE, &arg));
		if (!own)
			ASSERT_EQ(0, segment_destroy(self->fd, arg.out_handle));
	}
	EXPECT_EQ(-EINVAL, uldma_ioctl(self->fd, ULDMA_IOC_SEGMENT_CREATE, &arg));
	arg.peer = UINT32_MAX;
	EXPECT_EQ(-EINVAL, uldma_ioctl(self->fd, ULDMA_IOC_SEGMENT_CREATE, &arg));
}

TEST_F(segment, name_taken)
{
	int other = uldma_open(0);
	struct segment s;

	ASSERT_LE(0, other);
	ASSERT_EQ(0, segment_create(self->fd, NAME, 1, &self->s));
	EXPECT_EQ(-EEXIST, segment_create(self->fd, NAME, 1, &s));
	EXPECT_EQ(-EEXIST, segment_create(other, NAME, 1, &s));
	ASSERT_EQ(0, segment_destroy(self->fd, self->s.handle));
	EXPECT_EQ(0, segment_create(other, NAME, 1, &s));
	close(other);
	EXPECT_EQ(self->used, query(self->fd).out_window_used);
}

TEST_F(segment, of_another_file)
{
	int other = uldma_open(0);
	struct segment s;

	ASSERT_LE(0, other);
	ASSERT_EQ(0, segment_create(self->fd, NAME, 1, &self->s));
	ASSERT_EQ(0, segment_create(self->fd, NAME + 1, 1, &s));
	EXPECT_EQ(-ENOENT, segment_destroy(other, s.handle));
	EXPECT_EQ(-ENOENT, doorbell(other, s.handle));
	EXPECT_EQ(-EINVAL, segment_map(other, &s));
	close(other);
}

TEST_F(segment, do_not_overlap)
{
	struct segment s[8];

	for (int i = 0; i < ARRAY_SIZE(s); i++) {
		ASSERT_EQ(0, segment_create(self->fd, NAME + i,
					    (i % 3 + 1) * self->page, &s[i]));
		ASSERT_EQ(0, segment_map(self->fd, &s[i]));
		pattern_fill(s[i].map, s[i].length, i);
	}
	for (int i = 0; i < ARRAY_SIZE(s); i++) {
		EXPECT_EQ(-1, pattern_check(s[i].map, s[i].length, i))
			TH_LOG("segment %d", i);
	}
}

/* The next owner must not see bytes of the previous one. */
TEST_F(segment, memory_is_zeroed)
{
	__u64 length = 4 * self->page;
	struct segment s;
	int other;

	for (int i = 0; i < 4; i++) {
		ASSERT_EQ(0, segment_create(self->fd, NAME, length, &self->s));
		ASSERT_EQ(0, segment_map(self->fd, &self->s));
		EXPECT_TRUE(is_zero(&self->s));
		memset(self->s.map, 0xee, length);
		ASSERT_EQ(0, segment_destroy(self->fd, self->s.handle));
	}
	other = uldma_open(0);
	ASSERT_LE(0, other);
	ASSERT_EQ(0, segment_create(other, NAME, length, &s));
	ASSERT_EQ(0, segment_map(other, &s));
	EXPECT_TRUE(is_zero(&s));
	close(other);
}

/* The window fills up, and all of it comes back. */
TEST_F(segment, exhaustion)
{
	__u64 size = query(self->fd).out_window_size;
	__u64 length = (size / 16 + self->page - 1) & ~(self->page - 1);
	__u32 handles[17];
	int count = 0;
	int ret = 0;

	while (count < ARRAY_SIZE(handles)) {
		ret = segment_create(self->fd, NAME + count, length, &self->s);
		if (ret)
			break;
		handles[count++] = self->s.handle;
	}
	EXPECT_EQ(-ENOSPC, ret);
	ASSERT_LT(1, count);
	EXPECT_LE(count * length, size);
	/* The gap in the middle is used again. */
	ASSERT_EQ(0, segment_destroy(self->fd, handles[count / 2]));
	EXPECT_EQ(0, segment_create(self->fd, NAME + count, length, &self->s));
	handles[count / 2] = self->s.handle;
	while (count) {
		ASSERT_EQ(0, segment_destroy(self->fd, handles[--count]))
			TH_LOG("segment %d", count);
	}
	EXPECT_EQ(self->used, query(self->fd).out_window_used);
}

static int create_and_die(void *arg)
{
	int fd = uldma_open(0);
	struct segment s;
	int ret;

	if (fd < 0)
		return fd;
	ret = segment_create(fd, NAME, 1, &s) ?: segment_map(fd, &s);
	if (ret)
		return ret;
	WRITE_ONCE(s.map[0], ~0ULL);
	raise(SIGKILL);
	return 0;
}

TEST_F(segment, sigkill_releases)
{
	EXPECT_EQ(SIGKILL, in_child(create_and_die, NULL));
	EXPECT_EQ(self->used, query(self->fd).out_window_used);
	ASSERT_EQ(0, segment_create(self->fd, NAME, 1, &self->s));
	ASSERT_EQ(0, segment_map(self->fd, &self->s));
	EXPECT_TRUE(is_zero(&self->s));
}

/* A handle of one kind is no handle of another. */
TEST_F(segment, kinds_of_handles)
{
	char *buf = buffer(self->page);
	struct region r;
	__u64 ticket;

	ASSERT_NE(NULL, buf);
	ASSERT_EQ(0, segment_create(self->fd, NAME, 1, &self->s));
	ASSERT_EQ(0, region_register(self->fd, buf, 64, RW, &r));
	ASSERT_NE(r.handle, self->s.handle);
	EXPECT_EQ(-ENOENT, region_unregister(self->fd, self->s.handle));
	EXPECT_EQ(-ENOENT, segment_destroy(self->fd, r.handle));
	EXPECT_EQ(-ENOENT, doorbell(self->fd, r.handle));
	EXPECT_EQ(-ENOENT, region_export(self->fd, self->s.handle, RW, NAME));
	EXPECT_EQ(-ENOENT, kernel_start(self->fd, self->s.handle, 0, r.handle,
					0, 8, &ticket));
}

TEST_F(segment, doorbell)
{
	EXPECT_EQ(-ENOENT, doorbell(self->fd, 0));
	EXPECT_EQ(-ENOENT, doorbell(self->fd, 0x7fffffff));
	ASSERT_EQ(0, segment_create(self->fd, NAME, 1, &self->s));
	if (!link_up(self->fd))
		EXPECT_EQ(-ENOTCONN, doorbell(self->fd, self->s.handle));
}

TEST_F(segment, attach_bad_arguments)
{
	EXPECT_EQ(-EINVAL, segment_attach(self->fd, 0, &self->s));
}

TEST_F(segment, attach_without_peer)
{
	int ret = segment_attach(self->fd, NAME, &self->s);

	/* Asked afterwards: a link that comes up meanwhile stays so. */
	if (link_up(self->fd))
		SKIP(return, "the link is up");
	EXPECT_EQ(-ENOTCONN, ret);
}

/* A node cannot attach its own segments. */
TEST_F(segment, attach_of_own)
{
	struct segment s;

	if (!link_up(self->fd))
		SKIP(return, "the link is down");
	ASSERT_EQ(0, segment_create(self->fd, NAME, 1, &self->s));
	EXPECT_EQ(-ENOENT, segment_attach(self->fd, NAME, &s));
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
