// SPDX-License-Identifier: GPL-2.0
/*
 * Closing files, of which a process can have thousands.
 *
 * Closing one waits for nothing. A wait for a grace period of RCU takes about
 * ten milliseconds, for each file one after the other, also when the process is
 * killed. Waits are counted, not timed: a thread that waits gives up the
 * processor, and the kernel counts how often it did.
 */
#include <sys/eventfd.h>

#include "uldma_harness.h"
#include "uldma_conn.h"

#define FILES 1000
/* A lock that another thread has for a moment is a wait, too. */
#define WAITS (FILES / 10)
#define PORT 5000

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

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
