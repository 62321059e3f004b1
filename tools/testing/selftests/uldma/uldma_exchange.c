// SPDX-License-Identifier: GPL-2.0
/*
 * Exchangeable memory: it is memory like any other for the program, and a region
 * for the device.
 */
#include <sys/uio.h>

#include "uldma_harness.h"
#include "uldma_exchange.h"
#include "uldma_lmm.h"

#define PAGES 8
#define SEED 0x657863UL

FIXTURE(exchange) {
	int fd;
	size_t page;
	size_t length;
	struct memory m;
};

FIXTURE_SETUP(exchange)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->page = page_size();
	self->length = PAGES * self->page;
	ASSERT_EQ(0, memory_create(self->fd, self->length, &self->m));
	ASSERT_EQ(0, memory_map(self->fd, &self->m));
}

FIXTURE_TEARDOWN(exchange)
{
	close(self->fd);
}

TEST_F(exchange, arguments)
{
	struct uldma_exchange_create arg = {
		.size = sizeof(arg),
		.flags = 1,
		.length = self->page,
	};
	__u64 most = query(self->fd).out_max_pages * (__u64)self->page;
	int reader = open(uldma_node(), O_RDONLY | O_CLOEXEC);
	struct memory m;

	EXPECT_EQ(-EOPNOTSUPP,
		  uldma_ioctl(self->fd, ULDMA_IOC_EXCHANGE_CREATE, &arg));
	EXPECT_EQ(-EINVAL, memory_create(self->fd, 0, &m));
	EXPECT_EQ(-EINVAL, memory_create(self->fd, self->page - 1, &m));
	EXPECT_EQ(-EINVAL, memory_create(self->fd, self->page + 1, &m));
	EXPECT_EQ(-ENOSPC, memory_create(self->fd, most + self->page, &m));
	ASSERT_LE(0, reader);
	EXPECT_EQ(-EBADF, memory_create(reader, self->page, &m));
	close(reader);
}

TEST_F(exchange, mappings)
{
	char *at = NULL;

	EXPECT_EQ(-EINVAL, map(self->fd, self->m.offset, self->length,
			       PROT_READ, MAP_PRIVATE, &at));
	EXPECT_EQ(-EINVAL, map(self->fd, self->m.offset,
			       self->length + self->page, PROT_READ, MAP_SHARED,
			       &at));
	EXPECT_NE(0, map(self->fd, self->m.offset, self->page,
			 PROT_READ | PROT_EXEC, MAP_SHARED, &at));
}

static bool all_zero(const char *at, size_t length)
{
	while (length && !*at)
		at++, length--;
	return !length;
}

/* Data stay with the memory, whatever becomes of mappings. */
TEST_F(exchange, contents)
{
	char *alias = NULL;

	EXPECT_TRUE(all_zero(self->m.at, self->length));
	pattern_fill(self->m.at, self->length, SEED);
	ASSERT_EQ(0, map(self->fd, self->m.offset + self->page, self->page,
			 PROT_READ | PROT_WRITE, MAP_SHARED, &alias));
	EXPECT_EQ(0, memcmp(alias, self->m.at + self->page, self->page));
	alias[0] ^= 1;
	EXPECT_EQ(alias[0], self->m.at[self->page]);
	alias[0] ^= 1;
	ASSERT_EQ(0, munmap(self->m.at, self->length));
	ASSERT_EQ(0, memory_map(self->fd, &self->m));
	EXPECT_EQ(-1, pattern_check(self->m.at, self->length, SEED));
}

/* A fault maps its neighbours, of this mapping only. */
TEST_F(exchange, faults)
{
	size_t length = 16 * BLOCK;
	struct memory m;
	long count;

	ASSERT_EQ(0, memory_create(self->fd, length, &m));
	ASSERT_EQ(0, memory_map(self->fd, &m));
	faults_of(self->m.at, self->length, LOAD);
	count = faults_of(m.at, length, LOAD);
	/* Each block, and another one if the mapping is not aligned. */
	EXPECT_LE(16, count);
	EXPECT_GE(17, count);
	EXPECT_EQ(0, faults_of(m.at, length, LOAD));
	/* Each of two mappings with a hole between them has its own block. */
	ASSERT_EQ(0, memory_map(self->fd, &m));
	ASSERT_EQ(0, munmap(m.at + self->page, self->page));
	EXPECT_EQ(0, touch(m.at, LOAD));
	EXPECT_EQ(1, faults_of(m.at + 2 * self->page, self->page, LOAD));
	EXPECT_EQ(SIGSEGV, touch(m.at + self->page, LOAD));
}

TEST_F(exchange, charges)
{
	struct uldma_query q = query(self->fd);
	long before = vm_pin();
	struct memory m;

	ASSERT_EQ(0, memory_create(self->fd, self->length, &m));
	EXPECT_EQ(before + PAGES, vm_pin());
	EXPECT_EQ(q.out_user_pages + PAGES, query(self->fd).out_user_pages);
	EXPECT_EQ(q.out_user_regions + 1, query(self->fd).out_user_regions);
	/* Mapping charges nothing. */
	ASSERT_EQ(0, memory_map(self->fd, &m));
	memset(m.at, 1, self->length);
	EXPECT_EQ(before + PAGES, vm_pin());
	ASSERT_EQ(0, region_unregister(self->fd, m.r.handle));
	EXPECT_EQ(before, vm_pin());
	EXPECT_EQ(q.out_user_pages, query(self->fd).out_user_pages);
	EXPECT_EQ(q.out_user_regions, query(self->fd).out_user_regions);
}

TEST_F(exchange, memlock)
{
	struct memory m;

	ASSERT_EQ(0, set_memlock((PAGES + 2) * self->page));
	ASSERT_EQ(0, drop_privileges());
	EXPECT_EQ(-ENOMEM, memory_create(self->fd, 3 * self->page, &m));
	EXPECT_EQ(0, memory_create(self->fd, 2 * self->page, &m));
	EXPECT_EQ(-ENOMEM, memory_create(self->fd, self->page, &m));
}

static int store_in_child(void *at)
{
	return -touch(at, STORE);
}

TEST_F(exchange, fork)
{
	self->m.at[0] = 7;
	/* The child has nothing there. */
	EXPECT_EQ(-SIGSEGV, in_child(store_in_child, self->m.at));
	EXPECT_EQ(7, self->m.at[0]);
	self->m.at[0] = 8;
	EXPECT_EQ(8, self->m.at[0]);
}

TEST_F(exchange, mremap)
{
	char *to = mmap(NULL, 2 * self->page, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *from = self->m.at + 2 * self->page;

	ASSERT_NE(MAP_FAILED, to);
	pattern_fill(self->m.at, self->length, SEED);
	/* Two pages from the middle, which splits the mapping. */
	ASSERT_EQ(to, mremap(from, 2 * self->page, 2 * self->page,
			     MREMAP_MAYMOVE | MREMAP_FIXED, to));
	EXPECT_EQ(SIGSEGV, touch(from, LOAD));
	EXPECT_EQ(MAP_FAILED, mremap(to, 2 * self->page, 3 * self->page,
				     MREMAP_MAYMOVE));
	to[0] ^= 1;
	ASSERT_EQ(0, memory_map(self->fd, &self->m));
	EXPECT_EQ(to[0], self->m.at[2 * self->page]);
	to[0] ^= 1;
	EXPECT_EQ(-1, pattern_check(self->m.at, self->length, SEED));
}

TEST_F(exchange, partial_munmap)
{
	char *middle = self->m.at + 3 * self->page;
	char *again = NULL;

	pattern_fill(self->m.at, self->length, SEED);
	ASSERT_EQ(0, munmap(middle, self->page));
	EXPECT_EQ(SIGSEGV, touch(middle, LOAD));
	ASSERT_EQ(middle, mmap(middle, self->page, PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_FIXED, self->fd,
			       self->m.offset + 3 * self->page));
	EXPECT_EQ(-1, pattern_check(self->m.at, self->length, SEED));
	/* Not beyond the memory. */
	EXPECT_EQ(-EINVAL, map(self->fd, self->m.offset + 7 * self->page,
			       2 * self->page, PROT_READ, MAP_SHARED, &again));
}

TEST_F(exchange, mprotect)
{
	char *second = self->m.at + self->page;

	self->m.at[0] = 1;
	ASSERT_EQ(0, mprotect(self->m.at, 2 * self->page, PROT_READ));
	EXPECT_EQ(SIGSEGV, touch(self->m.at, STORE));
	/* Mapped for reading only by this load. */
	EXPECT_EQ(0, touch(second, LOAD));
	EXPECT_EQ(SIGSEGV, touch(second, STORE));
	ASSERT_EQ(0, mprotect(self->m.at, 2 * self->page,
			      PROT_READ | PROT_WRITE));
	second[0] = 2;
	self->m.at[0]++;
	EXPECT_EQ(2, second[0]);
	EXPECT_EQ(2, self->m.at[0]);
	EXPECT_NE(0, mprotect(self->m.at, self->page, PROT_READ | PROT_EXEC));
}

/* Whatever pins pages would keep them when they are exchanged. */
TEST_F(exchange, cannot_be_pinned)
{
	struct iovec part = { self->m.at, self->page };
	int fds[2];
	struct region r;
	char *other = buffer(self->page);

	EXPECT_EQ(-EOPNOTSUPP, region_register(self->fd, self->m.at,
					       self->page, RW, &r));
	self->m.at[0] = 1;
	EXPECT_EQ(-EOPNOTSUPP, region_register(self->fd, self->m.at,
					       self->page, ULDMA_ACCESS_READ,
					       &r));
	ASSERT_EQ(0, pipe(fds));
	EXPECT_EQ(-1, vmsplice(fds[1], &part, 1, 0));
	EXPECT_EQ(EFAULT, errno);
	/* But copied. */
	EXPECT_EQ(1, write(fds[1], self->m.at, 1));
	EXPECT_EQ(1, read(fds[0], self->m.at + 1, 1));
	EXPECT_EQ(1, self->m.at[1]);
	close(fds[0]);
	close(fds[1]);
	/* And memory beside it is pinned as always. */
	ASSERT_NE(NULL, other);
	EXPECT_EQ(0, region_register(self->fd, other, self->page, RW, &r));
}

TEST_F(exchange, is_a_region)
{
	struct uldma_region_query q;
	struct memory other;

	if (query(self->fd).out_backend != ULDMA_BACKEND_ADAPTER)
		SKIP(return, "the device has no engine");
	ASSERT_EQ(0, memory_create(self->fd, self->length, &other));
	ASSERT_EQ(0, memory_map(self->fd, &other));
	pattern_fill(self->m.at, self->length, SEED);
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &other.r, self->page,
			      &self->m.r, 0, self->length - self->page));
	EXPECT_EQ(0, memcmp(other.at + self->page, self->m.at,
			    self->length - self->page));
	EXPECT_TRUE(all_zero(other.at, self->page));
	ASSERT_EQ(0, region_query(self->fd, other.r.handle, &q));
	EXPECT_EQ(RW, q.out_flags);
	EXPECT_EQ(self->length, q.out_length);
	EXPECT_EQ(PAGES, q.out_pages);
	EXPECT_EQ(0, q.out_addr);
	EXPECT_EQ(0, q.out_stale);
}

TEST_F(exchange, after_the_end)
{
	struct memory other;
	char *untouched = NULL;

	ASSERT_EQ(0, map(self->fd, self->m.offset, self->length, PROT_READ,
			 MAP_SHARED, &untouched));
	self->m.at[0] = 1;
	ASSERT_EQ(0, region_unregister(self->fd, self->m.r.handle));
	EXPECT_EQ(SIGBUS, touch(self->m.at, LOAD));
	EXPECT_EQ(SIGBUS, touch(self->m.at, STORE));
	EXPECT_EQ(SIGBUS, touch(untouched, LOAD));
	EXPECT_EQ(-EINVAL, memory_map(self->fd, &self->m));
	/* New memory does not appear there, and is zero. */
	ASSERT_EQ(0, memory_create(self->fd, self->length, &other));
	EXPECT_EQ(SIGBUS, touch(self->m.at, LOAD));
	ASSERT_EQ(0, memory_map(self->fd, &other));
	EXPECT_TRUE(all_zero(other.at, self->length));
	/* All regions at once. */
	ASSERT_EQ(0, memory_create(self->fd, self->length, &other));
	EXPECT_EQ(0, region_cleanup(self->fd));
	EXPECT_EQ(0, query(self->fd).out_user_pages);
	EXPECT_EQ(0, vm_pin());
}

static int store_and_die(void *data)
{
	struct memory m;
	int fd = uldma_open(0);

	if (fd < 0 || memory_create(fd, 64 * page_size(), &m) ||
	    memory_map(fd, &m))
		return -EPROTO;
	memset(m.at, 1, m.r.length);
	raise(SIGKILL);
	return 0;
}

TEST_F(exchange, kill)
{
	__u32 pages = query(self->fd).out_pages;

	EXPECT_EQ(SIGKILL, in_child(store_and_die, NULL));
	EXPECT_EQ(pages, query(self->fd).out_pages);
}

TEST_HARNESS_MAIN
