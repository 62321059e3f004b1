// SPDX-License-Identifier: GPL-2.0
/*
 * Opening and closing files, of which a process can have thousands.
 *
 * Closing one waits for nothing. A wait for a grace period of RCU takes about
 * ten milliseconds, for each file one after the other, also when the process is
 * killed. Waits are counted, not timed: a thread that waits gives up the
 * processor, and the kernel counts how often it did.
 */
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <linux/membarrier.h>

#include "uldma_harness.h"
#include "uldma_conn.h"
#include "uldma_endpoint.h"
#include "uldma_exchange.h"
#include "uldma_msg.h"
#include "uldma_trace.h"

#define FILES 1000
/* A lock that another thread has for a moment is a wait, too. */
#define WAITS (FILES / 10)
#define PORT 5000
#define LOCKING "mmap_lock/mmap_lock_start_locking"

static long waits_of(int who)
{
	struct rusage use;

	return getrusage(who, &use) ? -1 : use.ru_nvcsw;
}

FIXTURE(files) {
	int fds[FILES];
};

FIXTURE_VARIANT(files) {
	int (*make)(int fd, int number);
};

static int nothing(int fd, int number)
{
	return 0;
}

FIXTURE_VARIANT_ADD(files, as_they_were_opened) {
	.make = nothing,
};

static int set_eventfd(int fd, int number)
{
	int event = eventfd(0, EFD_CLOEXEC);
	struct uldma_eventfd arg = { .size = sizeof(arg), .fd = event };
	int ret = event < 0 ? -errno :
			      uldma_ioctl(fd, ULDMA_IOC_EVENTFD, &arg);

	close(event);
	return ret;
}

FIXTURE_VARIANT_ADD(files, with_an_eventfd) {
	.make = set_eventfd,
};

static int listen_at(int fd, int number)
{
	return conn_listen(fd, PORT + number, 1);
}

FIXTURE_VARIANT_ADD(files, with_a_listener) {
	.make = listen_at,
};

FIXTURE_SETUP(files)
{
	struct rlimit limit = { 2 * FILES, 2 * FILES };

	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
	for (int i = 0; i < FILES; i++) {
		self->fds[i] = uldma_open(0);
		ASSERT_LE(0, self->fds[i]);
		ASSERT_EQ(0, variant->make(self->fds[i], i));
	}
}

FIXTURE_TEARDOWN(files)
{
}

TEST_F(files, are_closed_without_a_wait_each)
{
	long before = waits_of(RUSAGE_THREAD);
	__u64 began = now_ns();

	for (int i = 0; i < FILES; i++)
		close(self->fds[i]);
	TH_LOG("%llu us each", (now_ns() - began) / 1000 / FILES);
	EXPECT_GT(WAITS, waits_of(RUSAGE_THREAD) - before);
}

/* The files of the child are those of this process, which closes them before. */
TEST_F(files, end_with_their_process)
{
	long before = waits_of(RUSAGE_CHILDREN);
	pid_t pid = fork();

	ASSERT_LE(0, pid);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	for (int i = 0; i < FILES; i++)
		close(self->fds[i]);
	ASSERT_EQ(0, kill(pid, SIGKILL));
	ASSERT_EQ(pid, waitpid(pid, NULL, 0));
	EXPECT_GT(WAITS, waits_of(RUSAGE_CHILDREN) - before);
}

/* Functions that wait for a grace period. */
static const char *const waits[][2] = {
	{ "rcu", "synchronize_rcu" },
	{ "rcu_expedited", "synchronize_rcu_expedited" },
	{ "srcu", "synchronize_srcu" },
	{ "srcu_expedited", "synchronize_srcu_expedited" },
};

#define NAME 0x66696c6573ULL
/* Few, as there are not many contexts. */
#define FULL 4

FIXTURE(full) {
	struct tracer tracer;
	int fds[FULL];
};

/* An open file with an object of each kind that one node can have. */
static int fill_file(int fd, int number)
{
	size_t page = page_size();
	char *buf = buffer(page);
	struct region r;
	struct endpoint e;
	struct context c;
	struct segment s;
	struct memory m;
	struct slots out;
	int ret;

	if (!buf)
		return -ENOMEM;
	ret = region_register(fd, buf, page, RW, &r) ?:
	      memory_create(fd, page, &m) ?: memory_map(fd, &m) ?:
	      segment_create(fd, NAME + number, page, &s) ?:
	      set_eventfd(fd, number) ?: listen_at(fd, number);
	if (ret)
		return ret;
	ret = context_create_as(fd, ULDMA_METHOD_QUEUE, 0, &c) ?:
	      context_map(fd, &c);
	if (ret)
		return ret;
	ret = endpoint_create(fd, NO_LIMIT, page, &e);
	return ret == -EOPNOTSUPP ? 0 :
	       ret ?: slots_create(fd, 0, e.handle, 1, page, &out);
}

FIXTURE_SETUP(full)
{
	struct tracer *t = &self->tracer;

	if (access(KPROBES, W_OK))
		SKIP(return, "the kernel has no tracer of functions");
	ASSERT_EQ(0, tracer_make(t));
	for (int i = 0; i < ARRAY_SIZE(waits); i++) {
		ASSERT_EQ(0, probe(waits[i][0], waits[i][1]));
		ASSERT_EQ(0, trace_function(t, waits[i][0]));
	}
	for (int i = 0; i < FULL; i++) {
		self->fds[i] = uldma_open(0);
		ASSERT_LE(0, self->fds[i]);
		ASSERT_EQ(0, fill_file(self->fds[i], i));
	}
}

FIXTURE_TEARDOWN(full)
{
	tracer_end(&self->tracer);
	for (int i = 0; i < ARRAY_SIZE(waits); i++)
		no_probe(waits[i][0]);
}

/* No object makes its process wait for a grace period, and so none of many. */
TEST_F(full, are_closed_without_grace_periods)
{
	const struct tracer *t = &self->tracer;

	/* What does wait, where there is another processor, is seen. */
	ASSERT_EQ(0, tracer_begin(t));
	ASSERT_EQ(0, syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0));
	ASSERT_EQ(0, tracer_stop(t));
	if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
		EXPECT_LT(0, traced(t, "synchronize_", "synchronize_"));

	ASSERT_EQ(0, tracer_begin(t));
	for (int i = 0; i < FULL; i++)
		close(self->fds[i]);
	ASSERT_EQ(0, tracer_stop(t));
	EXPECT_EQ(0, traced(t, "synchronize_", "synchronize_"));
}

FIXTURE(opening) {
	struct tracer tracer;
};

FIXTURE_SETUP(opening)
{
	struct tracer *t = &self->tracer;

	if (!has_event(LOCKING) || !has_event("kmem/kmalloc"))
		SKIP(return, "the kernel has no tracer of locks and allocations");
	ASSERT_EQ(0, tracer_make(t));
	ASSERT_EQ(0, tracer_add(t, LOCKING));
	ASSERT_EQ(0, tracer_add(t, "kmem/kmalloc"));
	ASSERT_EQ(0, tracer_add(t, "kmem/kmem_cache_alloc"));
}

FIXTURE_TEARDOWN(opening)
{
	tracer_end(&self->tracer);
}

/*
 * Opening waits for nothing that a user can hold, since all misc devices of the
 * machine would wait with it: neither for the lock of an address space, nor for
 * memory that a control group is charged for. The first object needs both.
 */
TEST_F(opening, waits_for_no_user)
{
	const struct tracer *t = &self->tracer;
	char *buf = buffer(page_size());
	struct region r;
	int fd;

	ASSERT_NE(NULL, buf);
	ASSERT_EQ(0, access(uldma_node(), R_OK));
	ASSERT_EQ(0, tracer_begin(t));
	fd = uldma_open(0);
	ASSERT_EQ(0, tracer_stop(t));
	ASSERT_LE(0, fd);
	EXPECT_EQ(0, traced(t, "write=true", "GFP_KERNEL_ACCOUNT"));

	ASSERT_EQ(0, tracer_begin(t));
	ASSERT_EQ(0, region_register(fd, buf, page_size(), RW, &r));
	ASSERT_EQ(0, tracer_stop(t));
	EXPECT_LT(0, traced(t, "write=true", "write=true"));
	EXPECT_LT(0, traced(t, "GFP_KERNEL_ACCOUNT", "GFP_KERNEL_ACCOUNT"));
	close(fd);
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
