// SPDX-License-Identifier: GPL-2.0
/*
 * The driver is unbound while files are open, memory is pinned, pages are
 * mapped and processes wait: all of them learn it, and none hangs.
 */
#include <pthread.h>

#include "uldma_harness.h"
#include "uldma_bind.h"
#include "uldma_exchange.h"
#include "uldma_lmm.h"
#include "uldma_window.h"

#define NAME 0x756e62696e64ULL
#define LENGTH 65536
/* Far more than anything else that unbinding frees. */
#define EXCHANGEABLE (64UL << 20)

static struct pci_address device;

FIXTURE(unbind) {
	int fd;
	long long pins;
	char *buf;
	struct region r;
	struct context c;
	struct segment s;
};

FIXTURE_SETUP(unbind)
{
	if (geteuid())
		SKIP(return, "only root can unbind a driver");
	ASSERT_EQ(0, driver_find_device(&device));
	self->pins = machine_pins();
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->buf = buffer(LENGTH);
	ASSERT_NE(NULL, self->buf);
	ASSERT_EQ(0, region_register(self->fd, self->buf, LENGTH, RW,
				     &self->r));
	ASSERT_EQ(0, context_create(self->fd, &self->c));
	ASSERT_EQ(0, context_map(self->fd, &self->c));
	ASSERT_EQ(0, region_map(self->fd, &self->r, PROT_READ | PROT_WRITE));
	ASSERT_EQ(0, segment_create(self->fd, NAME, LENGTH, &self->s));
	ASSERT_EQ(0, segment_map(self->fd, &self->s));
}

FIXTURE_TEARDOWN(unbind)
{
	close(self->fd);
	/* Whatever a test left behind, the next one gets a device. */
	driver_bind(&device);
	EXPECT_EQ(0, access(uldma_node(), F_OK));
}

TEST_F(unbind, every_call_fails)
{
	struct uldma_query q = { .size = sizeof(q) };
	struct uldma_event event;
	struct region other;
	struct context c;
	struct segment s;
	__u64 ticket;

	ASSERT_EQ(0, driver_unbind(&device));
	EXPECT_EQ(-ENODEV, uldma_ioctl(self->fd, ULDMA_IOC_QUERY, &q));
	EXPECT_EQ(-ENODEV, region_register(self->fd, self->buf, 1, RW, &other));
	EXPECT_EQ(-ENODEV, segment_create(self->fd, NAME + 1, 1, &s));
	EXPECT_EQ(-ENODEV, segment_attach(self->fd, NAME + 2, &s));
	EXPECT_EQ(-ENODEV, kernel_start(self->fd, self->r.handle, 0,
					self->r.handle, 4096, 8, &ticket));
	EXPECT_EQ(POLLHUP, poll_for(self->fd, 0) & POLLHUP);
	EXPECT_EQ(-1, read(self->fd, &event, sizeof(event)));
	EXPECT_EQ(ENODEV, errno);
	EXPECT_EQ(0, context_destroy(self->fd));
	EXPECT_EQ(-ENODEV, context_create(self->fd, &c));
}

TEST_F(unbind, every_mapping_is_a_bus_error)
{
	ASSERT_EQ(0, touch((void *)shadow_of(&self->r, 0), STORE));
	ASSERT_EQ(0, touch((void *)self->c.status, LOAD));
	ASSERT_EQ(0, touch(self->s.map, STORE));
	ASSERT_EQ(0, driver_unbind(&device));
	EXPECT_EQ(SIGBUS, touch((void *)shadow_of(&self->r, 0), STORE));
	EXPECT_EQ(SIGBUS, touch((void *)shadow_of(&self->r, 0), LOAD));
	EXPECT_EQ(SIGBUS, touch((void *)self->c.status, LOAD));
	EXPECT_EQ(SIGBUS, touch(self->s.map, LOAD));
	/* Also after the device was bound again: this file's device has ended. */
	ASSERT_EQ(0, driver_bind(&device));
	EXPECT_EQ(SIGBUS, touch((void *)shadow_of(&self->r, 0), STORE));
	EXPECT_EQ(SIGBUS, touch(self->s.map, LOAD));
}

TEST_F(unbind, pins_go_with_the_region)
{
	ASSERT_EQ(0, driver_unbind(&device));
	EXPECT_EQ(LENGTH / page_size(), vm_pin());
	EXPECT_EQ(0, region_unregister(self->fd, self->r.handle));
	EXPECT_EQ(0, vm_pin());
	EXPECT_EQ(self->pins, machine_pins());
}

/* A mapping keeps the file, so all of them go first. */
static int end_file(struct _test_data_unbind *self)
{
	int fd = self->fd;

	self->fd = -1;
	return munmap(self->r.shadow, self->r.shadow_length) ||
			       munmap(self->s.map, self->s.length) ||
			       munmap(self->c.page, self->c.page_length) ||
			       munmap(self->c.status, self->c.page_length) ||
			       close(fd) ?
		       -errno :
		       0;
}

TEST_F(unbind, pins_go_with_the_file)
{
	ASSERT_EQ(0, driver_unbind(&device));
	ASSERT_EQ(0, end_file(self));
	EXPECT_EQ(0, vm_pin());
	EXPECT_EQ(self->pins, machine_pins());
}

/* Waits until the machine has so many bytes free. */
static bool wait_free(long long bytes)
{
	struct timespec now, limit;

	clock_gettime(CLOCK_MONOTONIC, &limit);
	limit.tv_sec += PATIENCE / SECOND;
	do {
		if (number_in("/proc/meminfo", "MemFree") * 1024 >= bytes)
			return true;
		sched_yield();
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec <= limit.tv_sec);
	return false;
}

/* The pages of the driver end with the charge for them, in any open file. */
TEST_F(unbind, exchangeable_memory)
{
	long own = LENGTH / page_size();
	struct memory m, other;
	long long free;

	ASSERT_EQ(0, memory_create(self->fd, EXCHANGEABLE, &m));
	ASSERT_EQ(0, memory_map(self->fd, &m));
	ASSERT_EQ(0, touch(m.at, STORE));
	ASSERT_EQ(0, memory_protect(self->fd, &m, 0, page_size()));
	EXPECT_EQ(EXCHANGEABLE / page_size() + 1 + own, vm_pin());
	free = number_in("/proc/meminfo", "MemFree") * 1024;
	ASSERT_EQ(0, driver_unbind(&device));
	EXPECT_EQ(own, vm_pin());
	EXPECT_TRUE(wait_free(free + EXCHANGEABLE / 4 * 3));
	EXPECT_EQ(SIGBUS, touch(m.at, LOAD));
	EXPECT_EQ(-ENODEV, memory_create(self->fd, page_size(), &other));
	EXPECT_EQ(-ENODEV, memory_protect(self->fd, &m, 0, page_size()));
	EXPECT_EQ(-ENODEV, memory_release(self->fd, &m, 0, page_size()));
	EXPECT_EQ(-ENODEV, memory_swap(self->fd, &m, 0, &m, page_size(),
				       page_size()));
	EXPECT_EQ(0, region_unregister(self->fd, m.r.handle));
}

/* The next driver has the whole window, whatever of it the former one's files had. */
TEST_F(unbind, regions_in_the_window)
{
	struct window w, other;
	int fd;

	ASSERT_EQ(0, window_make(self->fd, RW, LENGTH, &w));
	ASSERT_EQ(0, touch(w.at, STORE));
	ASSERT_EQ(0, driver_unbind(&device));
	EXPECT_EQ(SIGBUS, touch(w.at, LOAD));
	EXPECT_EQ(SIGBUS, touch(w.at, STORE));
	EXPECT_EQ(-ENODEV, window_create(self->fd, RW, LENGTH, &other));
	ASSERT_EQ(0, driver_bind(&device));
	fd = uldma_open(0);
	ASSERT_LE(0, fd);
	EXPECT_EQ(0, query(fd).out_user_window);
	ASSERT_EQ(0, window_make(fd, RW, LENGTH, &other));
	EXPECT_EQ(SIGBUS, touch(w.at, STORE));
	EXPECT_EQ(0, region_unregister(self->fd, w.r.handle));
	EXPECT_EQ(0, touch(other.at, LOAD));
	ASSERT_EQ(0, munmap(other.at, LENGTH));
	close(fd);
}

TEST_F(unbind, questions_about_memory)
{
	struct uldma_region_charge charge;
	struct uldma_region_blocks blocks;
	struct uldma_region_query query;
	struct uldma_block block;
	struct uldma_lmm l;

	ASSERT_EQ(0, driver_unbind(&device));
	EXPECT_EQ(-ENODEV, region_query(self->fd, self->r.handle, &query));
	EXPECT_EQ(-ENODEV, region_charge(self->fd, self->buf, 1, RW, &charge));
	EXPECT_EQ(-ENODEV, region_blocks(self->fd, self->r.handle, 0, 0,
					 &block, 1, &blocks));
	EXPECT_EQ(-ENODEV, lmm_ioctl(self->fd, 0, &l));
	EXPECT_EQ(-ENODEV, lmm_ioctl(self->fd, ULDMA_LMM_CACHE_ON, &l));
	/* But ending regions is always possible. */
	EXPECT_EQ(0, region_cleanup(self->fd));
	EXPECT_EQ(-ENOENT, region_unregister(self->fd, self->r.handle));
	EXPECT_EQ(0, vm_pin());
	EXPECT_EQ(self->pins, machine_pins());
}

/* Locked memory and what is cached of it are watched until they are given up. */
TEST_F(unbind, memory_changes_afterwards)
{
	size_t page = page_size();
	char *more = buffer(8 * page);
	struct region r;

	ASSERT_NE(NULL, more);
	ASSERT_EQ(0, turn_cache_on(self->fd));
	ASSERT_EQ(0, region_register(self->fd, more, 8 * page, RW, &r));
	ASSERT_EQ(0, region_unregister(self->fd, r.handle));
	EXPECT_EQ(LENGTH / page + 8, vm_pin());
	ASSERT_EQ(0, munmap(self->buf, page));
	ASSERT_EQ(0, driver_unbind(&device));
	ASSERT_EQ(0, munmap(self->buf + page, page));
	ASSERT_EQ(0, munmap(more, 4 * page));
	ASSERT_EQ(0, driver_bind(&device));
	ASSERT_EQ(0, munmap(self->buf + 2 * page, page));
	ASSERT_EQ(0, munmap(more + 4 * page, 4 * page));
	ASSERT_EQ(0, end_file(self));
	EXPECT_EQ(0, vm_pin());
	EXPECT_EQ(self->pins, machine_pins());
}

struct changer {
	char *buf;
	bool stop;
};

static void *change_again(void *arg)
{
	struct changer *c = arg;

	while (!READ_ONCE(c->stop)) {
		madvise(c->buf, LENGTH, MADV_DONTNEED);
		memset(c->buf, 1, LENGTH);
	}
	return NULL;
}

/* The driver revalidates again and again while the device is removed. */
TEST_F_TIMEOUT(unbind, while_memory_changes, 120)
{
	struct changer c = { self->buf };
	pthread_t thread;
	struct region r;
	int fd;

	ASSERT_EQ(0, pthread_create(&thread, NULL, change_again, &c));
	for (int i = 0; i < 10; i++) {
		fd = uldma_open(0);
		ASSERT_LE(0, fd);
		ASSERT_EQ(0, turn_cache_on(fd));
		ASSERT_EQ(0, region_register(fd, self->buf, LENGTH, RW, &r));
		if (i % 2)
			ASSERT_EQ(0, region_unregister(fd, r.handle));
		EXPECT_EQ(0, driver_unbind(&device));
		ASSERT_EQ(0, close(fd));
		EXPECT_EQ(0, driver_bind(&device));
	}
	WRITE_ONCE(c.stop, true);
	ASSERT_EQ(0, pthread_join(thread, NULL));
	ASSERT_EQ(0, end_file(self));
	EXPECT_EQ(0, vm_pin());
	EXPECT_EQ(self->pins, machine_pins());
}

TEST_F(unbind, new_file_works)
{
	struct region r;
	int fd;

	ASSERT_EQ(0, driver_unbind(&device));
	ASSERT_EQ(0, driver_bind(&device));
	fd = uldma_open(0);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, region_register(fd, self->buf, LENGTH, RW, &r));
	pattern_fill(self->buf, 4096, 1);
	EXPECT_EQ(0, transfer(fd, BY_KERNEL, &r, 8192, &r, 0, 4096));
	EXPECT_EQ(-1, pattern_check(self->buf + 8192, 4096, 1));
	close(fd);
}

static void *read_one(void *arg)
{
	struct uldma_event event;
	int *fd = arg;
	ssize_t got;

	do {
		got = read(*fd, &event, sizeof(event));
	} while (got > 0);
	return (void *)(long)errno;
}

TEST_F_TIMEOUT(unbind, waiting_reader_wakes, 30)
{
	pthread_t thread;
	void *err;

	ASSERT_EQ(0, pthread_create(&thread, NULL, read_one, &self->fd));
	ASSERT_EQ(0, driver_unbind(&device));
	ASSERT_EQ(0, pthread_join(thread, &err));
	EXPECT_EQ(ENODEV, (long)err);
}

/* Starts transfers until one cannot be started: by a bus error. */
static int hammer(void *arg)
{
	int fd = uldma_open(0);
	char *buf = buffer(LENGTH);
	struct context c;
	struct region r;
	int *ready = arg;

	if (fd < 0 || region_register(fd, buf, LENGTH, RW, &r) ||
	    context_create(fd, &c) || context_map(fd, &c) ||
	    region_map(fd, &r, PROT_READ | PROT_WRITE))
		return -EIO;
	if (write(*ready, "", 1) != 1)
		return -EPIPE;
	for (;;)
		shadow_start(&r, LENGTH / 2, &r, 0, LENGTH / 2);
}

TEST_F_TIMEOUT(unbind, running_transfers, 60)
{
	int ready[2], status;
	char byte;
	pid_t pid;

	ASSERT_EQ(0, pipe(ready));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(-hammer(&ready[1]));
	}
	close(ready[1]);
	ASSERT_EQ(1, read(ready[0], &byte, 1));
	ASSERT_EQ(0, driver_unbind(&device));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_TRUE(WIFSIGNALED(status));
	EXPECT_EQ(SIGBUS, WTERMSIG(status));
}

static void *open_and_close(void *arg)
{
	bool *stop = arg;
	struct region r;
	char *buf = buffer(4096);
	int fd;

	while (!READ_ONCE(*stop)) {
		fd = uldma_open(0);
		if (fd >= 0) {
			region_register(fd, buf, 4096, RW, &r);
			close(fd);
		}
	}
	return NULL;
}

TEST_F_TIMEOUT(unbind, while_others_open, 60)
{
	bool stop = false;
	pthread_t thread;

	ASSERT_EQ(0, pthread_create(&thread, NULL, open_and_close, &stop));
	for (int i = 0; i < 10; i++) {
		EXPECT_EQ(0, driver_unbind(&device));
		EXPECT_EQ(0, driver_bind(&device));
	}
	WRITE_ONCE(stop, true);
	ASSERT_EQ(0, pthread_join(thread, NULL));
	EXPECT_EQ(LENGTH / page_size(), vm_pin());
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
