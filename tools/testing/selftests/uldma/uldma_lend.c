// SPDX-License-Identifier: GPL-2.0
/*
 * More open files than contexts: the kernel shares the contexts in turns, and
 * no process notices.
 */
#include <pthread.h>
#include <sys/wait.h>

#include "uldma_harness.h"
#include "uldma_method.h"

#define ROUNDS 4
#define TRANSFERS 50

/* Until an open file has had a context for long enough. */
static int lend_context(struct party *p, __u32 method)
{
	struct timespec now, limit;
	int ret;

	clock_gettime(CLOCK_MONOTONIC, &limit);
	limit.tv_sec += PATIENCE / SECOND;
	do {
		ret = party_context(p, method, 0);
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (ret == -EBUSY)
			sched_yield();
	} while (ret == -EBUSY && now.tv_sec <= limit.tv_sec);
	return ret;
}

FIXTURE(lend) {
	int count;
	struct party *parties;
};

FIXTURE_VARIANT(lend) {
	__u32 method;
};

FIXTURE_VARIANT_ADD(lend, extended_shadow) {
	.method = ULDMA_METHOD_EXTENDED_SHADOW,
};

FIXTURE_VARIANT_ADD(lend, single_store) {
	.method = ULDMA_METHOD_SINGLE_STORE,
};

FIXTURE_VARIANT_ADD(lend, queue) {
	.method = ULDMA_METHOD_QUEUE,
};

FIXTURE_VARIANT_ADD(lend, repeated_5) {
	.method = ULDMA_METHOD_REPEATED_5,
};

FIXTURE_VARIANT_ADD(lend, shrimp_1) {
	.method = ULDMA_METHOD_SHRIMP_1,
};

FIXTURE_SETUP(lend)
{
	int fd = uldma_open(0);

	ASSERT_LE(0, fd);
	self->count = 2 * query(fd).out_contexts + 1;
	close(fd);
	self->parties = calloc(self->count, sizeof(*self->parties));
	ASSERT_NE(NULL, self->parties);
	for (int i = 0; i < self->count; i++)
		ASSERT_EQ(0, party_open(&self->parties[i]));
}

FIXTURE_TEARDOWN(lend)
{
	for (int i = 0; i < self->count; i++)
		close(self->parties[i].fd);
	free(self->parties);
}

/* Tickets and counters go on where they were. */
TEST_F(lend, round_robin)
{
	for (int i = 0; i < self->count; i++)
		ASSERT_EQ(0, lend_context(&self->parties[i], variant->method));
	for (int round = 1; round <= ROUNDS; round++) {
		for (int i = 0; i < self->count; i++) {
			struct party *p = &self->parties[i];

			ASSERT_EQ(0, party_works(p));
			EXPECT_EQ(round, p->c.status->completed);
		}
	}
	for (int i = 0; i < self->count; i++) {
		struct party *p = &self->parties[i];

		EXPECT_EQ(ROUNDS, context_stats(p->fd).out_initiations);
		EXPECT_EQ(ROUNDS * 512, context_stats(p->fd).out_bytes);
		EXPECT_EQ(0, p->c.status->failed);
	}
}

/* A process without registers can query its completed transfers. */
TEST_F(lend, wait_without)
{
	struct uldma_dma_wait result;
	struct party *first = self->parties;

	ASSERT_EQ(0, lend_context(first, variant->method));
	ASSERT_EQ(0, party_works(first));
	for (int i = 1; i < self->count; i++)
		ASSERT_EQ(0, lend_context(&self->parties[i], variant->method));
	ASSERT_EQ(0, dma_wait(first->fd, ULDMA_WAIT_CONTEXT, 1, 0, &result));
	EXPECT_EQ(512, result.out_bytes);
	EXPECT_EQ(ULDMA_DMA_OK, result.out_status);
	if (variant->method != ULDMA_METHOD_QUEUE)
		EXPECT_EQ(-ENOENT, dma_wait(first->fd, ULDMA_WAIT_CONTEXT, 2,
					    0, &result));
	EXPECT_EQ(1, context_stats(first->fd).out_initiations);
	ASSERT_EQ(0, party_works(first));
}

/* A context can end while its registers are lent. */
TEST_F(lend, end_without)
{
	for (int i = 0; i < self->count; i++)
		ASSERT_EQ(0, lend_context(&self->parties[i], variant->method));
	for (int i = 0; i < self->count; i++)
		ASSERT_EQ(0, party_no_context(&self->parties[i]));
	EXPECT_EQ(0, query(self->parties[0].fd).out_contexts_used);
	ASSERT_EQ(0, lend_context(&self->parties[0], variant->method));
	EXPECT_EQ(0, party_works(&self->parties[0]));
}

/* Every so often an initiation loses what it had passed, and is begun anew. */
static int lend_flat_out(__u32 method)
{
	struct party p;
	int ret = party_open(&p) ?: lend_context(&p, method);

	for (int i = 0; !ret && i < TRANSFERS; i++) {
		__u64 limit = now_ns() + PATIENCE;

		do {
			ret = party_works(&p);
		} while (ret == ULDMA_DMA_NO_ARGS && now_ns() < limit);
	}
	return ret;
}

TEST_F(lend, all_at_once)
{
	for (int i = 0; i < self->count; i++) {
		pid_t child = fork();

		ASSERT_LE(0, child);
		if (!child)
			_exit(!!lend_flat_out(variant->method));
	}
	for (int i = 0; i < self->count; i++) {
		int status;

		ASSERT_LT(0, wait(&status));
		EXPECT_EQ(0, status);
	}
}

/* A process knows the key, so its context cannot be detached. */
TEST(lend_keys_stay)
{
	struct uldma_query q;
	struct party other;
	struct party *p;
	int count;

	ASSERT_EQ(0, party_open(&other));
	q = query(other.fd);
	count = q.out_contexts - q.out_contexts_used;
	ASSERT_LT(0, count);
	p = calloc(count, sizeof(*p));
	ASSERT_NE(NULL, p);
	for (int i = 0; i < count; i++) {
		ASSERT_EQ(0, party_open(&p[i]));
		ASSERT_EQ(0, party_context(&p[i], ULDMA_METHOD_KEY, 0));
	}
	for (int i = 0; i < count; i++) {
		EXPECT_EQ(0, party_works(&p[i]));
		EXPECT_EQ(-EBUSY, party_context(&other, ULDMA_METHOD_KEY, 0));
		EXPECT_EQ(-EBUSY, party_context(&other, ULDMA_METHOD_QUEUE, 0));
	}
	for (int i = 0; i < count; i++)
		close(p[i].fd);
	free(p);
}

/* A process whose context was taken for good, by contexts that are not lent. */
FIXTURE(taken) {
	struct helper victim;
	int count;
	struct party *hostile;
};

/* Action of the victim with its page while no context is free. */
FIXTURE_VARIANT(taken) {
	int (*access)(void *page);
	/* Its result. */
	int result;
};

static int load(void *page)
{
	return touch(page, LOAD);
}

/* The kernel touches the page for the program, and holds the pipe's lock. */
static int write_to_pipe(void *page)
{
	int fds[2];

	if (pipe(fds))
		return -errno;
	return write(fds[1], page, 8) == 8 ? 0 : -errno;
}

FIXTURE_VARIANT_ADD(taken, by_program) {
	.access = load,
	.result = SIGBUS,
};

FIXTURE_VARIANT_ADD(taken, by_kernel) {
	.access = write_to_pipe,
	.result = -EFAULT,
};

struct victim {
	int (*access)(void *page);
	/* Where to read a byte once all contexts are taken. */
	int taken;
};

static void be_victim(int out, void *arg)
{
	struct victim *v = arg;
	struct party p;
	char byte;
	int ret;

	ret = party_open(&p) ?:
	      party_context(&p, ULDMA_METHOD_EXTENDED_SHADOW, 0) ?:
	      party_works(&p);
	if (write(out, &ret, sizeof(ret)) != sizeof(ret))
		_exit(1);
	if (read(v->taken, &byte, 1) != 1)
		_exit(1);
	ret = v->access(p.c.page);
	if (write(out, &ret, sizeof(ret)) != sizeof(ret))
		_exit(1);
	/* And when there is one again, all is as before. */
	do {
		ret = v->access(p.c.page);
	} while (ret);
	if (write(out, &ret, sizeof(ret)) != sizeof(ret))
		_exit(1);
}

FIXTURE_SETUP(taken)
{
	struct victim v = { .access = variant->access };
	int fd = uldma_open(0);
	int taken[2], ret = -1;

	ASSERT_LE(0, fd);
	if (geteuid())
		SKIP(return, "needs root, to take all contexts");
	ASSERT_EQ(0, pipe(taken));
	v.taken = taken[0];
	self->count = query(fd).out_contexts;
	close(fd);
	self->hostile = calloc(self->count, sizeof(*self->hostile));
	ASSERT_NE(NULL, self->hostile);
	ASSERT_EQ(0, helper_start(&self->victim, be_victim, &v));
	ASSERT_EQ(sizeof(ret), read(self->victim.fd, &ret, sizeof(ret)));
	ASSERT_EQ(0, ret);
	for (int i = 0; i < self->count; i++) {
		ASSERT_EQ(0, party_open(&self->hostile[i]));
		ASSERT_EQ(0, lend_context(&self->hostile[i],
					  ULDMA_METHOD_KEY));
	}
	ASSERT_EQ(1, write(taken[1], "", 1));
}

FIXTURE_TEARDOWN(taken)
{
	for (int i = 0; i < self->count; i++)
		close(self->hostile[i].fd);
	free(self->hostile);
}

/* The wait has an end, and is not for ever. */
TEST_F(taken, ends)
{
	int ret = 0;

	ASSERT_TRUE(poll_for(self->victim.fd, 3 * SOON) & POLLIN);
	ASSERT_EQ(sizeof(ret), read(self->victim.fd, &ret, sizeof(ret)));
	EXPECT_EQ(variant->result, ret);
	ASSERT_EQ(0, context_destroy(self->hostile[0].fd));
	ASSERT_TRUE(poll_for(self->victim.fd, 3 * SOON) & POLLIN);
	ASSERT_EQ(sizeof(ret), read(self->victim.fd, &ret, sizeof(ret)));
	EXPECT_EQ(0, ret);
	EXPECT_EQ(0, helper_kill(&self->victim));
}

static char state_of(pid_t pid)
{
	char file[64], line[64] = "";
	FILE *f;

	snprintf(file, sizeof(file), "/proc/%d/status", pid);
	f = fopen(file, "r");
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "State:\t", 7))
			break;
	if (f)
		fclose(f);
	return line[7];
}

/* Who waits can be killed, and what it has comes free. */
TEST_F(taken, killed)
{
	struct timespec now, limit;

	clock_gettime(CLOCK_MONOTONIC, &limit);
	limit.tv_sec += PATIENCE / SECOND;
	do {
		sched_yield();
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (!strchr("DS", state_of(self->victim.pid)) &&
		 now.tv_sec <= limit.tv_sec);
	EXPECT_EQ(0, helper_kill(&self->victim));
}

#define THREADS 16
/* Wake-ups of one thread that show that it looks for a context, and of one that does not. */
#define MANY 30
#define FEW 10

/**
 * struct waiter - a thread that waits for a context
 * @thread: the thread
 * @page: the registers
 * @tid: its number, once it runs
 * @before: how often it had slept when all slept
 */
struct waiter {
	pthread_t thread;
	void *page;
	pid_t tid;
	long long before;
};

static void *wait_for_context(void *arg)
{
	struct waiter *w = arg;

	WRITE_ONCE(w->tid, gettid());
	(void)READ_ONCE(*(__u64 *)w->page);
	return NULL;
}

/* How often a thread has given up the processor. */
static long long sleeps_of(const struct waiter *w)
{
	char file[64];

	snprintf(file, sizeof(file), "/proc/self/task/%d/status", w->tid);
	return number_in(file, "voluntary_ctxt_switches");
}

/*
 * Threads that wait for one context: one of them checks for registers, each time
 * that some may be free, and the others wait for that thread.
 */
TEST(one_thread_looks_for_a_context)
{
	struct waiter waiters[THREADS] = { };
	struct party victim, *p;
	int count, awake, busy;

	if (geteuid())
		SKIP(return, "needs root, to take all contexts");
	ASSERT_EQ(0, party_open(&victim));
	ASSERT_EQ(0, party_context(&victim, ULDMA_METHOD_EXTENDED_SHADOW, 0));
	ASSERT_EQ(0, party_works(&victim));
	count = query(victim.fd).out_contexts;
	p = calloc(count, sizeof(*p));
	ASSERT_NE(NULL, p);
	for (int i = 0; i < count; i++) {
		ASSERT_EQ(0, party_open(&p[i]));
		ASSERT_EQ(0, lend_context(&p[i], ULDMA_METHOD_KEY));
	}
	for (int i = 0; i < THREADS; i++) {
		waiters[i].page = victim.c.page;
		ASSERT_EQ(0, pthread_create(&waiters[i].thread, NULL,
					    wait_for_context, &waiters[i]));
	}
	do {
		awake = 0;
		for (int i = 0; i < THREADS; i++) {
			pid_t tid = READ_ONCE(waiters[i].tid);

			awake += !tid || !strchr("DS", state_of(tid));
		}
		sched_yield();
	} while (awake);
	for (int i = 0; i < THREADS; i++)
		waiters[i].before = sleeps_of(&waiters[i]);
	/* After ten seconds the thread would get SIGBUS. */
	do {
		busy = 0;
		for (int i = 0; i < THREADS; i++)
			busy += sleeps_of(&waiters[i]) - waiters[i].before >=
				MANY;
		sched_yield();
	} while (!busy);
	busy = 0;
	for (int i = 0; i < THREADS; i++)
		busy += sleeps_of(&waiters[i]) - waiters[i].before > FEW;
	EXPECT_EQ(1, busy);
	/* What is mapped keeps a file open. */
	EXPECT_EQ(0, context_destroy(p[0].fd));
	for (int i = 0; i < THREADS; i++)
		EXPECT_EQ(0, pthread_join(waiters[i].thread, NULL));
	EXPECT_EQ(0, party_works(&victim));
	for (int i = 1; i < count; i++)
		close(p[i].fd);
	close(victim.fd);
	free(p);
}

TEST_HARNESS_MAIN
