// SPDX-License-Identifier: GPL-2.0
/*
 * Faults on exchangeable memory that come late, and those that the driver cannot
 * serve.
 */
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>

#include "uldma_harness.h"
#include "uldma_exchange.h"

/* One fault each: more than the toucher can take before it is overtaken. */
#define PAGES 256
#define ROUNDS 150
/* The time in which a part of the faults has come; any will do. */
#define LONGEST_NS 2000000

FIXTURE(late) {
	int fd;
	size_t page;
	int sink[2];
};

FIXTURE_SETUP(late)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->page = page_size();
	ASSERT_EQ(0, pipe(self->sink));
}

FIXTURE_TEARDOWN(late)
{
	close(self->sink[0]);
	close(self->sink[1]);
	close(self->fd);
}

/**
 * struct toucher - a thread that touches all pages of a mapping, one by one
 * @thread: the thread
 * @at: the mapping, or NULL while there is none
 * @page: size of a page
 * @touched: number of mappings that it has left
 * @ends: true if there will be no more
 */
struct toucher {
	pthread_t thread;
	char *at;
	size_t page;
	int touched;
	bool ends;
};

/* Loads from each page, up to the first that raises SIGBUS; faults only. */
static void load_all(const char *at, size_t page)
{
	if (sigsetjmp(touch_return, 1))
		return;
	for (size_t i = 0; i < PAGES; i++)
		(void)READ_ONCE(at[i * page]);
}

static void *run_toucher(void *arg)
{
	struct sigaction act = { .sa_handler = touch_failed };
	struct toucher *t = arg;

	sigaction(SIGBUS, &act, NULL);
	while (!__atomic_load_n(&t->ends, __ATOMIC_ACQUIRE)) {
		char *at = __atomic_load_n(&t->at, __ATOMIC_ACQUIRE);

		if (at) {
			load_all(at, t->page);
			__atomic_store_n(&t->at, NULL, __ATOMIC_RELAXED);
			__atomic_add_fetch(&t->touched, 1, __ATOMIC_RELEASE);
		}
		sched_yield();
	}
	return NULL;
}

/* Sleeps, so that the toucher runs until the timer interrupts it. */
static void nap(long ns)
{
	struct timespec t = { .tv_nsec = ns };

	nanosleep(&t, NULL);
}

/* Waits until the toucher has left the mapping. */
static bool has_left(struct toucher *t, int round)
{
	struct timespec now, limit;

	clock_gettime(CLOCK_MONOTONIC, &limit);
	limit.tv_sec += PATIENCE / SECOND;
	while (__atomic_load_n(&t->touched, __ATOMIC_ACQUIRE) < round) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec > limit.tv_sec)
			return false;
		nap(LONGEST_NS / 10);
	}
	return true;
}

/* Makes each page a mapping of its own, so that no fault maps its neighbours. */
static int split(char *at, size_t page)
{
	for (size_t i = 0; i < PAGES; i += 2)
		if (mprotect(at + i * page, page, PROT_READ))
			return -errno;
	return 0;
}

/* The number of pages of a mapping that can be read. */
static int readable(struct _test_data_late *self, const char *at)
{
	int count = 0;
	char byte;

	for (size_t i = 0; i < PAGES; i++) {
		if (write(self->sink[1], at + i * self->page, 1) != 1)
			continue;
		count++;
		if (read(self->sink[0], &byte, 1) != 1)
			return -errno;
	}
	return count;
}

/*
 * A memory ends between a fault that finds its number and the one that finds its
 * pages, and the next memory gets the number: the fault gets none of its pages.
 *
 * The thread that ends the memory runs on the same CPU as the one that faults,
 * before all others, so a timer lets it overtake a fault anywhere.
 */
TEST_F(late, fault_of_an_earlier_memory)
{
	struct sched_param first = { .sched_priority = 1 };
	struct toucher t = { .page = self->page };
	size_t length = PAGES * self->page;
	struct memory old, new;
	int left = 0;

	ASSERT_EQ(0, pin_to(0));
	/* The other thread does not get the priority. */
	if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &first))
		SKIP(return, "no real-time priority: %s", strerror(errno));
	ASSERT_EQ(0, pthread_create(&t.thread, NULL, run_toucher, &t));
	srand(1);
	for (int round = 1; round <= ROUNDS && !left; round++) {
		ASSERT_EQ(0, memory_create(self->fd, length, &old));
		ASSERT_EQ(0, memory_map(self->fd, &old));
		ASSERT_EQ(0, split(old.at, self->page));
		__atomic_store_n(&t.at, old.at, __ATOMIC_RELEASE);
		nap(rand() % LONGEST_NS);
		ASSERT_EQ(0, region_unregister(self->fd, old.r.handle));
		ASSERT_EQ(0, memory_create(self->fd, length, &new));
		ASSERT_TRUE(has_left(&t, round));
		left = readable(self, old.at);
		EXPECT_EQ(0, left)
			TH_LOG("round %d", round);
		ASSERT_EQ(0, munmap(old.at, length));
		ASSERT_EQ(0, region_unregister(self->fd, new.r.handle));
	}
	__atomic_store_n(&t.ends, true, __ATOMIC_RELEASE);
	EXPECT_EQ(0, pthread_join(t.thread, NULL));
}

static int watch(int uffd, char *start, size_t length, __u64 mode)
{
	struct uffdio_register range = {
		.range = { .start = (uintptr_t)start, .len = length },
		.mode = mode,
	};

	return ioctl(uffd, UFFDIO_REGISTER, &range) ? -errno : 0;
}

/*
 * With userfaultfd, the memory manager would leave marks where the driver takes
 * pages out, and would raise faults for them that no insertion ends.
 */
TEST_F(late, not_watched_by_userfaultfd)
{
	struct uffdio_api api = {
		.api = UFFD_API,
		.features = UFFD_FEATURE_WP_ASYNC |
			    UFFD_FEATURE_WP_UNPOPULATED,
	};
	size_t length = 4 * self->page;
	char *other = buffer(length);
	struct memory m;
	int uffd;

	ASSERT_EQ(0, memory_create(self->fd, length, &m));
	ASSERT_EQ(0, memory_map(self->fd, &m));
	ASSERT_NE(NULL, other);
	uffd = syscall(__NR_userfaultfd, O_CLOEXEC);
	ASSERT_LE(0, uffd);
	ASSERT_EQ(0, ioctl(uffd, UFFDIO_API, &api));
	/* It takes any other memory. */
	EXPECT_EQ(0, watch(uffd, other, length, UFFDIO_REGISTER_MODE_WP));
	EXPECT_EQ(-EINVAL, watch(uffd, m.at, length, UFFDIO_REGISTER_MODE_WP));
	EXPECT_EQ(-EINVAL, watch(uffd, m.at, length,
				 UFFDIO_REGISTER_MODE_MISSING));
	EXPECT_EQ(-EINVAL, watch(uffd, m.at, length,
				 UFFDIO_REGISTER_MODE_MINOR));
	close(uffd);
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
