// SPDX-License-Identifier: GPL-2.0
/*
 * Processes whose address spaces stay locked, with memory and open files of the
 * device, so that the runner sees what others do meanwhile:
 *
 *	uldma_stuck FIFO fork|touch|pin COUNT
 *
 * Each forks slowly, or reads a page of a file of FUSE that never comes, or
 * registers such a page. Then another thread of it asks for the lock, and a
 * third one opens the device and makes an object. Once the lock is held this
 * prints "locked 1", and again with the next number each time that the runner
 * writes to FIFO. It ends with SIGTERM; with exit status 2 if a lock was not
 * held any more, and 4 if the kernel has not what it takes.
 *
 *	uldma_stuck exit|context
 *
 * exits with registered memory; or makes a context, uses its pages, and ends it.
 */
#define _GNU_SOURCE
#include <linux/falloc.h>
#include <pthread.h>
#include <signal.h>

#include "uldma_process.h"
#include "uldma_slow.h"
#include "uldma_steps.h"
#include "uldma_stuck_file.h"

#define TOO_LATE 2
#define SKIPPED 4
/* One more than the workers that a device had once. */
#define MOST STUCK_PAGES
/* Half a minute for each 2048. */
#define TABLES 8192UL

enum attack {
	FORK,
	TOUCH,
	PIN,
};

/**
 * struct attacker - a process that gets stuck
 * @pid: the process
 * @threads: its threads: one that locks, one that wants the lock, and one that opens the device
 * @go: the number of threads that may go on
 * @unlocked: the first thread has the lock no more
 * @passed: the second thread has had the lock
 * @called: the third thread is on its way into the driver
 * @state: memory that both processes have
 */
struct attacker {
	pid_t pid;
	struct state {
		pid_t threads[3];
		int go;
		int unlocked;
		int passed;
		int called;
	} *state;
};

/**
 * struct setup - what an attacker has
 * @how: how it gets stuck
 * @number: which of them it is
 * @state: as above
 * @page: a page that never comes, or is in the memory that is forked
 * @fd: the device
 */
struct setup {
	enum attack how;
	int number;
	struct state *state;
	char *page;
	int fd;
};

static volatile sig_atomic_t is_ended;
static int fifo;

/* The signal may come just before the FIFO is read, which would not end then. */
static void end(int signal)
{
	int error = errno;

	is_ended = 1;
	(void)!write(fifo, "", 1);
	errno = error;
}

/* Waits for the main process. */
static void begin(struct state *state, int thread)
{
	WRITE_ONCE(state->threads[thread], gettid());
	while (READ_ONCE(state->go) <= thread)
		usleep(ROUND_US);
}

static void *lock(void *arg)
{
	struct setup *s = arg;
	struct region r;
	pid_t pid;

	begin(s->state, 0);
	switch (s->how) {
	case FORK:
		pid = fork();
		if (!pid)
			_exit(0);
		break;
	case TOUCH:
		(void)READ_ONCE(*s->page);
		break;
	case PIN:
		region_register(s->fd, s->page, page_size(), RW, &r);
		break;
	}
	WRITE_ONCE(s->state->unlocked, 1);
	return NULL;
}

static void *want(void *arg)
{
	struct setup *s = arg;

	begin(s->state, 1);
	mmap(NULL, page_size(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	WRITE_ONCE(s->state->passed, 1);
	return NULL;
}

static void *open_device(void *arg)
{
	struct setup *s = arg;
	struct context c;

	begin(s->state, 2);
	WRITE_ONCE(s->state->called, 1);
	context_create(uldma_open(0), &c);
	return NULL;
}

/*
 * Opens the device twice. All processes but one have memory by both files before
 * their address space is locked; the kernel has more to do for the first memory.
 * One has a context, too.
 */
static int have_objects(struct setup *s, int memory, int sock)
{
	char *shared = map_file(memory, page_size(), MAP_SHARED);
	int fd = uldma_open(0);
	struct context c;
	struct region r;
	int ret = 0;

	s->fd = uldma_open(0);
	if (fd < 0 || s->fd < 0 || !shared)
		return -EIO;
	if (s->number != 1)
		ret = region_register(s->fd, shared, page_size(), RW, &r) ?:
		      region_register(fd, shared, page_size(), RW, &r);
	/* Its notifier is to be removed when the other process closes the file. */
	if (s->how == FORK)
		ret = ret ?: region_register(fd, s->page, page_size(), RW, &r);
	if (!s->number)
		ret = ret ?: context_create(fd, &c) ?: context_map(fd, &c);
	/* The process that gets it closes it. */
	return ret ?: send_file(sock, fd, 0) ?: -close(fd);
}

static void run_attacker(struct setup *s, int file, int memory, int sock)
{
	void *(*const threads[])(void *) = { lock, want, open_device };
	size_t at = s->number * page_size();
	pthread_t thread;

	signal(SIGTERM, SIG_DFL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (s->how == FORK) {
		if (group_join())
			_exit(1);
		s->page = make_sparse(TABLES);
		if (!s->page)
			_exit(1);
	} else {
		s->page = mmap(NULL, page_size(), PROT_READ | PROT_WRITE,
			       MAP_PRIVATE, file, at);
		if (s->page == MAP_FAILED ||
		    madvise(s->page, page_size(), MADV_RANDOM))
			_exit(1);
	}
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		if (pthread_create(&thread, NULL, threads[i], s))
			_exit(1);
	if (have_objects(s, memory, sock))
		_exit(1);
	for (;;)
		pause();
}

static int attacker_start(struct attacker *it, struct setup s, int file,
			  int memory, int *fd)
{
	int socks[2];
	__u32 value;

	it->state = mmap(NULL, page_size(), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (it->state == MAP_FAILED ||
	    socketpair(AF_UNIX, SOCK_STREAM, 0, socks))
		return -errno;
	s.state = it->state;
	it->pid = fork();
	if (!it->pid) {
		close(socks[0]);
		run_attacker(&s, file, memory, socks[1]);
	}
	close(socks[1]);
	*fd = it->pid < 0 ? -errno : receive_file(socks[0], &value);
	close(socks[0]);
	return *fd < 0 ? *fd : 0;
}

/* Whether a thread waits so that only what it waits for, or its end, wakes it. */
static bool waits(pid_t pid, pid_t thread)
{
	char path[64], line[256] = "";
	const char *state;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, thread);
	f = fopen(path, "r");
	if (!f)
		return false;
	state = fgets(line, sizeof(line), f) ? strrchr(line, ')') : NULL;
	fclose(f);
	return state && !strncmp(state, ") D", 3);
}

/* Whether a thread has come as far as its attack needs. */
static bool has_come(const struct attacker *it, struct setup s, int thread,
		     const struct stuck_file *file)
{
	pid_t id = READ_ONCE(it->state->threads[thread]);

	if (!id)
		return false;
	/*
	 * A fork has it wait for its own stack before it calls, and the driver
	 * may not wait at all.
	 */
	if (thread == 2 && READ_ONCE(it->state->called))
		return true;
	if (thread)
		return waits(it->pid, id);
	return s.how == FORK ? sleeps_in(it->pid, id, "copy_page_range") :
			       stuck_file_reads(file, s.number) > 1;
}

static int wait_stuck(const struct attacker *it, struct setup s, int thread,
		      const struct stuck_file *file)
{
	for (int i = 0; i < ROUNDS && !is_ended; i++) {
		if (has_come(it, s, thread, file))
			return 0;
		if (waitpid(it->pid, NULL, WNOHANG))
			return -ECHILD;
		usleep(ROUND_US);
	}
	fprintf(stderr, "thread %d is not stuck\n", thread);
	return -ETIMEDOUT;
}

/* Whether all threads run, for which the address space must not be locked. */
static bool has_begun(const struct attacker *it)
{
	bool all = true;

	for (size_t i = 0; i < ARRAY_SIZE(it->state->threads); i++)
		all &= !!READ_ONCE(it->state->threads[i]);
	return all;
}

static int wait_begun(const struct attacker *them, int count)
{
	for (int i = 0, begun = 0; i < ROUNDS && !is_ended; i++) {
		while (begun < count && has_begun(&them[begun]))
			begun++;
		if (begun == count)
			return 0;
		usleep(ROUND_US);
	}
	return -ETIMEDOUT;
}

/* All begin an attack, one thread after the other. */
static int begin_attacks(struct attacker *them, struct setup s, int count,
			 const struct stuck_file *file)
{
	int ret = wait_begun(them, count);

	for (int thread = 0; !ret && thread < 3; thread++) {
		for (int i = 0; i < count; i++)
			WRITE_ONCE(them[i].state->go, thread + 1);
		for (s.number = 0; s.number < count; s.number++)
			ret = ret ?: wait_stuck(&them[s.number], s, thread, file);
	}
	return ret;
}

/*
 * Whether an attacker has the lock. A fork() returns some time after it has
 * unlocked the address space, so what counts is that it copies tables.
 */
static bool is_locked(const struct attacker *it, enum attack how)
{
	const struct state *state = it->state;

	while (!READ_ONCE(state->unlocked) && !READ_ONCE(state->passed)) {
		if (how != FORK ||
		    sleeps_in(it->pid, state->threads[0], "copy_page_range"))
			return true;
		usleep(ROUND_US);
	}
	return false;
}

static bool all_locked(const struct attacker *them, int count, enum attack how)
{
	for (int i = 0; i < count; i++)
		if (!is_locked(&them[i], how))
			return false;
	return true;
}

/* Tells the runner that all are locked, each time that it asks. */
static int answer(const struct attacker *them, int count, enum attack how)
{
	char line[32];

	for (int i = 1; !is_ended; i++) {
		if (!all_locked(them, count, how))
			return TOO_LATE;
		snprintf(line, sizeof(line), "locked %d", i);
		go_on(fifo, line);
	}
	return 0;
}

/* Closes the files that the attackers have passed on, and takes a page away from all. */
static int disturb(const int *fds, int count, int memory)
{
	for (int i = 0; i < count; i++)
		close(fds[i]);
	return fallocate(memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
			 page_size()) ? -errno : 0;
}

static int run(struct setup s, int count, struct stuck_file *file)
{
	int memory = memfd(page_size(), 0);
	struct attacker them[MOST] = { };
	int ret = memory < 0 ? memory : 0;
	int fds[MOST];

	for (s.number = 0; !ret && s.number < count; s.number++)
		ret = attacker_start(&them[s.number], s, file->fd, memory,
				     &fds[s.number]);
	if (!ret && s.how == FORK)
		ret = group_wait(true);
	ret = ret ?: begin_attacks(them, s, count, file) ?:
	      disturb(fds, count, memory) ?: answer(them, count, s.how);
	if (s.how == FORK)
		group_wait(false);
	for (int i = 0; i < count && them[i].pid > 0; i++)
		kill(them[i].pid, SIGKILL);
	stuck_file_end(file);
	for (int i = 0; i < count && them[i].pid > 0; i++)
		waitpid(them[i].pid, NULL, 0);
	return ret;
}

static int exit_with_memory(void)
{
	char *buf = buffer(page_size());
	struct region r;

	return region_register(uldma_open(0), buf, page_size(), RW, &r);
}

static int use_context(void)
{
	int fd = uldma_open(0);
	struct context c;
	int ret = context_create(fd, &c) ?: context_map(fd, &c);

	if (ret)
		return ret;
	(void)READ_ONCE(*c.page);
	if (READ_ONCE(c.status->failed) || context_stats(fd).out_initiations)
		return -EPROTO;
	return context_unmap(&c) ?: context_destroy(fd);
}

static int attack_of(const char *name, enum attack *how)
{
	static const char *const names[] = { "fork", "touch", "pin" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		*how = i;
		if (!strcmp(name, names[i]))
			return 0;
	}
	return -EINVAL;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = end };
	struct stuck_file file = { .fd = -1 };
	int count = argc == 4 ? atoi(argv[3]) : 0;
	struct setup s = { };
	int ret;

	if (argc == 2 && !strcmp(argv[1], "exit"))
		return exit_with_memory() ? 1 : 0;
	if (argc == 2 && !strcmp(argv[1], "context"))
		return use_context() ? 1 : 0;
	if (count < 1 || count > MOST || attack_of(argv[2], &s.how)) {
		fprintf(stderr, "usage: %s FIFO fork|touch|pin COUNT\n", argv[0]);
		return 1;
	}
	fifo = steps_open(argv[1]);
	sigaction(SIGTERM, &action, NULL);
	ret = s.how == FORK ? group_make() : stuck_file_open(&file);
	if (ret == -EOPNOTSUPP)
		return SKIPPED;
	ret = ret ?: fifo < 0 ? fifo : run(s, count, &file);
	if (s.how == FORK)
		group_end();
	if (ret < 0)
		fprintf(stderr, "%s\n", strerror(-ret));
	return ret < 0 ? 1 : ret;
}
