// SPDX-License-Identifier: GPL-2.0
/*
 * Sends from exchangeable memory that is written meanwhile. A send lasts from
 * PROTECT to RELEASE, so a transfer that starts in between, after the write, shows
 * what one reads that is in progress at the time of the write.
 */
#include <pthread.h>

#include "uldma_harness.h"
#include "uldma_exchange.h"

#define PAGES 8
#define SEED 0x73656eUL

FIXTURE(send) {
	int fd;
	size_t page;
	size_t length;
	struct memory m;
	/* Where transfers go to. */
	struct memory to;
};

FIXTURE_SETUP(send)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->page = page_size();
	self->length = PAGES * self->page;
	ASSERT_EQ(0, memories_make(self->fd, self->length, &self->m,
				   &self->to));
	pattern_fill(self->m.at, self->length, SEED);
}

FIXTURE_TEARDOWN(send)
{
	close(self->fd);
}

/* Transfers all: 0 if the peer would get the pattern, 1 if it would not. */
static int peer_gets(struct _test_data_send *self, __u64 seed)
{
	int ret = transfer(self->fd, BY_KERNEL, &self->to.r, 0, &self->m.r, 0,
			   self->length);

	return ret ?: pattern_check(self->to.at, self->length, seed) != -1;
}

static int frames(struct _test_data_send *self, struct uldma_block *blocks)
{
	return memory_frames(self->fd, &self->m, blocks, PAGES);
}

TEST_F(send, arguments)
{
	__u64 length = self->length;
	struct memory none = { .r.handle = 77 };
	struct uldma_exchange_range part = {
		.size = sizeof(part),
		.handle = self->m.r.handle,
		.length = 1,
		.flags = 1,
	};
	struct memory other;
	char *buf = buffer(self->page);

	EXPECT_EQ(-EINVAL, memory_protect(self->fd, &self->m, 0, 0));
	EXPECT_EQ(-EINVAL, memory_protect(self->fd, &self->m, 0, length + 1));
	EXPECT_EQ(-EINVAL, memory_protect(self->fd, &self->m, length, 1));
	EXPECT_EQ(-EINVAL, memory_protect(self->fd, &self->m, ~0ULL, 2));
	EXPECT_EQ(-ENOENT, memory_protect(self->fd, &none, 0, 1));
	EXPECT_EQ(-EINVAL, memory_release(self->fd, &self->m, 0, 1));
	EXPECT_EQ(-EOPNOTSUPP,
		  uldma_ioctl(self->fd, ULDMA_IOC_EXCHANGE_PROTECT, &part));
	EXPECT_EQ(-EOPNOTSUPP,
		  uldma_ioctl(self->fd, ULDMA_IOC_EXCHANGE_RELEASE, &part));
	/* Other memory is no such memory. */
	ASSERT_NE(NULL, buf);
	ASSERT_EQ(0, region_register(self->fd, buf, self->page, RW, &other.r));
	EXPECT_EQ(-ENOENT, memory_protect(self->fd, &other, 0, 1));
	EXPECT_EQ(-ENOENT, memory_release(self->fd, &other, 0, 1));
	/* Part of the pages is not being sent: nothing is released. */
	ASSERT_EQ(0, memory_protect(self->fd, &self->m, 0, 1));
	EXPECT_EQ(-EINVAL, memory_release(self->fd, &self->m, 0, length));
	EXPECT_EQ(0, memory_release(self->fd, &self->m, 0, 1));
	EXPECT_EQ(-EINVAL, memory_release(self->fd, &self->m, 0, 1));
}

TEST_F(send, clean)
{
	struct uldma_block before[PAGES], after[PAGES];
	struct uldma_exchange_range part;

	ASSERT_EQ(0, frames(self, before));
	ASSERT_EQ(0, memory_protect(self->fd, &self->m, 0, self->length));
	/* Reading copies nothing. */
	EXPECT_EQ(-1, pattern_check(self->m.at, self->length, SEED));
	EXPECT_EQ(0, peer_gets(self, SEED));
	ASSERT_EQ(0, memory_part(self->fd, ULDMA_IOC_EXCHANGE_RELEASE, &self->m,
				 0, self->length, &part));
	EXPECT_EQ(PAGES, part.out_pages);
	EXPECT_EQ(0, part.out_copied);
	ASSERT_EQ(0, frames(self, after));
	EXPECT_EQ(0, memcmp(before, after, sizeof(before)));
	pattern_fill(self->m.at, self->length, SEED + 1);
	EXPECT_EQ(0, peer_gets(self, SEED + 1));
}

TEST_F(send, copied)
{
	struct uldma_block before[PAGES], after[PAGES];
	size_t i;

	ASSERT_EQ(0, frames(self, before));
	ASSERT_EQ(0, memory_protect(self->fd, &self->m, 0, self->length));
	pattern_fill(self->m.at, 3 * self->page, SEED + 1);
	EXPECT_EQ(-1, pattern_check(self->m.at, 3 * self->page, SEED + 1));
	EXPECT_EQ(0, peer_gets(self, SEED));
	ASSERT_EQ(0, frames(self, after));
	EXPECT_EQ(0, memcmp(before, after, sizeof(before)));
	EXPECT_EQ(3, memory_release(self->fd, &self->m, 0, self->length));
	/* The copies are what the device reads, and the rest has not moved. */
	ASSERT_EQ(0, frames(self, after));
	for (i = 0; i < PAGES; i++)
		EXPECT_EQ(i >= 3, before[i].address == after[i].address);
	pattern_fill(self->m.at + 3 * self->page, self->length - 3 * self->page,
		     SEED);
	pattern_fill(self->m.at, self->length, SEED + 1);
	EXPECT_EQ(0, peer_gets(self, SEED + 1));
}

TEST_F_TIMEOUT(send, each_offset, 300)
{
	size_t i;

	for (i = 0; i < self->page; i++) {
		char old = self->m.at[i];

		ASSERT_EQ(0, memory_protect(self->fd, &self->m, i, 1));
		self->m.at[i] = ~old;
		ASSERT_EQ(0, peer_gets(self, SEED));
		ASSERT_EQ(1, memory_release(self->fd, &self->m, i, 1));
		ASSERT_EQ((char)~old, self->m.at[i]);
		self->m.at[i] = old;
		ASSERT_EQ(0, peer_gets(self, SEED));
	}
}

/* Writes fault by page only where each copies one. */
TEST_F(send, faults)
{
	size_t length = 16 * BLOCK, pages = length / self->page;
	struct memory m;
	char *block;
	long count;

	ASSERT_EQ(0, memory_create(self->fd, length, &m));
	ASSERT_EQ(0, memory_map(self->fd, &m));
	ASSERT_EQ(0, memory_protect(self->fd, &m, 0, length));
	EXPECT_GE(17, faults_of(m.at, length, LOAD));
	EXPECT_EQ(0, memory_release(self->fd, &m, 0, length));
	/* All are mapped for reading. */
	count = faults_of(m.at, length, STORE);
	EXPECT_LE(16, count);
	EXPECT_GE(17, count);
	/* The write to one does not map what the next write has to copy. */
	ASSERT_EQ(0, memory_protect(self->fd, &m, 0, length));
	block = m.at + -(uintptr_t)m.at % BLOCK;
	EXPECT_EQ(1, faults_of(block, self->page, STORE));
	EXPECT_EQ(1, faults_of(block + self->page, self->page, LOAD));
	faults_of(m.at, length, STORE);
	EXPECT_EQ(pages, memory_release(self->fd, &m, 0, length));
	EXPECT_EQ(0, faults_of(m.at, length, STORE));
}

/* A few bytes are sent of pages with other data. */
TEST_F(send, unaligned)
{
	size_t at = self->page - 10;

	ASSERT_EQ(0, memory_protect(self->fd, &self->m, at, 20));
	/* Unrelated, but in one of the two pages. */
	self->m.at[0] ^= 1;
	self->m.at[2 * self->page - 1] ^= 1;
	self->m.at[2 * self->page] ^= 1;
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &self->to.r, at, &self->m.r,
			      at, 20));
	EXPECT_EQ(0, memcmp(self->to.at + at, self->m.at + at, 20));
	EXPECT_EQ(2, memory_release(self->fd, &self->m, at, 20));
	self->m.at[0] ^= 1;
	self->m.at[2 * self->page - 1] ^= 1;
	self->m.at[2 * self->page] ^= 1;
	EXPECT_EQ(-1, pattern_check(self->m.at, self->length, SEED));
	EXPECT_EQ(0, peer_gets(self, SEED));
}

TEST_F(send, overlapping)
{
	ASSERT_EQ(0, memory_protect(self->fd, &self->m, 0, 2 * self->page));
	ASSERT_EQ(0, memory_protect(self->fd, &self->m, self->page, 1));
	EXPECT_EQ(0, memory_release(self->fd, &self->m, 0, 2 * self->page));
	/* The second page is still being sent. */
	self->m.at[self->page] ^= 1;
	EXPECT_EQ(0, peer_gets(self, SEED));
	/* Its copy cannot be sent yet, and what is beside it is not protected. */
	EXPECT_EQ(-EBUSY, memory_protect(self->fd, &self->m, 0,
					 2 * self->page));
	EXPECT_EQ(-EINVAL, memory_release(self->fd, &self->m, 0, 1));
	EXPECT_EQ(1, memory_release(self->fd, &self->m, self->page, 1));
	ASSERT_EQ(0, memory_protect(self->fd, &self->m, 0, 2 * self->page));
	EXPECT_EQ(0, memory_release(self->fd, &self->m, 0, 2 * self->page));
}

TEST_F(send, charges)
{
	long before = vm_pin();

	ASSERT_EQ(0, set_memlock((before + 3) * self->page));
	ASSERT_EQ(0, drop_privileges());
	EXPECT_EQ(-ENOMEM, memory_protect(self->fd, &self->m, 0, self->length));
	EXPECT_EQ(before, vm_pin());
	ASSERT_EQ(0, memory_protect(self->fd, &self->m, 0, 3 * self->page));
	ASSERT_EQ(0, memory_protect(self->fd, &self->m, 0, 3 * self->page));
	EXPECT_EQ(before + 3, vm_pin());
	self->m.at[0] ^= 1;
	EXPECT_EQ(before + 3, vm_pin());
	EXPECT_EQ(0, memory_release(self->fd, &self->m, 0, 3 * self->page));
	EXPECT_EQ(before + 3, vm_pin());
	EXPECT_EQ(1, memory_release(self->fd, &self->m, 0, 3 * self->page));
	EXPECT_EQ(before, vm_pin());
}

/* Other ways to write than by the mapping that is known to be protected. */
TEST_F(send, all_writers)
{
	char *alias = NULL;
	int fds[2];

	ASSERT_EQ(0, map(self->fd, self->m.offset, self->length,
			 PROT_READ | PROT_WRITE, MAP_SHARED, &alias));
	alias[0] ^= 0;
	ASSERT_EQ(0, pipe(fds));
	ASSERT_EQ(0, memory_protect(self->fd, &self->m, 0, self->length));
	/* The kernel's, after a read that mapped the page for reading. */
	EXPECT_EQ(0, touch(self->m.at, LOAD));
	ASSERT_EQ(1, write(fds[1], "x", 1));
	EXPECT_EQ(1, read(fds[0], self->m.at, 1));
	EXPECT_EQ('x', alias[0]);
	/* An alias, and the first mapping shows it. */
	EXPECT_EQ(0, touch(self->m.at + self->page, LOAD));
	alias[self->page] ^= 1;
	EXPECT_EQ(alias[self->page], self->m.at[self->page]);
	/* Rights that went and came. */
	EXPECT_EQ(0, touch(self->m.at + 2 * self->page, LOAD));
	ASSERT_EQ(0, mprotect(self->m.at, self->length, PROT_READ));
	ASSERT_EQ(0, mprotect(self->m.at, self->length,
			      PROT_READ | PROT_WRITE));
	self->m.at[2 * self->page] ^= 1;
	/* A mapping that moved. */
	alias = mremap(self->m.at + 3 * self->page, self->page, self->page,
		       MREMAP_MAYMOVE | MREMAP_FIXED,
		       alias + 3 * self->page);
	ASSERT_NE(MAP_FAILED, alias);
	alias[0] ^= 1;
	EXPECT_EQ(0, peer_gets(self, SEED));
	EXPECT_EQ(4, memory_release(self->fd, &self->m, 0, self->length));
	EXPECT_EQ('x', self->m.at[0]);
}

TEST_F(send, unmapped_meanwhile)
{
	ASSERT_EQ(0, memory_protect(self->fd, &self->m, 0, self->length));
	self->m.at[0] ^= 1;
	ASSERT_EQ(0, munmap(self->m.at, self->length));
	EXPECT_EQ(0, peer_gets(self, SEED));
	EXPECT_EQ(1, memory_release(self->fd, &self->m, 0, self->length));
	ASSERT_EQ(0, memory_map(self->fd, &self->m));
	self->m.at[0] ^= 1;
	EXPECT_EQ(-1, pattern_check(self->m.at, self->length, SEED));
}

TEST_F(send, ends_with_the_memory)
{
	long before = vm_pin();
	__u32 pages = query(self->fd).out_pages;

	ASSERT_EQ(0, memory_protect(self->fd, &self->m, 0, self->length));
	self->m.at[0] ^= 1;
	ASSERT_EQ(0, region_unregister(self->fd, self->m.r.handle));
	EXPECT_EQ(SIGBUS, touch(self->m.at, LOAD));
	EXPECT_EQ(before - PAGES, vm_pin());
	EXPECT_EQ(pages - PAGES, query(self->fd).out_pages);
	EXPECT_EQ(-ENOENT, memory_release(self->fd, &self->m, 0, self->length));
}

static int protect_and_die(void *data)
{
	struct memory m;
	int fd = uldma_open(0);

	if (fd < 0 || memory_create(fd, PAGES * page_size(), &m) ||
	    memory_map(fd, &m) || memory_protect(fd, &m, 0, m.r.length))
		return -EPROTO;
	memset(m.at, 1, m.r.length / 2);
	raise(SIGKILL);
	return 0;
}

TEST_F(send, kill)
{
	__u32 pages = query(self->fd).out_pages;

	EXPECT_EQ(SIGKILL, in_child(protect_and_die, NULL));
	EXPECT_EQ(pages, query(self->fd).out_pages);
}

#define WRITERS 3

struct writer {
	pthread_t thread;
	struct memory *m;
	size_t word;
	__u64 count;
	bool *stop;
};

/* Counts in each page, at a place of its own. */
static void *count_up(void *arg)
{
	struct writer *w = arg;
	size_t i;

	while (!READ_ONCE(*w->stop)) {
		w->count++;
		for (i = 0; i < PAGES; i++) {
			char *page = w->m->at + i * page_size();

			WRITE_ONCE(((__u64 *)page)[w->word], w->count);
		}
	}
	return NULL;
}

/* While threads write, the engine reads one state, and no write is lost. */
TEST_F(send, writing_threads)
{
	struct writer writers[WRITERS] = { };
	struct memory again;
	bool stop = false;
	int i, j;

	ASSERT_EQ(0, memory_create(self->fd, self->length, &again));
	ASSERT_EQ(0, memory_map(self->fd, &again));
	for (i = 0; i < WRITERS; i++) {
		writers[i].m = &self->m;
		writers[i].word = 17 * i;
		writers[i].stop = &stop;
		ASSERT_EQ(0, pthread_create(&writers[i].thread, NULL, count_up,
					    &writers[i]));
	}
	for (i = 0; i < 300; i++) {
		EXPECT_EQ(0, memory_protect(self->fd, &self->m, 0,
					    self->length));
		EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &self->to.r, 0,
				      &self->m.r, 0, self->length));
		EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &again.r, 0,
				      &self->m.r, 0, self->length));
		EXPECT_LE(0, memory_release(self->fd, &self->m, 0,
					    self->length));
		EXPECT_EQ(0, memcmp(self->to.at, again.at, self->length));
	}
	WRITE_ONCE(stop, true);
	for (i = 0; i < WRITERS; i++) {
		pthread_join(writers[i].thread, NULL);
		for (j = 0; j < PAGES; j++) {
			char *page = self->m.at + j * self->page;

			EXPECT_EQ(writers[i].count,
				  ((__u64 *)page)[writers[i].word]);
		}
	}
}

TEST_HARNESS_MAIN
