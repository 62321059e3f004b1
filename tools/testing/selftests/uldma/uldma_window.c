// SPDX-License-Identifier: GPL-2.0
/*
 * Regions in this node's section of the window: what the device reaches through
 * them, what it does not, and who pays for them.
 */
#include "uldma_harness.h"
#include "uldma_process.h"
#include "uldma_lmm.h"
#include "uldma_queue.h"
#include "uldma_window.h"

#define PAGES 4
#define NAME 0x776f646e6977ULL

FIXTURE(window) {
	int fd;
	size_t page;
	size_t length;
	char *buf;
	struct region r;
	struct window w;
	struct context c;
	struct uldma_query before;
};

FIXTURE_SETUP(window)
{
	int ret;

	self->fd = uldma_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	self->page = page_size();
	self->length = PAGES * self->page;
	self->before = query(self->fd);
	ret = window_make(self->fd, RW, self->length, &self->w);
	if (ret == -EOPNOTSUPP)
		SKIP(return, "the device does not reach the window");
	ASSERT_EQ(0, ret);
	self->buf = buffer(self->length);
	ASSERT_NE(NULL, self->buf);
	ASSERT_EQ(0, region_register(self->fd, self->buf, self->length, RW,
				     &self->r));
	ASSERT_EQ(0, context_create_as(self->fd, ULDMA_METHOD_QUEUE, 0,
				       &self->c));
	ASSERT_EQ(0, context_map(self->fd, &self->c));
}

FIXTURE_TEARDOWN(window)
{
	close(self->fd);
}

static struct uldma_descriptor copy(__u32 to, __u64 dst_at, __u32 from,
				    __u64 src_at, __u64 bytes)
{
	return (struct uldma_descriptor){
		.op = ULDMA_OP_COPY,
		.src = from,
		.src_offset = src_at,
		.dst = to,
		.dst_offset = dst_at,
		.length = bytes,
	};
}

static bool all_zero(const char *at, size_t length)
{
	while (length && !READ_ONCE(*at))
		at++, length--;
	return !length;
}

TEST_F(window, arguments)
{
	__u64 most = self->before.out_window_size;
	int reader = open(uldma_node(), O_RDONLY | O_CLOEXEC);
	struct window w;

	EXPECT_EQ(-EINVAL, window_create(self->fd, 0, 1, &w));
	EXPECT_EQ(-EOPNOTSUPP, window_create(self->fd, 4, 1, &w));
	EXPECT_EQ(-EINVAL, window_create(self->fd, RW, 0, &w));
	EXPECT_EQ(-ENOSPC, window_create(self->fd, RW, most + 1, &w));
	EXPECT_EQ(-ENOSPC, window_create(self->fd, RW, ~0ULL, &w));
	ASSERT_LE(0, reader);
	EXPECT_EQ(-EBADF, window_create(reader, RW, 1, &w));
	close(reader);
	ASSERT_EQ(0, window_create(self->fd, RW, 1, &w));
	EXPECT_EQ(self->page, w.r.length);
	EXPECT_NE(self->w.r.index, w.r.index);
	EXPECT_NE(self->w.offset, w.offset);
}

/* The device reads what the program has written, and the other way round. */
TEST_F(window, contents)
{
	__u32 window = self->w.r.index, memory = self->r.index;

	EXPECT_TRUE(all_zero(self->w.at, self->length));
	pattern_fill(self->w.at, self->length, 1);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	ASSERT_EQ(0, queue_do(&self->c, copy(memory, 0, window, 0, self->length),
			      NULL));
	EXPECT_EQ(-1, pattern_check(self->buf, self->length, 1));
	pattern_fill(self->buf, self->length, 2);
	ASSERT_EQ(0, queue_do(&self->c, copy(window, 0, memory, 0, self->length),
			      NULL));
	EXPECT_EQ(-1, pattern_check(self->w.at, self->length, 2));
	/* By a system call, too. */
	memset(self->buf, 0, self->length);
	ASSERT_EQ(0, transfer(self->fd, BY_KERNEL, &self->r, 0, &self->w.r,
			      0, self->length));
	EXPECT_EQ(-1, pattern_check(self->buf, self->length, 2));
}

/* What lies behind the region is another's. */
TEST_F(window, bounds)
{
	__u32 window = self->w.r.index, memory = self->r.index;
	__u64 end = self->length, ticket;
	struct window behind;

	ASSERT_EQ(0, window_make(self->fd, RW, self->length, &behind));
	memset(behind.at, 0x5a, self->length);
	EXPECT_EQ(ULDMA_DMA_BOUNDS,
		  queue_do(&self->c, copy(window, end, memory, 0, 1), NULL));
	EXPECT_EQ(ULDMA_DMA_BOUNDS,
		  queue_do(&self->c, copy(window, end - 7, memory, 0, 8), NULL));
	EXPECT_EQ(ULDMA_DMA_BOUNDS,
		  queue_do(&self->c, copy(window, ~0ULL, memory, 0, 8), NULL));
	EXPECT_EQ(ULDMA_DMA_BOUNDS,
		  queue_do(&self->c, copy(memory, 0, window, end - 7, 8), NULL));
	EXPECT_EQ(-EINVAL, kernel_start(self->fd, self->w.r.handle, end - 7,
					self->r.handle, 0, 8, &ticket));
	for (size_t i = 0; i < self->length; i++)
		ASSERT_EQ(0x5a, behind.at[i]);
}

TEST_F(window, rights)
{
	struct window source, destination;
	__u64 ticket;

	ASSERT_EQ(0, window_create(self->fd, ULDMA_ACCESS_READ, 1, &source));
	ASSERT_EQ(0, window_create(self->fd, ULDMA_ACCESS_WRITE, 1,
				   &destination));
	EXPECT_EQ(0, queue_do(&self->c,
			      copy(destination.r.index, 0, source.r.index, 0, 8),
			      NULL));
	EXPECT_EQ(ULDMA_DMA_NO_RIGHT,
		  queue_do(&self->c,
			   copy(source.r.index, 0, self->r.index, 0, 8), NULL));
	EXPECT_EQ(ULDMA_DMA_NO_RIGHT,
		  queue_do(&self->c,
			   copy(self->r.index, 0, destination.r.index, 0, 8),
			   NULL));
	EXPECT_EQ(-EACCES, kernel_start(self->fd, source.r.handle, 0,
					self->r.handle, 0, 8, &ticket));
}

TEST_F(window, has_no_pages)
{
	struct uldma_region_query q;
	struct uldma_region_blocks b;
	struct uldma_block block;
	__u32 handle = self->w.r.handle;

	EXPECT_EQ(-EINVAL, region_export(self->fd, handle, RW, NAME));
	EXPECT_EQ(-EINVAL, region_blocks(self->fd, handle, 0, 0, &block, 1, &b));
	EXPECT_EQ(-EINVAL, map_out(self->fd, handle, 0, self->r.handle, 0, 1));
	EXPECT_EQ(-EINVAL, map_out(self->fd, self->r.handle, 0, handle, 0, 1));
	ASSERT_EQ(0, region_query(self->fd, handle, &q));
	EXPECT_EQ(RW, q.out_flags);
	EXPECT_EQ(self->length, q.out_length);
	EXPECT_EQ(PAGES, q.out_pages);
	EXPECT_EQ(0, q.out_addr);
}

TEST_F(window, mappings)
{
	int other = uldma_open(0);
	char *at = NULL;

	ASSERT_LE(0, other);
	EXPECT_EQ(-EINVAL, map(self->fd, self->w.offset, self->length, PROT_READ,
			       MAP_PRIVATE, &at));
	EXPECT_EQ(-EINVAL, map(self->fd, self->w.offset,
			       self->length + self->page, PROT_READ, MAP_SHARED,
			       &at));
	EXPECT_NE(0, map(self->fd, self->w.offset, self->page,
			 PROT_READ | PROT_EXEC, MAP_SHARED, &at));
	/* An offset is of one open file. */
	EXPECT_EQ(-EINVAL, map(other, self->w.offset, self->page, PROT_READ,
			       MAP_SHARED, &at));
	close(other);
}

/* The next owner does not see bytes of the previous one, nor the other way round. */
TEST_F(window, ends)
{
	struct window next;

	memset(self->w.at, 0xee, self->length);
	ASSERT_EQ(0, region_unregister(self->fd, self->w.r.handle));
	EXPECT_EQ(-ENOENT, region_unregister(self->fd, self->w.r.handle));
	EXPECT_EQ(SIGBUS, touch(self->w.at, LOAD));
	EXPECT_EQ(SIGBUS, touch(self->w.at, STORE));
	EXPECT_EQ(ULDMA_DMA_NOT_VALID,
		  queue_do(&self->c,
			   copy(self->r.index, 0, self->w.r.index, 0, 8), NULL));
	ASSERT_EQ(0, window_make(self->fd, RW, self->length, &next));
	EXPECT_TRUE(all_zero(next.at, self->length));
	EXPECT_EQ(SIGBUS, touch(self->w.at, STORE));
	EXPECT_TRUE(all_zero(next.at, self->length));
}

/* Transfers that use it end before it does. */
TEST_F(window, ends_in_use)
{
	__u64 used = query(self->fd).out_window_used;

	for (int i = 0; i < 20; i++) {
		__s64 tickets[8];
		struct window w;

		ASSERT_EQ(0, window_create(self->fd, RW, self->length, &w));
		for (int j = 0; j < ARRAY_SIZE(tickets); j++) {
			struct uldma_descriptor d =
				copy(w.r.index, 0, self->r.index, 0,
				     self->length);

			tickets[j] = queue_post(&self->c, &d);
			ASSERT_LT(0, tickets[j]);
		}
		queue_ring(&self->c);
		ASSERT_EQ(0, region_unregister(self->fd, w.r.handle));
		EXPECT_EQ(used, query(self->fd).out_window_used);
		for (int j = 0; j < ARRAY_SIZE(tickets); j++) {
			int ret = status_of(&self->c, tickets[j]);

			EXPECT_TRUE(!ret || ret == ULDMA_DMA_ABORTED ||
				    ret == ULDMA_DMA_NOT_VALID)
				TH_LOG("got %d", ret);
		}
	}
}

TEST_F(window, is_paid_for)
{
	struct uldma_query with = query(self->fd), after;
	long pins = vm_pin();

	EXPECT_EQ(self->before.out_user_window + self->length,
		  with.out_user_window);
	EXPECT_EQ(self->before.out_window_used + self->length,
		  with.out_window_used);
	/* With the one that is registered. */
	EXPECT_EQ(self->before.out_user_regions + 2, with.out_user_regions);
	EXPECT_EQ(self->before.out_user_pages + PAGES, with.out_user_pages);
	ASSERT_EQ(0, region_unregister(self->fd, self->w.r.handle));
	after = query(self->fd);
	EXPECT_EQ(self->before.out_user_window, after.out_user_window);
	EXPECT_EQ(self->before.out_window_used, after.out_window_used);
	EXPECT_EQ(self->before.out_user_regions + 1, after.out_user_regions);
	EXPECT_EQ(pins, vm_pin());
}

/* All of them end at once, with what is registered. */
TEST_F(window, cleanup)
{
	int fd = uldma_open(0);
	struct region r;
	struct window w;

	ASSERT_LE(0, fd);
	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(0, window_create(fd, RW, self->page, &w));
		ASSERT_EQ(0, region_register(fd, self->buf, self->page, RW, &r));
	}
	ASSERT_EQ(0, window_map(fd, &w));
	ASSERT_EQ(0, region_cleanup(fd));
	EXPECT_EQ(SIGBUS, touch(w.at, LOAD));
	/* A mapping keeps the file. */
	ASSERT_EQ(0, munmap(w.at, self->page));
	EXPECT_EQ(self->before.out_window_used + self->length,
		  query(fd).out_window_used);
	for (int i = 0; i < 3; i++)
		ASSERT_EQ(0, window_create(fd, RW, self->page, &w));
	close(fd);
	ASSERT_EQ(0, region_cleanup(self->fd));
	EXPECT_EQ(self->before.out_user_regions,
		  query(self->fd).out_user_regions);
}

/* Each takes a page, with a limit of bytes that are no memory of the machine. */
static int take_all(void *arg)
{
	int ret = become(HOSTILE, page_size());
	struct uldma_query q;
	struct window w;
	__u64 got = 0;
	int fd;

	if (ret)
		return ret;
	fd = uldma_open(0);
	if (fd < 0)
		return fd;
	q = query(fd);
	while (!(ret = window_create(fd, RW, q.out_user_max_window / 4, &w)))
		got += w.r.length;
	if (ret != -EDQUOT || got > q.out_user_max_window)
		return -EPROTO;
	return query(fd).out_user_window == got ? 0 : -EIO;
}

TEST_F(window, is_limited)
{
	mode_t mode;

	if (geteuid())
		SKIP(return, "needs root, to become others");
	ASSERT_EQ(0, node_open_to_all(&mode));
	EXPECT_EQ(0, in_child(take_all, NULL));
	EXPECT_EQ(0, chmod(uldma_node(), mode));
	EXPECT_EQ(self->before.out_window_used + self->length,
		  query(self->fd).out_window_used);
}

/* A child has the open file, but neither its mappings nor its rights. */
static int inherit(void *arg)
{
	struct _test_data_window *self = arg;
	struct window w;

	if (touch(self->w.at, LOAD) != SIGSEGV)
		return -EIO;
	if (window_create(self->fd, RW, 1, &w) != -EPERM)
		return -ENOENT;
	return region_unregister(self->fd, self->w.r.handle) == -EPERM ?
		       0 : -EPROTO;
}

/* Another address space knows the index, and is refused by the device. */
static int guess(void *arg)
{
	struct _test_data_window *self = arg;
	struct context c;
	struct region r;
	char *buf = buffer(self->page);
	int fd = uldma_open(0);
	int ret = region_register(fd, buf, self->page, RW, &r) ?:
		  context_create_as(fd, ULDMA_METHOD_QUEUE, 0, &c) ?:
		  context_map(fd, &c);

	if (ret)
		return ret;
	if (queue_do(&c, copy(r.index, 0, self->w.r.index, 0, 8), NULL) !=
	    ULDMA_DMA_NOT_OWNER)
		return -EIO;
	return queue_do(&c, copy(self->w.r.index, 0, r.index, 0, 8), NULL) ==
			       ULDMA_DMA_NOT_OWNER ?
		       0 : -EPROTO;
}

TEST_F(window, is_of_one_process)
{
	memset(self->w.at, 0x5a, self->length);
	EXPECT_EQ(0, in_child(inherit, self));
	EXPECT_EQ(0, in_child(guess, self));
	EXPECT_EQ(0x5a, self->w.at[0]);
}

static int create_and_die(void *arg)
{
	struct window w;
	int fd = uldma_open(0);
	int ret = fd < 0 ? fd : window_make(fd, RW, page_size(), &w);

	if (ret)
		return ret;
	WRITE_ONCE(w.at[0], 1);
	raise(SIGKILL);
	return 0;
}

TEST_F(window, sigkill_releases)
{
	EXPECT_EQ(SIGKILL, in_child(create_and_die, NULL));
	EXPECT_EQ(self->before.out_window_used + self->length,
		  query(self->fd).out_window_used);
}

TEST_HARNESS_MAIN
