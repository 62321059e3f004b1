// SPDX-License-Identifier: GPL-2.0
/*
 * Memory below regions: its kinds, and what becomes of a region when its
 * owner unmaps, moves, forks or discards the memory. A region always means the
 * pages that were mapped when it was registered.
 */
#include <sys/syscall.h>

#include "uldma_harness.h"
#include "uldma_kinds.h"
#include "uldma_lmm.h"

FIXTURE(kind) {
	int fd;
	size_t page;
	char *buf;
	long long pins;
};

FIXTURE_VARIANT(kind) {
	void *(*map)(size_t length);
};

FIXTURE_SETUP(kind)
{
	self->buf = variant->map(HUGE);
	if (!self->buf)
		SKIP(return, "%s", why_not);
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->page = page_size();
	self->pins = machine_pins();
}

FIXTURE_TEARDOWN(kind)
{
	close(self->fd);
	hugepages_done();
}

FIXTURE_VARIANT_ADD(kind, anonymous) { map_anonymous };
FIXTURE_VARIANT_ADD(kind, shared) { map_shared };
FIXTURE_VARIANT_ADD(kind, transparent_huge) { map_thp };
FIXTURE_VARIANT_ADD(kind, memfd) { map_memfd };
FIXTURE_VARIANT_ADD(kind, memfd_private) { map_memfd_private };
FIXTURE_VARIANT_ADD(kind, posix_shm) { map_posix_shm };
FIXTURE_VARIANT_ADD(kind, sysv) { map_sysv };
FIXTURE_VARIANT_ADD(kind, tmpfs) { map_tmpfs };
FIXTURE_VARIANT_ADD(kind, ext4_private) { map_ext4_private };
FIXTURE_VARIANT_ADD(kind, hugetlb) { map_hugetlb };
FIXTURE_VARIANT_ADD(kind, hugetlb_shared) { map_hugetlb_shared };
FIXTURE_VARIANT_ADD(kind, hugetlb_memfd) { map_hugetlb_memfd };
FIXTURE_VARIANT_ADD(kind, hugetlb_memfd_private) { map_hugetlb_memfd_private };

TEST_F(kind, holds_data)
{
	size_t half = HUGE / 2;
	struct region r;

	ASSERT_EQ(0, region_register(self->fd, self->buf, HUGE, RW, &r));
	pattern_fill(self->buf, half, 1);
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &r, half, &r, 0, half));
	EXPECT_EQ(-1, pattern_check(self->buf + half, half, 1));
	EXPECT_EQ(-1, pattern_check(self->buf, half, 1));
	ASSERT_EQ(0, region_unregister(self->fd, r.handle));
	EXPECT_EQ(-1, pattern_check(self->buf + half, half, 1));
	EXPECT_EQ(0, vm_pin());
	EXPECT_EQ(self->pins, machine_pins());
}

/* A small range in the middle of a large page is charged as what it is. */
TEST_F(kind, middle)
{
	size_t at = 17 * self->page + 5;
	struct region r;
	__u64 ticket;

	memset(self->buf, 0x11, HUGE);
	pattern_fill(self->buf + at, 3000, 2);
	ASSERT_EQ(0, region_register(self->fd, self->buf + at, self->page, RW,
				     &r));
	EXPECT_EQ(2, vm_pin());
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &r, 3000, &r, 0,
			      self->page - 3000));
	EXPECT_EQ(-1, pattern_check(self->buf + at + 3000, self->page - 3000,
				    2));
	EXPECT_EQ(0x11, self->buf[at - 1]);
	EXPECT_EQ(0x11, self->buf[at + self->page]);
	EXPECT_EQ(-EINVAL, kernel_start(self->fd, r.handle, 0, r.handle,
					self->page, 1, &ticket));
}

/* Ends the memory before the region. */
TEST_F(kind, unmapped_before_unregister)
{
	struct region r;

	ASSERT_EQ(0, region_register(self->fd, self->buf, HUGE, RW, &r));
	if (munmap(self->buf, HUGE))
		ASSERT_EQ(0, shmdt(self->buf));
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &r, 0, &r, HUGE / 2,
			      HUGE / 2));
	ASSERT_EQ(0, region_unregister(self->fd, r.handle));
	EXPECT_EQ(0, vm_pin());
	EXPECT_EQ(self->pins, machine_pins());
}

FIXTURE(memory) {
	int fd;
	size_t page;
	/* A source of data that stays as it is. */
	char *src;
	struct region source;
	/* A shared page that is mapped twice: to be lost, and to check. */
	int memfd;
	char *first;
	char *second;
	struct region r;
};

FIXTURE_SETUP(memory)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->page = page_size();
	self->src = buffer(self->page);
	ASSERT_NE(NULL, self->src);
	pattern_fill(self->src, self->page, 7);
	ASSERT_EQ(0, region_register(self->fd, self->src, self->page, RW,
				     &self->source));
	self->memfd = memfd_create("uldma", 0);
	ASSERT_LE(0, self->memfd);
	ASSERT_EQ(0, ftruncate(self->memfd, self->page));
	self->first = mmap(NULL, self->page, PROT_READ | PROT_WRITE,
			   MAP_SHARED, self->memfd, 0);
	self->second = mmap(NULL, self->page, PROT_READ | PROT_WRITE,
			    MAP_SHARED, self->memfd, 0);
	ASSERT_NE(MAP_FAILED, self->first);
	ASSERT_NE(MAP_FAILED, self->second);
}

FIXTURE_TEARDOWN(memory)
{
	close(self->fd);
	close(self->memfd);
}

static int fill_by_dma(struct _test_data_memory *self, const struct region *r)
{
	return transfer(self->fd, BY_KERNEL, r, 0, &self->source, 0,
			self->page);
}

static bool is_filled(struct _test_data_memory *self, const char *at)
{
	return pattern_check(at, self->page, 7) < 0;
}

static bool is_byte(struct _test_data_memory *self, const char *at, char byte)
{
	for (size_t i = 0; i < self->page; i++)
		if (at[i] != byte)
			return false;
	return true;
}

/* Puts private memory, all of one byte, in place of the first mapping. */
static int replace_first(struct _test_data_memory *self, char byte)
{
	if (mmap(self->first, self->page, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		 0) != self->first)
		return -errno;
	memset(self->first, byte, self->page);
	return 0;
}

TEST_F(memory, mapped_anew_is_left_alone)
{
	ASSERT_EQ(0, region_register(self->fd, self->first, self->page, RW,
				     &self->r));
	ASSERT_EQ(0, munmap(self->first, self->page));
	ASSERT_EQ(0, replace_first(self, 0x22));
	ASSERT_EQ(0, fill_by_dma(self, &self->r));
	EXPECT_TRUE(is_filled(self, self->second));
	EXPECT_TRUE(is_byte(self, self->first, 0x22));
}

/* A registration of the new memory must not find the old pages. */
TEST_F(memory, mapped_anew_is_new_memory)
{
	struct region anew;

	ASSERT_EQ(0, region_register(self->fd, self->first, self->page, RW,
				     &self->r));
	ASSERT_EQ(0, replace_first(self, 0x22));
	memset(self->second, 0x33, self->page);
	ASSERT_EQ(0, region_register(self->fd, self->first, self->page, RW,
				     &anew));
	ASSERT_EQ(0, fill_by_dma(self, &anew));
	EXPECT_TRUE(is_filled(self, self->first));
	EXPECT_TRUE(is_byte(self, self->second, 0x33));

	/* And the old region still is what it was. */
	memset(self->first, 0x44, self->page);
	ASSERT_EQ(0, fill_by_dma(self, &self->r));
	EXPECT_TRUE(is_filled(self, self->second));
	EXPECT_TRUE(is_byte(self, self->first, 0x44));

	ASSERT_EQ(0, region_unregister(self->fd, self->r.handle));
	memset(self->first, 0x55, self->page);
	ASSERT_EQ(0, fill_by_dma(self, &anew));
	EXPECT_TRUE(is_filled(self, self->first));
	ASSERT_EQ(0, region_unregister(self->fd, anew.handle));
	EXPECT_EQ(1, vm_pin());
}

TEST_F(memory, mremap_takes_the_pages_along)
{
	char *to = mmap(NULL, self->page, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ASSERT_NE(MAP_FAILED, to);
	ASSERT_EQ(0, region_register(self->fd, self->first, self->page, RW,
				     &self->r));
	ASSERT_EQ(to, mremap(self->first, self->page, self->page,
			     MREMAP_MAYMOVE | MREMAP_FIXED, to));
	ASSERT_EQ(0, fill_by_dma(self, &self->r));
	EXPECT_TRUE(is_filled(self, to));
}

TEST_F(memory, truncated_file)
{
	ASSERT_EQ(0, region_register(self->fd, self->first, self->page, RW,
				     &self->r));
	ASSERT_EQ(0, ftruncate(self->memfd, 0));
	ASSERT_EQ(0, ftruncate(self->memfd, self->page));
	memset(self->second, 0x22, self->page);
	EXPECT_EQ(0, fill_by_dma(self, &self->r));
	EXPECT_TRUE(is_byte(self, self->second, 0x22));
}

TEST_F(memory, discarded)
{
	char *buf = buffer(self->page);

	ASSERT_NE(NULL, buf);
	memset(buf, 0x22, self->page);
	ASSERT_EQ(0, region_register(self->fd, buf, self->page, RW, &self->r));
	ASSERT_EQ(0, madvise(buf, self->page, MADV_DONTNEED));
	EXPECT_EQ(0, fill_by_dma(self, &self->r));
	EXPECT_TRUE(is_byte(self, buf, 0));
}

/* Only reading was asked for, but later stores of the owner must be seen. */
TEST_F(memory, untouched_then_written)
{
	char *buf = mmap(NULL, self->page, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ASSERT_NE(MAP_FAILED, buf);
	ASSERT_EQ(0, region_register(self->fd, buf, self->page,
				     ULDMA_ACCESS_READ, &self->r));
	pattern_fill(buf, self->page, 9);
	ASSERT_EQ(0, transfer(self->fd, BY_KERNEL, &self->source, 0, &self->r,
			      0, self->page));
	EXPECT_EQ(-1, pattern_check(self->src, self->page, 9));
}

enum {
	CHECK,
	FILL,
	FRAME,
	TRY,
};

/**
 * struct inherited - what a child has of its parent
 * @fd: the device
 * @buf: a page
 * @region: a region of the parent
 */
struct inherited {
	int fd;
	char *buf;
	__u32 region;
};

static long serve_inherited(long verb, long arg, void *data)
{
	struct inherited *it = data;
	struct region r;
	__u64 ticket;

	switch (verb) {
	case CHECK:
		return pattern_check(it->buf, page_size(), arg);
	case FILL:
		pattern_fill(it->buf, page_size(), arg);
		return 0;
	case FRAME:
		return frame(it->buf);
	case TRY:
		return region_register(it->fd, it->buf, 1, RW, &r) ?:
		       kernel_start(it->fd, it->region, 0, it->region, 32, 8,
				    &ticket);
	}
	return -EINVAL;
}

/* Pages that are shared for copy on write are copied before they are pinned. */
TEST_F(memory, register_after_fork)
{
	struct inherited it = { self->fd, buffer(self->page) };
	struct partner child = { };
	__u64 inherited;

	ASSERT_NE(NULL, it.buf);
	pattern_fill(it.buf, self->page, 3);
	ASSERT_EQ(0, partner_start(&child, serve_inherited, &it));
	inherited = partner_call(&child, FRAME, 0);
	EXPECT_NE(0, inherited);
	EXPECT_EQ(inherited, frame(it.buf));

	ASSERT_EQ(0, region_register(self->fd, it.buf, self->page, RW,
				     &self->r));
	EXPECT_NE(inherited, frame(it.buf));
	ASSERT_EQ(0, fill_by_dma(self, &self->r));
	EXPECT_TRUE(is_filled(self, it.buf));
	EXPECT_EQ(-1, partner_call(&child, CHECK, 3));
	/* Nor does the child's writing reach the region. */
	EXPECT_EQ(0, partner_call(&child, FILL, 4));
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &self->source, 0, &self->r,
			      0, self->page));
	EXPECT_TRUE(is_filled(self, self->src));
	EXPECT_EQ(0, partner_end(&child));
}

/* The same for a region that is only read: the owner may write later. */
TEST_F(memory, register_for_reading_after_fork)
{
	struct inherited it = { self->fd, buffer(self->page) };
	struct partner child = { };

	ASSERT_NE(NULL, it.buf);
	pattern_fill(it.buf, self->page, 3);
	ASSERT_EQ(0, partner_start(&child, serve_inherited, &it));
	EXPECT_EQ(-1, partner_call(&child, CHECK, 3));
	ASSERT_EQ(0, region_register(self->fd, it.buf, self->page,
				     ULDMA_ACCESS_READ, &self->r));
	pattern_fill(it.buf, self->page, 5);
	EXPECT_EQ(0, partner_call(&child, FILL, 4));
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &self->source, 0, &self->r,
			      0, self->page));
	EXPECT_EQ(-1, pattern_check(self->src, self->page, 5));
	EXPECT_EQ(0, partner_end(&child));
}

/* Pinned pages stay with the parent; the child gets copies and no region. */
TEST_F(memory, fork_after_register)
{
	struct inherited it = { self->fd, buffer(self->page) };
	struct partner child = { };
	__u64 own;

	ASSERT_NE(NULL, it.buf);
	pattern_fill(it.buf, self->page, 3);
	ASSERT_EQ(0, region_register(self->fd, it.buf, self->page, RW,
				     &self->r));
	own = frame(it.buf);
	EXPECT_NE(0, own);
	it.region = self->r.handle;
	ASSERT_EQ(0, partner_start(&child, serve_inherited, &it));
	EXPECT_EQ(-EPERM, partner_call(&child, TRY, 0));
	EXPECT_EQ(-1, partner_call(&child, CHECK, 3));
	EXPECT_NE(own, partner_call(&child, FRAME, 0));
	EXPECT_EQ(0, partner_call(&child, FILL, 4));

	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &self->source, 0, &self->r,
			      0, self->page));
	EXPECT_EQ(-1, pattern_check(self->src, self->page, 3));
	pattern_fill(self->src, self->page, 7);
	ASSERT_EQ(0, fill_by_dma(self, &self->r));
	EXPECT_TRUE(is_filled(self, it.buf));
	EXPECT_EQ(own, frame(it.buf));
	EXPECT_EQ(-1, partner_call(&child, CHECK, 4));
	EXPECT_EQ(0, partner_end(&child));
	EXPECT_EQ(2, vm_pin());
}

static void stay(int fd, void *arg)
{
	if (write(fd, "", 1) != 1)
		_exit(1);
}

/* Copy on write after fork() must not part the owner from its region. */
TEST_F(memory, fork_leaves_the_pages)
{
	struct helper helper = { };
	char *buf = buffer(self->page);
	char byte;

	ASSERT_NE(NULL, buf);
	ASSERT_EQ(0, region_register(self->fd, buf, self->page, RW, &self->r));
	ASSERT_EQ(0, helper_start(&helper, stay, NULL));
	ASSERT_EQ(1, read(helper.fd, &byte, 1));

	pattern_fill(buf, self->page, 3);
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &self->source, 0, &self->r,
			      0, self->page));
	EXPECT_EQ(-1, pattern_check(self->src, self->page, 3));
	pattern_fill(self->src, self->page, 7);
	EXPECT_EQ(0, fill_by_dma(self, &self->r));
	EXPECT_TRUE(is_filled(self, buf));
	EXPECT_EQ(0, helper_kill(&helper));
}

FIXTURE(refused) {
	int fd;
	size_t page;
	long long pins;
	struct region r;
	struct context c;
};

FIXTURE_SETUP(refused)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->page = page_size();
	ASSERT_EQ(0, context_create(self->fd, &self->c));
	ASSERT_EQ(0, context_map(self->fd, &self->c));
	self->pins = machine_pins();
}

FIXTURE_TEARDOWN(refused)
{
	EXPECT_EQ(self->pins, machine_pins());
	EXPECT_EQ(0, vm_pin());
	EXPECT_EQ(0, query(self->fd).out_file_regions);
	close(self->fd);
}

static int try_register(struct _test_data_refused *self, const void *addr,
			size_t pages, __u32 access)
{
	return region_register(self->fd, addr, pages * self->page, access,
			       &self->r);
}

TEST_F(refused, guard_page)
{
	char *buf = buffer(3 * self->page);

	ASSERT_NE(NULL, buf);
	if (madvise(buf + self->page, self->page, MADV_GUARD_INSTALL))
		SKIP(return, "no guard pages: %s", strerror(errno));
	EXPECT_EQ(-EFAULT, try_register(self, buf, 3, RW));
}

TEST_F(refused, secret)
{
	int fd = syscall(__NR_memfd_secret, 0);
	char *buf;

	if (fd < 0)
		SKIP(return, "no secret memory: %s", strerror(errno));
	ASSERT_EQ(0, ftruncate(fd, self->page));
	buf = mmap(NULL, self->page, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		   0);
	ASSERT_NE(MAP_FAILED, buf);
	EXPECT_EQ(-EFAULT, try_register(self, buf, 1, RW));
}

/* Where the device would read or write itself. */
TEST_F(refused, device_memory)
{
	char *buf = buffer(3 * self->page);
	struct region own;
	struct segment s;

	ASSERT_NE(NULL, buf);
	EXPECT_EQ(-EOPNOTSUPP, try_register(self, self->c.page, 1, RW));
	EXPECT_EQ(-EOPNOTSUPP, try_register(self, self->c.page, 1,
					    ULDMA_ACCESS_READ));

	ASSERT_EQ(0, segment_create(self->fd, getpid(), self->page, &s));
	ASSERT_EQ(0, segment_map(self->fd, &s));
	EXPECT_EQ(-EOPNOTSUPP, try_register(self, s.map, 1, RW));
	EXPECT_EQ(-EOPNOTSUPP, try_register(self, s.map, 1,
					    ULDMA_ACCESS_READ));

	/* The shadow of a page of memory, and with memory around it. */
	ASSERT_EQ(0, try_register(self, buf, 1, RW));
	own = self->r;
	ASSERT_EQ(buf + self->page,
		  mmap(buf + self->page, self->page, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_FIXED, self->fd, own.shadow_offset));
	EXPECT_EQ(-EOPNOTSUPP, try_register(self, buf + self->page, 1, RW));
	EXPECT_EQ(-EOPNOTSUPP, try_register(self, buf + self->page, 1,
					    ULDMA_ACCESS_READ));
	EXPECT_EQ(-EOPNOTSUPP, try_register(self, buf, 3, RW));
	EXPECT_EQ(1, vm_pin());
	EXPECT_EQ(0, region_unregister(self->fd, own.handle));
}

TEST_F(refused, beyond_the_end_of_a_file)
{
	int fd = memfd(self->page + 1, 0);
	char *buf;

	ASSERT_LE(0, fd);
	buf = mmap(NULL, 4 * self->page, PROT_READ | PROT_WRITE, MAP_SHARED,
		   fd, 0);
	ASSERT_NE(MAP_FAILED, buf);
	EXPECT_EQ(-EFAULT, try_register(self, buf, 3, RW));
	EXPECT_EQ(-EFAULT, try_register(self, buf + 2 * self->page, 1,
					ULDMA_ACCESS_READ));
	/* All of the last page is there, as it is for loads and stores. */
	ASSERT_EQ(0, try_register(self, buf, 2, RW));
	EXPECT_EQ(0, region_unregister(self->fd, self->r.handle));
}

/* A file system that tracks dirty pages does not learn of a device's writes. */
TEST_F(refused, ext4_shared)
{
	char *buf, *copy = buffer(self->page);
	struct region to;

	ASSERT_NE(NULL, copy);
	if (!has_ext4())
		SKIP(return, "no ext4 at " EXT4);
	buf = map_file(file_in(EXT4, 2 * self->page), 2 * self->page,
		       MAP_SHARED);
	ASSERT_NE(NULL, buf);
	pattern_fill(buf, self->page, 1);
	EXPECT_EQ(-EOPNOTSUPP, try_register(self, buf, 2, RW));
	EXPECT_EQ(-EOPNOTSUPP, try_register(self, buf, 1,
					    ULDMA_ACCESS_WRITE));
	EXPECT_EQ(0, vm_pin());

	/* To be read by the device it is as good as any. */
	ASSERT_EQ(0, region_register(self->fd, copy, self->page, RW, &to));
	ASSERT_EQ(0, try_register(self, buf, 2, ULDMA_ACCESS_READ));
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &to, 0, &self->r, 0,
			      self->page));
	EXPECT_EQ(-1, pattern_check(copy, self->page, 1));
	pattern_fill(buf, self->page, 2);
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &to, 0, &self->r, 0,
			      self->page));
	EXPECT_EQ(-1, pattern_check(copy, self->page, 2));
	/* And the right to write does not come by registering again. */
	EXPECT_EQ(-EOPNOTSUPP, region_register(self->fd, buf, self->page, RW,
					       &(struct region){ }));
	EXPECT_EQ(0, region_unregister(self->fd, self->r.handle));
	EXPECT_EQ(0, region_unregister(self->fd, to.handle));
}

/* Private pages of a file that cannot be written, as those of a program. */
TEST_F(refused, readonly_file)
{
	char *copy = buffer(self->page), *buf;
	int fd = memfd(self->page, 0);
	struct region to;
	__u64 word = 7;

	ASSERT_NE(NULL, copy);
	ASSERT_LE(0, fd);
	ASSERT_EQ(8, pwrite(fd, &word, 8, 64));
	buf = mmap(NULL, self->page, PROT_READ, MAP_PRIVATE, fd, 0);
	ASSERT_NE(MAP_FAILED, buf);
	EXPECT_EQ(-EFAULT, try_register(self, buf, 1, RW));
	EXPECT_EQ(-EFAULT, try_register(self, buf, 1, ULDMA_ACCESS_WRITE));

	ASSERT_EQ(0, region_register(self->fd, copy, self->page, RW, &to));
	ASSERT_EQ(0, try_register(self, buf, 1, ULDMA_ACCESS_READ));
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &to, 0, &self->r, 64, 8));
	EXPECT_EQ(0, memcmp(copy, &word, 8));
	EXPECT_EQ(0, region_unregister(self->fd, self->r.handle));
	EXPECT_EQ(0, region_unregister(self->fd, to.handle));
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
