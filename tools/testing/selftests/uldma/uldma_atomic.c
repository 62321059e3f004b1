// SPDX-License-Identifier: GPL-2.0
/*
 * A load from a shadow address that adds one to the word behind it, and returns
 * what the word was.
 */
#include <pthread.h>

#include "uldma_harness.h"
#include "uldma_method.h"

#define THREADS 4
#define ADDS 500
#define IMPOSSIBLE (~0ULL)

FIXTURE(atomic) {
	int fd;
	__u64 *words;
	char *model;
	struct region r;
	struct context c;
};

FIXTURE_SETUP(atomic)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->words = buffer(2 * page_size());
	self->model = buffer(2 * page_size());
	ASSERT_NE(NULL, self->words);
	ASSERT_NE(NULL, self->model);
	pattern_fill(self->words, 2 * page_size(), 1);
	memcpy(self->model, self->words, 2 * page_size());
	ASSERT_EQ(0, region_register(self->fd, self->words, 2 * page_size(),
				     RW, &self->r));
	ASSERT_EQ(0, context_create_as(self->fd, ULDMA_METHOD_FETCH_ADD, 0,
				       &self->c));
	ASSERT_EQ(0, context_map(self->fd, &self->c));
	ASSERT_EQ(0, region_map(self->fd, &self->r, PROT_READ | PROT_WRITE));
}

FIXTURE_TEARDOWN(atomic)
{
	close(self->fd);
}

static __u64 fetch_add(const struct region *r, size_t at)
{
	return device_load(shadow_of(r, at));
}

TEST_F(atomic, adds_one)
{
	for (size_t at = 0; at < 2 * page_size(); at += 504) {
		__u64 *word = &self->words[at / 8];
		__u64 was = *word;

		for (int i = 0; i < 3; i++)
			EXPECT_EQ(was + i, fetch_add(&self->r, at));
		EXPECT_EQ(was + 3, READ_ONCE(*word));
		*(__u64 *)(self->model + at) += 3;
	}
	EXPECT_EQ(0, memcmp(self->model, self->words, 2 * page_size()));
}

TEST_F(atomic, wraps_around)
{
	self->words[0] = ~0ULL - 1;
	EXPECT_EQ(~0ULL - 1, fetch_add(&self->r, 0));
	EXPECT_EQ(~0ULL, fetch_add(&self->r, 0));
	EXPECT_EQ(0, READ_ONCE(self->words[0]));
	EXPECT_EQ(0, fetch_add(&self->r, 0));
	EXPECT_EQ(1, READ_ONCE(self->words[0]));
}

struct worker {
	pthread_t thread;
	const struct region *r;
	char *seen;
};

static void *add(void *arg)
{
	struct worker *w = arg;

	for (int i = 0; i < ADDS; i++) {
		__u64 was = fetch_add(w->r, 8);

		if (was < THREADS * ADDS)
			w->seen[was]++;
	}
	return NULL;
}

/* With one context; each number belongs to exactly one process. */
TEST_F(atomic, threads)
{
	struct worker workers[THREADS];
	char *seen = calloc(1, THREADS * ADDS);

	ASSERT_NE(NULL, seen);
	self->words[1] = 0;
	for (int i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){ 0, &self->r, seen };
		ASSERT_EQ(0, pthread_create(&workers[i].thread, NULL, add,
					    &workers[i]));
	}
	for (int i = 0; i < THREADS; i++)
		ASSERT_EQ(0, pthread_join(workers[i].thread, NULL));
	EXPECT_EQ(THREADS * ADDS, READ_ONCE(self->words[1]));
	for (int i = 0; i < THREADS * ADDS; i++) {
		ASSERT_EQ(1, seen[i])
			TH_LOG("number %d", i);
	}
	*(__u64 *)(self->model + 8) = THREADS * ADDS;
	EXPECT_EQ(0, memcmp(self->model, self->words, 2 * page_size()));
	EXPECT_EQ(THREADS * ADDS, context_stats(self->fd).out_shadow_loads);
	free(seen);
}

/* Of memory that nothing pins, a load never waits for the page: it fails. */
TEST_F(atomic, words_that_are_not_there)
{
	size_t page = page_size();
	struct region r;
	__u64 *at, was;

	at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, at);
	ASSERT_EQ(0, madvise(at, 2 * page, MADV_NOHUGEPAGE));
	was = region_register(self->fd, at, 2 * page,
			      RW | ULDMA_REGISTER_OPTIMISTIC, &r);
	if (was == (__u64)-EOPNOTSUPP)
		SKIP(return, "the device has no optimistic entries");
	ASSERT_EQ(0, was);
	ASSERT_EQ(0, region_map(self->fd, &r, PROT_READ | PROT_WRITE));
	EXPECT_EQ(IMPOSSIBLE, fetch_add(&r, 8));
	at[1] = 5;
	/* The driver has been told; each look counts if it finds the page. */
	for (int i = 0; i < 1000000; i++) {
		was = fetch_add(&r, 8);
		if (was != IMPOSSIBLE)
			break;
		sched_yield();
	}
	EXPECT_EQ(5, was);
	EXPECT_EQ(6, READ_ONCE(at[1]));
	EXPECT_EQ(6, fetch_add(&r, 8));
	EXPECT_EQ(IMPOSSIBLE, fetch_add(&r, page + 8));
	/* What the device adds is not lost with the page table's entry. */
	ASSERT_EQ(0, mprotect(at, page, PROT_READ));
	EXPECT_EQ(IMPOSSIBLE, fetch_add(&r, 8));
	EXPECT_EQ(7, READ_ONCE(at[1]));
}

static int add_in_child(void *arg)
{
	__u64 *word = arg;
	struct context c;
	struct region r;
	int fd = uldma_open(0);
	int ret = fd < 0 ? fd : region_register(fd, word, 8, RW, &r) ?:
		  context_create_as(fd, ULDMA_METHOD_FETCH_ADD, 0, &c) ?:
		  region_map(fd, &r, PROT_READ | PROT_WRITE);

	for (int i = 0; i < ADDS && !ret; i++)
		if (fetch_add(&r, 0) == IMPOSSIBLE)
			ret = -EIO;
	return ret;
}

/* Each with a registration and a context of its own. */
TEST(processes)
{
	__u64 *word = mmap(NULL, page_size(), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pids[THREADS];
	int status;

	ASSERT_NE(MAP_FAILED, word);
	for (int i = 0; i < THREADS; i++) {
		pids[i] = fork();
		ASSERT_LE(0, pids[i]);
		if (!pids[i])
			_exit(-add_in_child(word));
	}
	for (int i = 0; i < THREADS; i++) {
		ASSERT_EQ(pids[i], waitpid(pids[i], &status, 0));
		EXPECT_EQ(0, status);
	}
	EXPECT_EQ(THREADS * ADDS, *word);
}

TEST_F(atomic, stores_do_nothing)
{
	for (size_t at = 0; at < 512; at += 8)
		device_store(shadow_of(&self->r, at), at);
	EXPECT_EQ(0, memcmp(self->model, self->words, 2 * page_size()));
	EXPECT_EQ(64, context_stats(self->fd).out_refused);
}

TEST_F(atomic, narrow_loads_do_nothing)
{
	const volatile char *at = self->r.shadow;

	for (int i = 0; i < 32; i++) {
		(void)at[i];
		(void)*(const volatile __u16 *)(at + 2 * i);
		(void)*(const volatile __u32 *)(at + 8 * i + 4);
	}
	EXPECT_EQ(0, memcmp(self->model, self->words, 2 * page_size()));
}

/* The word is read and written, so that both rights are needed. */
TEST_F(atomic, rights)
{
	static const __u32 access[] = { ULDMA_ACCESS_READ, ULDMA_ACCESS_WRITE };
	__u64 *words = buffer(2 * page_size());
	struct region r;

	ASSERT_NE(NULL, words);
	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(0, region_register(self->fd,
					     &words[i * page_size() / 8], 8,
					     access[i], &r));
		ASSERT_EQ(0, region_map(self->fd, &r, i ? PROT_WRITE :
							  PROT_READ));
		EXPECT_EQ(IMPOSSIBLE, fetch_add(&r, 0));
		EXPECT_EQ(0, READ_ONCE(words[i * page_size() / 8]));
	}
	EXPECT_EQ(2, context_stats(self->fd).out_refused);
	EXPECT_EQ(0, context_stats(self->fd).out_initiations);
}

TEST_F(atomic, no_data)
{
	ASSERT_EQ(0, context_destroy(self->fd));
	ASSERT_EQ(0, context_create_as(self->fd, ULDMA_METHOD_FETCH_ADD,
				       ULDMA_CONTEXT_NO_DATA, &self->c));
	for (int i = 0; i < 10; i++)
		(void)fetch_add(&self->r, 0);
	EXPECT_EQ(0, memcmp(self->model, self->words, 2 * page_size()));
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
