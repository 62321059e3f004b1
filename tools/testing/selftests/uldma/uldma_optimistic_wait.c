// SPDX-License-Identifier: GPL-2.0
/*
 * Optimistic regions whose transfers wait for a page: while the driver looks it up,
 * or until it is paged in, and no longer than their region allows.
 */
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>

#include "uldma_harness.h"
#include "uldma_bind.h"
#include "uldma_kinds.h"
#include "uldma_lmm.h"
#include "uldma_optimistic.h"

#define PAGES 8
#define OPTIMISTIC (RW | ULDMA_REGISTER_OPTIMISTIC)
#define LOOK_UP (OPTIMISTIC | ULDMA_REGISTER_LOOK_UP)
#define PAGE_IN (OPTIMISTIC | ULDMA_REGISTER_PAGE_IN)
/* Microseconds that no test waits to the end. */
#define LONG ULDMA_REGISTER_MAX_LIMIT_US
/* Those that are waited to the end. */
#define SHORT (100 * 1000)

FIXTURE(wait) {
	int fd;
	size_t page;
	/* Memory that is pinned. */
	char *copy;
	struct region to;
	/* That of the variant, once it is registered. */
	struct region r;
};

FIXTURE_VARIANT(wait) {
	__u32 flags;
	/* What becomes of a transfer that lacks what is not in memory. */
	int absent;
};

FIXTURE_VARIANT_ADD(wait, look_up) {
	.flags = LOOK_UP,
	.absent = ULDMA_DMA_NOT_RESIDENT,
};

FIXTURE_VARIANT_ADD(wait, page_in) {
	.flags = PAGE_IN,
	.absent = ULDMA_DMA_OK,
};

static int set_up(struct _test_data_wait *self, __u32 flags)
{
	struct region r;
	int ret;

	self->page = page_size();
	self->fd = uldma_open(0);
	if (self->fd < 0)
		return self->fd;
	self->copy = buffer(PAGES * self->page);
	if (!self->copy)
		return -ENOMEM;
	ret = region_register(self->fd, self->copy, PAGES * self->page, RW,
			      &self->to);
	return ret ?: region_register(self->fd, self->copy, 1, flags, &r) ?:
	       region_unregister(self->fd, r.handle);
}

FIXTURE_SETUP(wait)
{
	int ret = set_up(self, variant->flags);

	if (ret == -EOPNOTSUPP)
		SKIP(return, "the device has no transfers that wait");
	ASSERT_EQ(0, ret);
}

FIXTURE_TEARDOWN(wait)
{
	close(self->fd);
}

/* Registers @pages pages, and maps none of them. */
#define REGISTER(at, pages)                                                   \
	ASSERT_EQ(0, region_register(self->fd, at, (pages) * self->page,      \
				     variant->flags, &self->r))
/* Reads or writes once. */
#define READ_ALL(bytes)                                                      \
	copy(self->fd, &self->to, 0, &self->r, 0, self->r.length, bytes)
#define WRITE_ALL(bytes)                                                     \
	copy(self->fd, &self->r, 0, &self->to, 0, self->r.length, bytes)

/* Maps @pages pages of @file, and touches none. */
static char *map_untouched(struct _test_data_wait *self, int file, int pages, int flags)
{
	size_t length = pages * self->page;
	char *at = mmap(NULL, length, PROT_READ | PROT_WRITE, flags, file, 0);

	if (at == MAP_FAILED)
		return NULL;
	/* A fault of one brings no other one. */
	return madvise(at, length, MADV_RANDOM) ||
	       madvise(at, length, MADV_NOHUGEPAGE) ? NULL : at;
}

/* Writes a pattern to a file, not by a mapping. */
static int fill_file(struct _test_data_wait *self, int file, int pages, int seed)
{
	size_t length = pages * self->page;
	char *data = malloc(length);
	int ret = data ? 0 : -ENOMEM;

	if (data) {
		pattern_fill(data, length, seed);
		ret = pwrite(file, data, length, 0) == length ? 0 : -errno;
	}
	free(data);
	return ret;
}

/* What is mapped is not in the table: the device has never accessed it. */
TEST_F(wait, mapped_pages_come_at_once)
{
	char *at = map_untouched(self, -1, PAGES, MAP_PRIVATE | MAP_ANONYMOUS);
	__u64 bytes;

	ASSERT_NE(NULL, at);
	pattern_fill(at, PAGES * self->page, 1);
	REGISTER(at, PAGES);
	EXPECT_EQ(0, READ_ALL(&bytes));
	EXPECT_EQ(PAGES * self->page, bytes);
	EXPECT_EQ(-1, pattern_check(self->copy, PAGES * self->page, 1));
	pattern_fill(self->copy, PAGES * self->page, 2);
	EXPECT_EQ(0, WRITE_ALL(&bytes));
	EXPECT_EQ(-1, pattern_check(at, PAGES * self->page, 2));
}

TEST_F(wait, cached_pages_come_at_once)
{
	int file = memfd_create("uldma", MFD_CLOEXEC);
	__u64 bytes;
	char *at;

	ASSERT_LE(0, file);
	ASSERT_EQ(0, fill_file(self, file, PAGES, 3));
	at = map_untouched(self, file, PAGES, MAP_SHARED);
	ASSERT_NE(NULL, at);
	REGISTER(at, PAGES);
	EXPECT_EQ(0, READ_ALL(&bytes));
	EXPECT_EQ(-1, pattern_check(self->copy, PAGES * self->page, 3));
	pattern_fill(self->copy, PAGES * self->page, 4);
	EXPECT_EQ(0, WRITE_ALL(&bytes));
	EXPECT_EQ(-1, pattern_check(at, PAGES * self->page, 4));
	/* Not those that were never written. */
	ASSERT_EQ(0, ftruncate(file, 0));
	ASSERT_EQ(0, ftruncate(file, PAGES * self->page));
	EXPECT_EQ(variant->absent, READ_ALL(&bytes));
	EXPECT_EQ(variant->absent ? 0 : PAGES * self->page, bytes);
	/* And none is beyond the end. */
	ASSERT_EQ(0, ftruncate(file, 0));
	EXPECT_EQ(variant->absent ?: ULDMA_DMA_NO_MAPPING, READ_ALL(&bytes));
	EXPECT_EQ(0, bytes);
}

TEST_F(wait, memory_that_was_never_touched)
{
	char *at = map_untouched(self, -1, PAGES, MAP_PRIVATE | MAP_ANONYMOUS);
	__u64 bytes;

	ASSERT_NE(NULL, at);
	REGISTER(at, PAGES);
	EXPECT_EQ(variant->absent, READ_ALL(&bytes));
	EXPECT_EQ(variant->absent ? 0 : PAGES * self->page, bytes);
	for (size_t i = 0; i < bytes; i += self->page)
		EXPECT_EQ(0, self->copy[i]);
	pattern_fill(self->copy, PAGES * self->page, 5);
	EXPECT_EQ(variant->absent, WRITE_ALL(&bytes));
	if (bytes)
		EXPECT_EQ(-1, pattern_check(at, bytes, 5));
}

TEST_F(wait, pages_that_are_on_disk)
{
	struct timespec now, limit;
	__u64 bytes;
	int file, ret;
	char *at;

	if (!has_ext4())
		SKIP(return, "no ext4 at " EXT4);
	file = file_in(EXT4, 2 * self->page);
	ASSERT_LE(0, file);
	ASSERT_EQ(0, fill_file(self, file, 2, 6));
	ASSERT_EQ(0, fsync(file));
	at = map_untouched(self, file, 2, MAP_SHARED);
	ASSERT_NE(NULL, at);
	REGISTER(at, 2);
	ASSERT_EQ(0, READ_ALL(&bytes));
	EXPECT_EQ(-1, pattern_check(self->copy, 2 * self->page, 6));
	/* A page that is about to be used is not dropped. */
	clock_gettime(CLOCK_MONOTONIC, &limit);
	limit.tv_sec += PATIENCE / SECOND;
	do {
		ASSERT_EQ(0, madvise(at, 2 * self->page, MADV_DONTNEED));
		ASSERT_EQ(0, posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED));
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (resident(at, 2 * self->page) && now.tv_sec <= limit.tv_sec);
	ASSERT_EQ(0, resident(at, 2 * self->page));
	memset(self->copy, 0, 2 * self->page);
	ret = READ_ALL(&bytes);
	EXPECT_EQ(variant->absent, ret);
	if (!ret)
		EXPECT_EQ(-1, pattern_check(self->copy, 2 * self->page, 6));
	/* The file system is told of a write only where that may wait. */
	pattern_fill(self->copy, 2 * self->page, 7);
	EXPECT_EQ(variant->absent, WRITE_ALL(&bytes));
	if (!variant->absent)
		EXPECT_EQ(-1, pattern_check(at, 2 * self->page, 7));
}

TEST_F(wait, pages_that_are_swapped)
{
	char *at = map_untouched(self, -1, 1, MAP_PRIVATE | MAP_ANONYMOUS);
	struct timespec now, limit;
	cpu_set_t here;
	__u64 bytes;

	if (!number_in("/proc/meminfo", "SwapTotal"))
		SKIP(return, "no swap space");
	ASSERT_NE(NULL, at);
	/* A page that another CPU is about to put on a list is not paged out. */
	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	ASSERT_EQ(0, sched_setaffinity(0, sizeof(here), &here));
	pattern_fill(at, self->page, 8);
	REGISTER(at, 1);
	clock_gettime(CLOCK_MONOTONIC, &limit);
	limit.tv_sec += PATIENCE / SECOND;
	do {
		ASSERT_EQ(0, madvise(at, self->page, MADV_PAGEOUT));
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (resident(at, self->page) && now.tv_sec <= limit.tv_sec);
	ASSERT_EQ(0, resident(at, self->page));
	EXPECT_EQ(variant->absent, READ_ALL(&bytes));
	if (!variant->absent)
		EXPECT_EQ(-1, pattern_check(self->copy, self->page, 8));
	EXPECT_EQ(-1, pattern_check(at, self->page, 8));
}

/* Writes are in the parent's page, which is another one then. */
TEST_F(wait, a_child_keeps_its_copy)
{
	char *at = map_untouched(self, -1, 2, MAP_PRIVATE | MAP_ANONYMOUS);
	int go[2], status;
	__u64 bytes;
	pid_t child;
	char c;

	ASSERT_NE(NULL, at);
	pattern_fill(at, 2 * self->page, 9);
	REGISTER(at, 2);
	ASSERT_EQ(0, WRITE_ALL(&bytes));
	pattern_fill(at, 2 * self->page, 9);
	ASSERT_EQ(0, pipe(go));
	child = fork();
	ASSERT_LE(0, child);
	if (!child) {
		close(go[1]);
		_exit(read(go[0], &c, 1) != 0 ||
		      pattern_check(at, 2 * self->page, 9) != -1);
	}
	pattern_fill(self->copy, 2 * self->page, 10);
	EXPECT_EQ(0, WRITE_ALL(&bytes));
	EXPECT_EQ(-1, pattern_check(at, 2 * self->page, 10));
	close(go[1]);
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status);
}

TEST_F(wait, what_never_comes)
{
	size_t length = 4 * self->page;
	char *at = map_untouched(self, -1, 4, MAP_PRIVATE | MAP_ANONYMOUS);
	__u64 bytes;

	ASSERT_NE(NULL, at);
	memset(at, 1, length);
	REGISTER(at, 4);
	ASSERT_EQ(0, munmap(at + 2 * self->page, self->page));
	EXPECT_EQ(ULDMA_DMA_NO_MAPPING, READ_ALL(&bytes));
	EXPECT_EQ(2 * self->page, bytes);
	ASSERT_EQ(0, mprotect(at + self->page, self->page, PROT_READ));
	EXPECT_EQ(ULDMA_DMA_PAGE_RIGHT, WRITE_ALL(&bytes));
	EXPECT_EQ(self->page, bytes);
	EXPECT_EQ(ULDMA_DMA_NO_MAPPING, READ_ALL(&bytes));
	EXPECT_EQ(2 * self->page, bytes);
	ASSERT_EQ(0, mprotect(at, self->page, PROT_NONE));
	EXPECT_EQ(ULDMA_DMA_PAGE_RIGHT, READ_ALL(&bytes));
	EXPECT_EQ(0, bytes);
	/* Both sides may lack pages: here all of it, and the other is there. */
	EXPECT_EQ(ULDMA_DMA_PAGE_RIGHT,
		  copy(self->fd, &self->r, 2 * self->page, &self->r, 0,
		       self->page, &bytes));
}

/* A region has one way, with a limit, and is optimistic. */
TEST_F(wait, limits)
{
	char *at = map_untouched(self, -1, 1, MAP_PRIVATE | MAP_ANONYMOUS);
	__u32 ways = variant->flags & ULDMA_WAITS;
	struct region r;

	ASSERT_NE(NULL, at);
#define REFUSED(flags, limit)                                                 \
	EXPECT_EQ(-EINVAL, region_register_for(self->fd, at, self->page,      \
					       flags, limit, &r))
	REFUSED(variant->flags, 0);
	REFUSED(variant->flags, LONG + 1);
	REFUSED(variant->flags, ~0U);
	REFUSED(variant->flags | ULDMA_WAITS, LONG);
	REFUSED(RW | ways, LONG);
	REFUSED(OPTIMISTIC, 1);
	REFUSED(RW, 1);
	EXPECT_EQ(0, region_register_for(self->fd, at, self->page,
					 variant->flags, 1, &r));
	EXPECT_EQ(0, region_register_for(self->fd, at, self->page,
					 variant->flags, LONG, &r));
}

FIXTURE(page_in) {
	struct _test_data_wait wait;
	/* Memory whose pages this descriptor has to bring. */
	char *at;
	int uffd;
};

FIXTURE_SETUP(page_in)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range;
	int ret = set_up(&self->wait, PAGE_IN);

	if (ret == -EOPNOTSUPP)
		SKIP(return, "the device has no transfers that wait");
	ASSERT_EQ(0, ret);
	self->at = map_untouched(&self->wait, -1, PAGES, MAP_PRIVATE | MAP_ANONYMOUS);
	ASSERT_NE(NULL, self->at);
	self->uffd = syscall(__NR_userfaultfd, O_CLOEXEC);
	if (self->uffd < 0 && errno == EPERM)
		SKIP(return, "only root may handle the kernel's faults");
	ASSERT_LE(0, self->uffd);
	ASSERT_EQ(0, ioctl(self->uffd, UFFDIO_API, &api));
	range = (struct uffdio_register){
		.range = { (uintptr_t)self->at, PAGES * self->wait.page },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	ASSERT_EQ(0, ioctl(self->uffd, UFFDIO_REGISTER, &range));
}

FIXTURE_TEARDOWN(page_in)
{
	close(self->uffd);
	close(self->wait.fd);
}

/* Waits for a fault, and returns its address; a negated errno if none comes. */
static long long wait_fault(int uffd)
{
	struct pollfd pollfd = { .fd = uffd, .events = POLLIN };
	struct uffd_msg msg;

	if (poll(&pollfd, 1, PATIENCE / 1000000) != 1)
		return -ETIMEDOUT;
	if (read(uffd, &msg, sizeof(msg)) != sizeof(msg))
		return -EIO;
	return msg.event == UFFD_EVENT_PAGEFAULT ?
	       (long long)msg.arg.pagefault.address : -EPROTO;
}

/* Has the page at @address be a copy of @data. */
static int bring(int uffd, unsigned long address, const char *data)
{
	struct uffdio_copy arg = {
		.dst = address & ~(page_size() - 1),
		.src = (uintptr_t)data,
		.len = page_size(),
	};

	return ioctl(uffd, UFFDIO_COPY, &arg) ? -errno : 0;
}

TEST_F(page_in, a_program_brings_them)
{
	struct _test_data_wait *wait = &self->wait;
	size_t length = 3 * wait->page;
	struct uldma_dma_wait result;
	char *data = buffer(length);
	long long address;
	struct region r;
	__u64 ticket;

	ASSERT_NE(NULL, data);
	pattern_fill(data, length, 11);
	ASSERT_EQ(0, region_register(wait->fd, self->at, length, PAGE_IN, &r));
	ASSERT_EQ(0, kernel_start(wait->fd, wait->to.handle, 0, r.handle, 0,
				  length, &ticket));
	for (int i = 0; i < 3; i++) {
		address = wait_fault(self->uffd);
		ASSERT_LT(0, address);
		ASSERT_EQ(0, bring(self->uffd, address,
				   data + (address - (uintptr_t)self->at) /
						  wait->page * wait->page));
	}
	ASSERT_EQ(0, dma_wait(wait->fd, 0, ticket, PATIENCE, &result));
	EXPECT_EQ(0, result.out_status);
	EXPECT_EQ(length, result.out_bytes);
	EXPECT_EQ(-1, pattern_check(wait->copy, length, 11));
}

/* Copies what is mapped, of memory of its own. */
static int copy_in_peace(void)
{
	size_t page = page_size();
	int fd = uldma_open(0);
	char *at = buffer(page), *to = buffer(page);
	struct region from, into;
	__u64 bytes;
	int ret;

	if (fd < 0 || !at || !to)
		return 1;
	pattern_fill(at, page, 12);
	ret = region_register(fd, at, page, PAGE_IN, &from) ?:
	      region_register(fd, to, page, RW, &into) ?:
	      copy(fd, &into, 0, &from, 0, page, &bytes);
	close(fd);
	return ret || pattern_check(to, page, 12) != -1;
}

/*
 * The driver waits for this process as long as that likes; transfers of others
 * and what ends do not.
 */
TEST_F(page_in, pages_that_nobody_brings)
{
	struct _test_data_wait *wait = &self->wait;
	long long address;
	struct region r;
	__u64 bytes;
	int status;
	pid_t other;

	ASSERT_EQ(0, region_register_for(wait->fd, self->at, 2 * wait->page,
					 PAGE_IN, SHORT, &r));
	for (int i = 0; i < 3; i++) {
		EXPECT_EQ(ULDMA_DMA_NOT_LOCKED,
			  copy(wait->fd, &wait->to, 0, &r, 0, wait->page,
			       &bytes));
		EXPECT_EQ(0, bytes);
	}
	/* The work item of this process is in the fault now. */
	address = wait_fault(self->uffd);
	ASSERT_LT(0, address);
	other = fork();
	ASSERT_LE(0, other);
	if (!other)
		_exit(copy_in_peace());
	ASSERT_EQ(other, waitpid(other, &status, 0));
	EXPECT_EQ(0, status);
	/* What comes late is there for the next. */
	memset(wait->copy, 13, wait->page);
	ASSERT_EQ(0, bring(self->uffd, address, wait->copy));
	memset(wait->copy, 0, wait->page);
	EXPECT_EQ(0, copy_all(wait->fd, &wait->to, 0, &r, 0, wait->page));
	EXPECT_EQ(13, wait->copy[0]);
	/* A region ends although the driver waits for a page of it. */
	EXPECT_EQ(ULDMA_DMA_NOT_LOCKED,
		  copy(wait->fd, &wait->to, 0, &r, wait->page, wait->page,
		       &bytes));
	ASSERT_LT(0, wait_fault(self->uffd));
	EXPECT_EQ(0, region_unregister(wait->fd, r.handle));
}

/* Nor does what ends wait for a fault that the driver has taken, be it the device. */
TEST_F_TIMEOUT(page_in, the_driver_is_unbound, 60)
{
	struct _test_data_wait *wait = &self->wait;
	struct pci_address device;
	long long address;
	struct region r;
	__u64 ticket;

	ASSERT_EQ(0, driver_find_device(&device));
	ASSERT_EQ(0, region_register(wait->fd, self->at, 2 * wait->page,
				     PAGE_IN, &r));
	ASSERT_EQ(0, kernel_start(wait->fd, wait->to.handle, 0, r.handle, 0,
				  wait->page, &ticket));
	address = wait_fault(self->uffd);
	ASSERT_LT(0, address);
	ASSERT_EQ(0, driver_unbind(&device));
	/* The page comes to a driver that has no device any more. */
	EXPECT_EQ(0, bring(self->uffd, address, wait->copy));
	EXPECT_EQ(0, region_unregister(wait->fd, r.handle));
	EXPECT_EQ(0, driver_bind(&device));
	/* Of another open file, since that one was of the device before. */
	EXPECT_EQ(0, copy_in_peace());
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
