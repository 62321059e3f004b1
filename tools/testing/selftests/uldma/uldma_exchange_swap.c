// SPDX-License-Identifier: GPL-2.0
/*
 * The exchange of pages: what is in them changes places, for the program and for
 * the device, and the number of pages stays.
 */
#include <pthread.h>

#include "uldma_harness.h"
#include "uldma_exchange.h"

#define PAGES 8
#define SEED 0x737761UL

FIXTURE(swap) {
	int fd;
	size_t page;
	size_t length;
	bool engine;
	/* Of the program. */
	struct memory m;
	struct memory slots;
};

FIXTURE_SETUP(swap)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->page = page_size();
	self->length = PAGES * self->page;
	self->engine = query(self->fd).out_backend == ULDMA_BACKEND_ADAPTER;
	ASSERT_EQ(0, memories_make(self->fd, self->length, &self->m,
				   &self->slots));
	pattern_fill(self->m.at, self->length, SEED);
	pattern_fill(self->slots.at, self->length, SEED + 1);
}

FIXTURE_TEARDOWN(swap)
{
	close(self->fd);
}

TEST_F(swap, arguments)
{
	__u64 page = self->page, length = self->length;
	struct memory *m = &self->m, *s = &self->slots;
	struct memory none = { .r.handle = 77 }, other;
	struct uldma_exchange_swap arg = {
		.size = sizeof(arg),
		.flags = 1,
		.handle = m->r.handle,
		.other = s->r.handle,
		.length = page,
	};
	char *buf = buffer(page);

	EXPECT_EQ(-EINVAL, memory_swap(self->fd, m, 0, s, 0, 0));
	EXPECT_EQ(-EINVAL, memory_swap(self->fd, m, 0, s, 0, page - 1));
	EXPECT_EQ(-EINVAL, memory_swap(self->fd, m, 8, s, 0, page));
	EXPECT_EQ(-EINVAL, memory_swap(self->fd, m, 0, s, 8, page));
	EXPECT_EQ(-EINVAL, memory_swap(self->fd, m, 0, s, page, length));
	EXPECT_EQ(-EINVAL, memory_swap(self->fd, m, page, s, 0, length));
	EXPECT_EQ(-EINVAL, memory_swap(self->fd, m, -page, s, 0, 2 * page));
	EXPECT_EQ(-EINVAL, memory_swap(self->fd, m, 0, m, page, 2 * page));
	EXPECT_EQ(-EINVAL, memory_swap(self->fd, m, 0, m, 0, page));
	EXPECT_EQ(-ENOENT, memory_swap(self->fd, m, 0, &none, 0, page));
	EXPECT_EQ(-ENOENT, memory_swap(self->fd, &none, 0, m, 0, page));
	EXPECT_EQ(-EOPNOTSUPP,
		  uldma_ioctl(self->fd, ULDMA_IOC_EXCHANGE_SWAP, &arg));
	ASSERT_NE(NULL, buf);
	ASSERT_EQ(0, region_register(self->fd, buf, page, RW, &other.r));
	EXPECT_EQ(-ENOENT, memory_swap(self->fd, m, 0, &other, 0, page));
	EXPECT_EQ(-1, pattern_check(m->at, length, SEED));
	EXPECT_EQ(-1, pattern_check(s->at, length, SEED + 1));
}

TEST_F(swap, contents)
{
	struct uldma_block m[PAGES], s[PAGES], after[PAGES];
	char *unmapped = NULL;

	ASSERT_EQ(0, memory_frames(self->fd, &self->m, m, PAGES));
	ASSERT_EQ(0, memory_frames(self->fd, &self->slots, s, PAGES));
	ASSERT_EQ(0, memory_swap(self->fd, &self->m, 0, &self->slots, 0,
				 self->length));
	EXPECT_EQ(-1, pattern_check(self->m.at, self->length, SEED + 1));
	EXPECT_EQ(-1, pattern_check(self->slots.at, self->length, SEED));
	/* Nothing was copied. */
	ASSERT_EQ(0, memory_frames(self->fd, &self->m, after, PAGES));
	EXPECT_EQ(0, memcmp(after, s, sizeof(s)));
	ASSERT_EQ(0, memory_frames(self->fd, &self->slots, after, PAGES));
	EXPECT_EQ(0, memcmp(after, m, sizeof(m)));
	/* By all mappings. */
	ASSERT_EQ(0, map(self->fd, self->m.offset, self->length, PROT_READ,
			 MAP_SHARED, &unmapped));
	EXPECT_EQ(-1, pattern_check(unmapped, self->length, SEED + 1));
	ASSERT_EQ(0, memory_swap(self->fd, &self->slots, 0, &self->m, 0,
				 self->length));
	EXPECT_EQ(-1, pattern_check(unmapped, self->length, SEED));
	EXPECT_EQ(-1, pattern_check(self->m.at, self->length, SEED));
	EXPECT_EQ(-1, pattern_check(self->slots.at, self->length, SEED + 1));
}

TEST_F(swap, parts)
{
	char *all = buffer(self->length);
	size_t page = self->page;

	ASSERT_NE(NULL, all);
	memcpy(all, self->m.at, self->length);
	/* In one memory, beside each other. */
	ASSERT_EQ(0, memory_swap(self->fd, &self->m, page, &self->m, 3 * page,
				 2 * page));
	EXPECT_EQ(0, memcmp(self->m.at, all, page));
	EXPECT_EQ(0, memcmp(self->m.at + page, all + 3 * page, 2 * page));
	EXPECT_EQ(0, memcmp(self->m.at + 3 * page, all + page, 2 * page));
	EXPECT_EQ(0, memcmp(self->m.at + 5 * page, all + 5 * page, 3 * page));
	/* The last page of one with the first of another. */
	ASSERT_EQ(0, memory_swap(self->fd, &self->m, 7 * page, &self->slots, 0,
				 page));
	EXPECT_EQ(0, memcmp(self->slots.at, all + 7 * page, page));
	EXPECT_EQ(-1, pattern_check(self->m.at + 7 * page, page, SEED + 1));
}

/* The device writes to the page that the program gave. */
TEST_F(swap, device)
{
	struct memory *m = &self->m, *s = &self->slots;
	struct memory from;
	int i;

	if (!self->engine)
		SKIP(return, "the device has no engine");
	ASSERT_EQ(0, memory_create(self->fd, self->length, &from));
	ASSERT_EQ(0, memory_map(self->fd, &from));
	for (i = 0; i < 20; i++) {
		pattern_fill(from.at, self->length, i);
		ASSERT_EQ(0, transfer(self->fd, BY_KERNEL, &s->r, 0, &from.r, 0,
				      self->length));
		/* What came before is not overwritten by what arrives. */
		EXPECT_EQ(-1, pattern_check(m->at, self->length,
					    i ? i - 1 : SEED));
		ASSERT_EQ(0, memory_swap(self->fd, m, 0, s, 0, self->length));
		EXPECT_EQ(-1, pattern_check(m->at, self->length, i));
	}
	/* And reads what the program got. */
	m->at[0] ^= 1;
	ASSERT_EQ(0, transfer(self->fd, BY_KERNEL, &from.r, 0, &m->r, 0,
			      self->length));
	EXPECT_EQ(0, memcmp(from.at, m->at, self->length));
}

TEST_F(swap, not_while_it_is_sent)
{
	struct memory *m = &self->m, *s = &self->slots;
	size_t page = self->page;

	ASSERT_EQ(0, memory_protect(self->fd, m, 2 * page, 1));
	EXPECT_EQ(-EBUSY, memory_swap(self->fd, m, 0, s, 0, self->length));
	EXPECT_EQ(-EBUSY, memory_swap(self->fd, s, 0, m, 0, self->length));
	m->at[2 * page] ^= 1;
	EXPECT_EQ(-EBUSY, memory_swap(self->fd, m, 2 * page, s, 0, page));
	m->at[2 * page] ^= 1;
	/* Nothing has changed, and what is beside it may be exchanged. */
	EXPECT_EQ(-1, pattern_check(m->at, self->length, SEED));
	EXPECT_EQ(-1, pattern_check(s->at, self->length, SEED + 1));
	EXPECT_EQ(0, memory_swap(self->fd, m, 0, s, 0, 2 * page));
	EXPECT_EQ(0, memory_swap(self->fd, m, 0, s, 0, 2 * page));
	EXPECT_EQ(1, memory_release(self->fd, m, 2 * page, 1));
	ASSERT_EQ(0, memory_swap(self->fd, m, 0, s, 0, self->length));
	EXPECT_EQ(-1, pattern_check(m->at, self->length, SEED + 1));
	EXPECT_EQ(-1, pattern_check(s->at, self->length, SEED));
}

/* A page that was exchanged is protected as any other. */
TEST_F(swap, then_send)
{
	struct memory *m = &self->m, *s = &self->slots;

	ASSERT_EQ(0, memory_swap(self->fd, m, 0, s, 0, self->length));
	ASSERT_EQ(0, memory_protect(self->fd, m, 0, self->length));
	m->at[0] ^= 1;
	if (self->engine) {
		ASSERT_EQ(0, transfer(self->fd, BY_KERNEL, &s->r, 0, &m->r, 0,
				      self->length));
		EXPECT_EQ(-1, pattern_check(s->at, self->length, SEED + 1));
	}
	EXPECT_EQ(1, memory_release(self->fd, m, 0, self->length));
	m->at[0] ^= 1;
	EXPECT_EQ(-1, pattern_check(m->at, self->length, SEED + 1));
}

struct reader {
	pthread_t thread;
	char *at;
	bool *stop;
	/* Words that were in neither of the pages. */
	__u64 wrong;
	__u64 loads;
};

/* All words of a page are the same, and of pages that meet differ by PAGES. */
static void *read_words(void *arg)
{
	struct reader *r = arg;
	size_t page = page_size();
	unsigned int x = 1;

	while (!READ_ONCE(*r->stop)) {
		size_t i, word;
		__u64 got;

		x = x * 1103515245 + 12345;
		i = (x >> 16) % PAGES;
		word = (x >> 20) % (page / sizeof(got));
		got = READ_ONCE(((__u64 *)(r->at + i * page))[word]);
		r->wrong += got % PAGES != i;
		/* The same again, which has to go to a page that is mapped. */
		WRITE_ONCE(((__u64 *)(r->at + i * page))[word], i);
		r->loads++;
	}
	return NULL;
}

static void fill_words(struct memory *m, size_t page, __u64 add)
{
	size_t i, word;

	for (i = 0; i < PAGES; i++)
		for (word = 0; word < page / sizeof(__u64); word++)
			((__u64 *)(m->at + i * page))[word] = i + add;
}

/* Each access sees one of the two pages. */
TEST_F(swap, threads_meanwhile)
{
	struct reader readers[3] = { };
	bool stop = false;
	size_t i;

	fill_words(&self->m, self->page, 0);
	fill_words(&self->slots, self->page, PAGES);
	for (i = 0; i < 3; i++) {
		readers[i].at = i ? self->m.at : self->slots.at;
		readers[i].stop = &stop;
		ASSERT_EQ(0, pthread_create(&readers[i].thread, NULL,
					    read_words, &readers[i]));
	}
	for (i = 0; i < 1000; i++)
		EXPECT_EQ(0, memory_swap(self->fd, &self->m, 0, &self->slots,
					 0, self->length));
	WRITE_ONCE(stop, true);
	for (i = 0; i < 3; i++) {
		pthread_join(readers[i].thread, NULL);
		EXPECT_EQ(0, readers[i].wrong);
		EXPECT_LT(0, readers[i].loads);
	}
}

struct disturber {
	pthread_t thread;
	int fd;
	struct memory *m;
	bool stop;
};

/* Unmaps and maps again what is being exchanged. */
static void *unmap_and_map(void *arg)
{
	struct disturber *d = arg;
	size_t page = page_size();

	while (!READ_ONCE(d->stop)) {
		char *at = d->m->at + page;

		if (munmap(at, page) ||
		    mmap(at, page, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_FIXED, d->fd,
			 d->m->offset + page) != at)
			return (void *)1;
		WRITE_ONCE(*(__u64 *)at, 0);
	}
	return NULL;
}

TEST_F(swap, unmapped_meanwhile)
{
	struct disturber d = { .fd = self->fd, .m = &self->m };
	void *failed;
	int i;

	ASSERT_EQ(0, pthread_create(&d.thread, NULL, unmap_and_map, &d));
	for (i = 0; i < 1000; i++)
		EXPECT_EQ(0, memory_swap(self->fd, &self->m, 0, &self->slots,
					 0, self->length));
	WRITE_ONCE(d.stop, true);
	pthread_join(d.thread, &failed);
	EXPECT_EQ(NULL, failed);
	/* Where nothing stored, pages are as they were. */
	EXPECT_EQ(-1, pattern_check(self->m.at, self->page, SEED));
	EXPECT_EQ(-1, pattern_check(self->slots.at, self->page, SEED + 1));
}

/* Ends the memory that is being exchanged, and makes new one. */
static void *end_and_create(void *arg)
{
	struct disturber *d = arg;
	__u32 handle = d->m->r.handle;
	struct memory m;

	while (!READ_ONCE(d->stop)) {
		if (region_unregister(d->fd, handle) ||
		    memory_create(d->fd, d->m->r.length, &m))
			return (void *)1;
		WRITE_ONCE(handle, m.r.handle);
		WRITE_ONCE(d->m->r.handle, handle);
	}
	return NULL;
}

TEST_F(swap, ends_meanwhile)
{
	struct disturber d = { .fd = self->fd, .m = &self->slots };
	__u32 pages = query(self->fd).out_pages;
	int i, ret, done = 0;
	void *failed;

	ASSERT_EQ(0, pthread_create(&d.thread, NULL, end_and_create, &d));
	for (i = 0; i < 1000; i++) {
		ret = memory_swap(self->fd, &self->m, 0, &self->slots, 0,
				  self->length);
		EXPECT_TRUE(!ret || ret == -ENOENT);
		done += !ret;
	}
	WRITE_ONCE(d.stop, true);
	pthread_join(d.thread, &failed);
	EXPECT_EQ(NULL, failed);
	EXPECT_EQ(pages, query(self->fd).out_pages);
	TH_LOG("%d of %d exchanges met memory", done, i);
}

static int swap_and_die(void *data)
{
	int *ready = data;
	int fd = uldma_open(0);
	struct memory m, s;

	if (fd < 0 || memory_create(fd, PAGES * page_size(), &m) ||
	    memory_map(fd, &m) ||
	    memory_create(fd, PAGES * page_size(), &s))
		return -EPROTO;
	if (write(*ready, "x", 1) != 1)
		return -EIO;
	for (;;) {
		memset(m.at, 1, m.r.length);
		if (memory_swap(fd, &m, 0, &s, 0, m.r.length))
			return -EPROTO;
	}
}

TEST_F(swap, kill)
{
	__u32 pages = query(self->fd).out_pages;
	char byte;
	int i;

	for (i = 0; i < 20; i++) {
		int fds[2], status;
		pid_t pid;

		ASSERT_EQ(0, pipe(fds));
		pid = fork();
		ASSERT_LE(0, pid);
		if (!pid) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			_exit(-swap_and_die(&fds[1]));
		}
		close(fds[1]);
		/* It is in the middle of exchanging, or soon will be. */
		EXPECT_EQ(1, read(fds[0], &byte, 1));
		sched_yield();
		kill(pid, SIGKILL);
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		EXPECT_TRUE(WIFSIGNALED(status));
		close(fds[0]);
	}
	EXPECT_EQ(pages, query(self->fd).out_pages);
}

static int swap_in_child(void *data)
{
	struct _test_data_swap *self = data;

	return memory_swap(self->fd, &self->m, 0, &self->slots, 0, self->page);
}

TEST_F(swap, not_by_a_child)
{
	EXPECT_EQ(-EPERM, in_child(swap_in_child, self));
	EXPECT_EQ(-1, pattern_check(self->m.at, self->length, SEED));
}

TEST_HARNESS_MAIN
