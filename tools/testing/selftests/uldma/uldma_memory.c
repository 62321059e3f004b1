// SPDX-License-Identifier: GPL-2.0
/*
 * Memory below regions: its kinds, and what becomes of a region when its
 * owner unmaps, moves, forks or discards the memory. A region always means the
 * pages that were mapped when it was registered.
 */
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#include "uldma_harness.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

#define HUGE (2UL << 20)

static void *map_anonymous(size_t length)
{
	return buffer(length);
}

static void *map_shared(size_t length)
{
	return mmap(NULL, length, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static void *map_thp(size_t length)
{
	char *p = mmap(NULL, length + HUGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return p;
	p = (char *)(((uintptr_t)p + HUGE - 1) & ~(HUGE - 1));
	if (madvise(p, length, MADV_HUGEPAGE))
		return MAP_FAILED;
	memset(p, 0, length);
	return p;
}

static void *map_memfd(size_t length)
{
	int fd = memfd_create("uldma", 0);
	void *p;

	if (fd < 0 || ftruncate(fd, length))
		return MAP_FAILED;
	p = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return p;
}

static void *map_sysv(size_t length)
{
	int id = shmget(IPC_PRIVATE, length, IPC_CREAT | 0600);
	void *p;

	if (id < 0)
		return MAP_FAILED;
	p = shmat(id, NULL, 0);
	shmctl(id, IPC_RMID, NULL);
	return p;
}

/* There are none unless somebody asked, which root may do here and now. */
static bool set_hugepages(const char *count)
{
	int fd = open("/proc/sys/vm/nr_hugepages", O_WRONLY);
	bool done;

	if (fd < 0)
		return false;
	done = write(fd, count, strlen(count)) > 0;
	close(fd);
	return done;
}

static bool hugepages_added;

static void *map_hugetlb(size_t length)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB;
	void *p;

	p = mmap(NULL, length, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (p == MAP_FAILED && set_hugepages("4")) {
		hugepages_added = true;
		p = mmap(NULL, length, PROT_READ | PROT_WRITE, flags, -1, 0);
	}
	return p;
}

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
	if (self->buf == MAP_FAILED || !self->buf)
		SKIP(return, "no such memory here: %s", strerror(errno));
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->page = page_size();
	self->pins = machine_pins();
}

FIXTURE_TEARDOWN(kind)
{
	close(self->fd);
	if (hugepages_added)
		set_hugepages("0");
}

FIXTURE_VARIANT_ADD(kind, anonymous) { map_anonymous };
FIXTURE_VARIANT_ADD(kind, shared) { map_shared };
FIXTURE_VARIANT_ADD(kind, transparent_huge) { map_thp };
FIXTURE_VARIANT_ADD(kind, memfd) { map_memfd };
FIXTURE_VARIANT_ADD(kind, sysv) { map_sysv };
FIXTURE_VARIANT_ADD(kind, hugetlb) { map_hugetlb };

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
	/* A shared page that is mapped twice: to be lost, and to look at. */
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

TEST_F(memory, guard_page)
{
	char *buf = buffer(3 * self->page);
	long long pins = machine_pins();

	ASSERT_NE(NULL, buf);
	if (madvise(buf + self->page, self->page, MADV_GUARD_INSTALL))
		SKIP(return, "no guard pages: %s", strerror(errno));
	EXPECT_EQ(-EFAULT, region_register(self->fd, buf, 3 * self->page, RW,
					   &self->r));
	EXPECT_EQ(pins, machine_pins());
	EXPECT_EQ(1, vm_pin());
}

TEST_F(memory, secret)
{
	int fd = syscall(__NR_memfd_secret, 0);
	char *buf;

	if (fd < 0)
		SKIP(return, "no secret memory: %s", strerror(errno));
	ASSERT_EQ(0, ftruncate(fd, self->page));
	buf = mmap(NULL, self->page, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		   0);
	ASSERT_NE(MAP_FAILED, buf);
	EXPECT_EQ(-EFAULT, region_register(self->fd, buf, self->page, RW,
					   &self->r));
	EXPECT_EQ(1, vm_pin());
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
