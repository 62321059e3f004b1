// SPDX-License-Identifier: GPL-2.0
/*
 * Processes whose fork() takes long. No other process waits for that.
 *
 * Nothing is timed: each test ends with the question whether the fork still
 * goes on.
 */
#include <linux/falloc.h>
#include <pthread.h>
#include <signal.h>

#include "uldma_harness.h"
#include "uldma_slow.h"

/* The pause after 128 tables is two seconds. */
#define TABLES 2048UL
/* One more than the workers that a device had once. */
#define MANY 17

/**
 * struct state - what a slow process tells
 * @forker: its thread that forks
 * @ready: it can be told to fork
 * @forked: it has forked
 */
struct state {
	pid_t forker;
	int ready;
	int forked;
};

/**
 * struct slow - a slow process
 * @pid: the process
 * @state: memory that both have
 * @fork: writing here has it fork
 */
struct slow {
	pid_t pid;
	struct state *state;
	int fork;
};

/* What a slow process has. */
struct setup {
	struct state *state;
	int fork;
	int memory;
	int fd;
	struct region r;
};

static void *fork_slowly(void *arg)
{
	struct setup *s = arg;
	char byte;
	pid_t pid;

	WRITE_ONCE(s->state->forker, gettid());
	if (read(s->fork, &byte, 1) != 1)
		return NULL;
	pid = fork();
	if (!pid)
		_exit(0);
	WRITE_ONCE(s->state->forked, 1);
	return NULL;
}

static int have_memory(struct setup *s)
{
	char *buf = mmap(NULL, page_size(), PROT_READ | PROT_WRITE, MAP_SHARED,
			 s->memory, 0);

	s->fd = uldma_open(0);
	if (s->fd < 0 || buf == MAP_FAILED)
		return -EIO;
	return region_register(s->fd, buf, page_size(), RW, &s->r);
}

static void be_slow(struct setup *s)
{
	pthread_t thread;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (group_join() || !make_sparse(TABLES) || have_memory(s) ||
	    pthread_create(&thread, NULL, fork_slowly, s))
		_exit(1);
	WRITE_ONCE(s->state->ready, 1);
	for (;;)
		pause();
}

/* The process registers a page of the file. */
static int slow_start(struct slow *it, int memory)
{
	int forks[2];

	it->state = mmap(NULL, page_size(), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (it->state == MAP_FAILED || pipe(forks))
		return -errno;
	it->pid = fork();
	if (!it->pid) {
		struct setup s = {
			.state = it->state,
			.fork = forks[0],
			.memory = memory,
			.fd = -1,
		};

		be_slow(&s);
	}
	it->fork = forks[1];
	return it->pid < 0 ? -errno : 0;
}

static int wait_ready(const struct slow *it)
{
	for (int i = 0; i < ROUNDS; i++) {
		if (READ_ONCE(it->state->ready) &&
		    READ_ONCE(it->state->forker))
			return 0;
		if (waitpid(it->pid, NULL, WNOHANG))
			return -ECHILD;
		usleep(ROUND_US);
	}
	return -ETIMEDOUT;
}

static int wait_forking(const struct slow *it)
{
	for (int i = 0; i < ROUNDS; i++) {
		if (sleeps_in(it->pid, it->state->forker, "copy_page_range"))
			return 0;
		usleep(ROUND_US);
	}
	return -ETIMEDOUT;
}

/* Has them fork, and returns once all copy tables, with their address space locked. */
static int slow_fork(const struct slow *them, int count)
{
	int ret = 0;

	for (int i = 0; i < count; i++)
		if (write(them[i].fork, "x", 1) != 1)
			return -errno;
	for (int i = 0; i < count; i++)
		ret = ret ?: wait_forking(&them[i]);
	return ret;
}

/* The fork is over for others before it returns, so what counts is that it copies tables. */
static bool still_forks(const struct slow *it)
{
	while (!READ_ONCE(it->state->forked)) {
		if (sleeps_in(it->pid, it->state->forker, "copy_page_range"))
			return true;
		usleep(ROUND_US);
	}
	return false;
}

FIXTURE(slow_fork) {
	struct slow slow[MANY];
	int count;
	int memory;
};

FIXTURE_SETUP(slow_fork)
{
	if (group_make())
		SKIP(return, "no control group that limits memory");
	self->memory = memfd(page_size(), 0);
	ASSERT_LE(0, self->memory);
}

FIXTURE_TEARDOWN(slow_fork)
{
	group_wait(false);
	for (int i = 0; i < self->count; i++) {
		kill(self->slow[i].pid, SIGKILL);
		waitpid(self->slow[i].pid, NULL, 0);
	}
	group_end();
}

static void start(struct __test_metadata *_metadata,
		  struct _test_data_slow_fork *self, int count)
{
	for (int i = 0; i < count; i++) {
		ASSERT_EQ(0, slow_start(&self->slow[i], self->memory));
		self->count = i + 1;
	}
	for (int i = 0; i < count; i++)
		ASSERT_EQ(0, wait_ready(&self->slow[i]));
	ASSERT_EQ(0, group_wait(true));
}

static int exit_with_memory(void *arg)
{
	char *buf = buffer(page_size());
	struct region r;

	return -region_register(uldma_open(0), buf, page_size(), RW, &r);
}

/* Registered memory of many of them changes, which has to be found out; others exit with memory. */
TEST_F_TIMEOUT(slow_fork, others_exit_with_memory, 240)
{
	start(_metadata, self, MANY);
	ASSERT_EQ(0, slow_fork(self->slow, MANY));
	ASSERT_EQ(0, fallocate(self->memory,
			       FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
			       page_size()));
	EXPECT_EQ(0, in_child(exit_with_memory, NULL));
	for (int i = 0; i < MANY; i++)
		EXPECT_TRUE(still_forks(&self->slow[i]));
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
