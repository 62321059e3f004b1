// SPDX-License-Identifier: GPL-2.0
/*
 * Locking by user level around a registration (the protocol of the paper on
 * locking shared memory, section 4.1.2), while another process pages the memory
 * out without a pause: whenever it strikes, the device has the right page.
 */
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>

#include "uldma_harness.h"
#include "uldma_kinds.h"
#include "uldma_lmm.h"

#define LENGTH (16 * 4096UL)
#define ROUNDS 32

/**
 * struct board - what the test shares with the process that pages out
 * @of: the process whose memory it is
 * @at: the memory
 * @rounds: how often all of it was to be paged out
 * @stop: that is enough
 * @error: the first error
 */
struct board {
	pid_t of;
	char *at;
	unsigned long rounds;
	int stop;
	int error;
};

/* It does not map the memory: pages that two processes map are left alone. */
static int page_out_forever(struct board *board)
{
	int pidfd = syscall(SYS_pidfd_open, board->of, 0);

	if (pidfd < 0)
		return -errno;
	while (!__atomic_load_n(&board->stop, __ATOMIC_ACQUIRE)) {
		/* Page by page, as a call ends where memory is locked. */
		for (size_t i = 0; i < LENGTH; i += page_size()) {
			struct iovec page = { board->at + i, page_size() };

			if (syscall(SYS_process_madvise, pidfd, &page, 1,
				    MADV_PAGEOUT, 0) < 0 && errno != EAGAIN &&
			    errno != EINVAL)
				return -errno;
		}
		__atomic_fetch_add(&board->rounds, 1, __ATOMIC_ACQ_REL);
	}
	return 0;
}

/* Waits until a round has begun and ended from now on. */
static int rounds_pass(struct board *board)
{
	struct timespec now, limit;
	unsigned long wanted;

	wanted = __atomic_load_n(&board->rounds, __ATOMIC_ACQUIRE) + 2;
	clock_gettime(CLOCK_MONOTONIC, &limit);
	limit.tv_sec += PATIENCE / SECOND;
	while (__atomic_load_n(&board->rounds, __ATOMIC_ACQUIRE) < wanted) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec > limit.tv_sec ||
		    __atomic_load_n(&board->error, __ATOMIC_ACQUIRE))
			return -ETIMEDOUT;
		sched_yield();
	}
	return 0;
}

/* The frame of a page that the pager unmaps again and again, although it stays. */
static __u64 frame_of_touched(char *page)
{
	__u64 found = 0;

	for (int i = 0; !found && i < ROUNDS * ROUNDS; i++) {
		(void)READ_ONCE(*page);
		found = frame(page);
	}
	return found;
}

/* Waits until some of the memory is paged out. */
static int wait_paged_out(struct board *board, char *at, size_t length)
{
	for (int i = 0; i < ROUNDS; i++) {
		if (resident(at, length) < length / page_size())
			return 0;
		if (rounds_pass(board))
			break;
	}
	return -ETIMEDOUT;
}

FIXTURE(pageout) {
	struct board *board;
	pid_t pager;
	char *at;
	char *copy;
	int fd;
	struct region to;
};

FIXTURE_VARIANT(pageout) {
	void *(*map)(size_t length);
};

FIXTURE_VARIANT_ADD(pageout, sysv) { map_sysv };
FIXTURE_VARIANT_ADD(pageout, private) { map_anonymous };

FIXTURE_SETUP(pageout)
{
	struct board *board;

	if (number_in("/proc/meminfo", "SwapFree") * 1024 < 16 * LENGTH)
		SKIP(return, "there is no swap to page out to");
	if (geteuid())
		SKIP(return, "needs root");
	self->at = variant->map(LENGTH);
	ASSERT_NE(NULL, self->at);
	pattern_fill(self->at, LENGTH, 1);
	self->fd = uldma_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	self->copy = buffer(page_size());
	ASSERT_NE(NULL, self->copy);
	ASSERT_EQ(0, region_register(self->fd, self->copy, page_size(), RW,
				     &self->to));
	board = mmap(NULL, page_size(), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, board);
	self->board = board;
	board->of = getpid();
	board->at = self->at;
	self->pager = fork();
	ASSERT_LE(0, self->pager);
	if (!self->pager) {
		int ret;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		munmap(self->at, LENGTH);
		ret = page_out_forever(board);
		__atomic_store_n(&board->error, ret, __ATOMIC_RELEASE);
		_exit(ret ? 1 : 0);
	}
}

FIXTURE_TEARDOWN(pageout)
{
	int status;

	if (self->pager > 0) {
		__atomic_store_n(&self->board->stop, 1, __ATOMIC_RELEASE);
		EXPECT_EQ(self->pager, waitpid(self->pager, &status, 0));
		EXPECT_EQ(0, status);
	}
	close(self->fd);
}

TEST_F_TIMEOUT(pageout, mlock_mode, 300)
{
	size_t pages = LENGTH / page_size(), paged_out = 0;

	for (int i = 0; i < ROUNDS; i++) {
		size_t page = i % pages;
		char *part = self->at + page * page_size();
		struct region r;
		__u64 where;

		ASSERT_EQ(0, rounds_pass(self->board))
			TH_LOG("error %d", self->board->error);
		paged_out += resident(self->at, LENGTH) < pages;

		/* The given range first, then the driver, then the segment. */
		ASSERT_EQ(0, mlock(part, page_size()));
		ASSERT_EQ(0, region_register(self->fd, part, page_size(),
					     ULDMA_ACCESS_READ, &r));
		where = frame(part);
		ASSERT_EQ(0, mlock(self->at, LENGTH));

		ASSERT_EQ(0, rounds_pass(self->board));
		ASSERT_NE(0, where);
		ASSERT_EQ(where, frame(part))
			TH_LOG("round %d", i);
		memset(self->copy, 0, page_size());
		ASSERT_EQ(0, transfer(self->fd, BY_KERNEL, &self->to, 0, &r, 0,
				      page_size()));
		ASSERT_EQ(0, memcmp(self->copy, part, page_size()))
			TH_LOG("round %d", i);
		ASSERT_EQ(0, stale_pages(self->fd, r.handle));

		ASSERT_EQ(0, region_unregister(self->fd, r.handle));
		ASSERT_EQ(0, munlock(self->at, LENGTH));
	}
	EXPECT_EQ(-1, pattern_check(self->at, LENGTH, 1));
	/* What nothing holds does go: the other process is at work. */
	EXPECT_LT(ROUNDS / 2, paged_out);
}

/* Locks pages, as a program in mlock mode, and registers them. */
static int lock_and_register(int fd, char *at, size_t length, struct region *r)
{
	return mlock(at, length) ? -errno :
	       region_register(fd, at, length, ULDMA_ACCESS_READ, r);
}

/* Another process that locks, registers, and leaves. */
static int leave(char *at, size_t length)
{
	struct region r;
	int fd = uldma_open(0);

	return fd < 0 ? fd : lock_and_register(fd, at, length, &r);
}

/* What is left of two regions stays where it is when the other one ends. */
TEST_F_TIMEOUT(pageout, overlapping, 300)
{
	const size_t page = page_size(), half = LENGTH / 2;
	struct region one, other;
	__u64 frames[LENGTH / 4096];
	char *rest = self->at + half / 2;
	int status;
	pid_t pid;

	for (int i = 0; i < ROUNDS / 4; i++) {
		ASSERT_EQ(0, lock_and_register(self->fd, self->at, half, &one));
		ASSERT_EQ(0, lock_and_register(self->fd, rest, half, &other));
		for (size_t p = 0; p < half / page; p++)
			frames[p] = frame(rest + p * page);
		/* The second lock of a page does not count: munlock() ends both. */
		ASSERT_EQ(0, region_unregister(self->fd, one.handle));
		ASSERT_EQ(0, munlock(self->at, half));
		/* Only where both processes have the same pages. */
		if (variant->map == map_sysv) {
			pid = fork();
			ASSERT_LE(0, pid);
			if (!pid)
				_exit(leave(rest, half) ? 1 : 0);
			ASSERT_EQ(pid, waitpid(pid, &status, 0));
			ASSERT_EQ(0, status);
		}
		ASSERT_EQ(0, rounds_pass(self->board))
			TH_LOG("error %d", self->board->error);
		for (size_t p = 0; p < half / page; p++) {
			ASSERT_EQ(0, transfer(self->fd, BY_KERNEL, &self->to, 0,
					      &other, p * page, page));
			ASSERT_EQ(0, memcmp(self->copy, rest + p * page, page));
			ASSERT_EQ(frames[p], frame_of_touched(rest + p * page))
				TH_LOG("round %d, page %zu", i, p);
		}
		ASSERT_EQ(0, stale_pages(self->fd, other.handle));
		/* What only the first region had does go. */
		ASSERT_EQ(0, wait_paged_out(self->board, self->at, half / 2));
		ASSERT_EQ(0, region_unregister(self->fd, other.handle));
		ASSERT_EQ(0, munlock(rest, half));
	}
	EXPECT_EQ(-1, pattern_check(self->at, LENGTH, 1));
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
