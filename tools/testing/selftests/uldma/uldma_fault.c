// SPDX-License-Identifier: GPL-2.0
/*
 * A registration that sleeps in a page fault for as long as the provider of the
 * memory likes: whatever else uses the file goes on meanwhile.
 *
 * The fault is one of userfaultfd, which is answered last. Nothing here is
 * bounded by time but by the harness: what comes before the answer has to end
 * without it.
 */
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>

#include "uldma_harness.h"
#include "uldma_bind.h"
#include "uldma_kinds.h"
#include "uldma_lmm.h"

static struct pci_address device;

struct registration {
	pthread_t thread;
	int fd;
	char *buf;
	size_t length;
	struct region r;
	int ret;
	bool ended;
};

static void *run_registration(void *arg)
{
	struct registration *reg = arg;

	reg->ret = region_register(reg->fd, reg->buf, reg->length, RW, &reg->r);
	__atomic_store_n(&reg->ended, true, __ATOMIC_RELEASE);
	return NULL;
}

static int registration_start(struct registration *reg)
{
	return -pthread_create(&reg->thread, NULL, run_registration, reg);
}

static bool has_ended(struct registration *reg)
{
	return __atomic_load_n(&reg->ended, __ATOMIC_ACQUIRE);
}

FIXTURE(fault) {
	long long pins;
	int uffd;
	int fd;
	size_t page;
	/* Two pages, of which the second is missing. */
	char *memory;
	/* Registered already. */
	char *buf;
	struct region r;
	struct registration reg;
};

/* A process that may not handle faults of the kernel has no such provider. */
static int fault_handler(char *start, size_t length)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = {
		.range = { .start = (uintptr_t)start, .len = length },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = syscall(__NR_userfaultfd, O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &range))
		return -errno;
	return fd;
}

/* Waits until something touches the missing page. */
static int fault_wait(int uffd)
{
	struct uffd_msg msg;

	if (read(uffd, &msg, sizeof(msg)) != sizeof(msg))
		return -errno;
	return msg.event == UFFD_EVENT_PAGEFAULT ? 0 : -EPROTO;
}

static int fault_answer(int uffd, char *page)
{
	struct uffdio_zeropage zero = {
		.range = { .start = (uintptr_t)page, .len = page_size() },
	};

	return ioctl(uffd, UFFDIO_ZEROPAGE, &zero) ? -errno : 0;
}

FIXTURE_SETUP(fault)
{
	self->page = page_size();
	self->pins = machine_pins();
	self->fd = uldma_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	self->buf = buffer(4 * self->page);
	ASSERT_NE(NULL, self->buf);
	ASSERT_EQ(0, region_register(self->fd, self->buf, 4 * self->page, RW,
				     &self->r));
	self->memory = mmap(NULL, 2 * self->page, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->memory);
	self->memory[0] = 1;
	self->uffd = fault_handler(self->memory + self->page, self->page);
	if (self->uffd == -EPERM)
		SKIP(return, "userfaultfd: %s", strerror(-self->uffd));
	ASSERT_LE(0, self->uffd);
	self->reg = (struct registration){
		.fd = self->fd,
		.buf = self->memory,
		.length = 2 * self->page,
	};
	ASSERT_EQ(0, registration_start(&self->reg));
	ASSERT_EQ(0, fault_wait(self->uffd));
}

FIXTURE_TEARDOWN(fault)
{
	/* After a skipped or failed test no process waits any more. */
	close(self->uffd);
	close(self->fd);
	EXPECT_EQ(0, vm_pin());
	EXPECT_GE(self->pins, machine_pins());
}

/* The registration ends once it is answered, and not before. */
static int answer(struct _test_data_fault *self)
{
	int ret;

	if (has_ended(&self->reg))
		return -EALREADY;
	ret = fault_answer(self->uffd, self->memory + self->page);
	pthread_join(self->reg.thread, NULL);
	return ret;
}

TEST_F(fault, other_calls_go_on)
{
	struct uldma_region_query q;
	struct uldma_region_charge c;
	struct uldma_lmm l;
	struct region other, again;
	char *buf = buffer(self->page);

	ASSERT_NE(NULL, buf);
	EXPECT_EQ(0, region_register(self->fd, buf, self->page, RW, &other));
	EXPECT_EQ(0, region_register(self->fd, self->buf, self->page, RW,
				     &again));
	EXPECT_EQ(0, region_query(self->fd, self->r.handle, &q));
	EXPECT_EQ(0, region_charge(self->fd, self->memory, self->page, RW, &c));
	EXPECT_EQ(0, lmm_ioctl(self->fd, 0, &l));
	EXPECT_EQ(0, region_unregister(self->fd, again.handle));
	EXPECT_EQ(0, region_unregister(self->fd, other.handle));
	EXPECT_EQ(0, region_unregister(self->fd, self->r.handle));
	ASSERT_EQ(0, answer(self));
	EXPECT_EQ(0, self->reg.ret);
	EXPECT_EQ(0, region_unregister(self->fd, self->reg.r.handle));
}

static void *unmap(void *arg)
{
	struct _test_data_fault *self = arg;

	munmap(self->buf + self->page, self->page);
	return NULL;
}

/* The worker revalidates the addresses, and reports the change. */
TEST_F(fault, changes_are_told_of)
{
	struct uldma_event event;
	pthread_t thread;

	ASSERT_EQ(0, -pthread_create(&thread, NULL, unmap, self));
	pthread_join(thread, NULL);
	EXPECT_EQ(0, event_wait(self->fd, ULDMA_EVENT_STALE, SOON, &event));
	EXPECT_EQ(self->r.handle, event.handle);
	ASSERT_EQ(0, answer(self));
	EXPECT_EQ(0, self->reg.ret);
}

TEST_F(fault, files_are_closed)
{
	struct region other;
	int copy = dup(self->fd);
	int more = uldma_open(0);
	char *buf = buffer(self->page);

	ASSERT_LE(0, copy);
	ASSERT_LE(0, more);
	ASSERT_NE(NULL, buf);
	EXPECT_EQ(0, close(copy));
	EXPECT_EQ(0, region_register(more, buf, self->page, RW, &other));
	EXPECT_EQ(0, close(more));
	ASSERT_EQ(0, answer(self));
	EXPECT_EQ(0, self->reg.ret);
}

/* A change before the registration has an area causes an event, too. */
TEST_F(fault, changes_of_what_is_being_pinned)
{
	struct uldma_event event;

	ASSERT_EQ(0, munmap(self->memory, self->page));
	/* Its worker looks in vain, and says so by the one of another region. */
	ASSERT_EQ(0, munmap(self->buf, self->page));
	EXPECT_EQ(0, event_wait(self->fd, ULDMA_EVENT_STALE, SOON, &event));
	EXPECT_EQ(self->r.handle, event.handle);
	ASSERT_EQ(0, answer(self));
	/* Either page may have been pinned first. */
	if (self->reg.ret) {
		EXPECT_EQ(-EFAULT, self->reg.ret);
		return;
	}
	EXPECT_EQ(0, event_wait(self->fd, ULDMA_EVENT_STALE, SOON, &event));
	EXPECT_EQ(self->reg.r.handle, event.handle);
	EXPECT_EQ(self->page, event.value);
}

static void on_signal(int number)
{
}

/* Calls that need the same pages wait for them, until a signal comes. */
TEST_F(fault, same_pages_are_waited_for)
{
	struct sigaction action = { .sa_handler = on_signal };
	struct registration same = self->reg;

	ASSERT_EQ(0, sigaction(SIGUSR1, &action, NULL));
	ASSERT_EQ(0, registration_start(&same));
	/* A signal that comes before the call is lost. */
	while (!has_ended(&same)) {
		pthread_kill(same.thread, SIGUSR1);
		sched_yield();
	}
	pthread_join(same.thread, NULL);
	EXPECT_EQ(-EINTR, same.ret);
	same.ended = false;
	ASSERT_EQ(0, registration_start(&same));
	ASSERT_EQ(0, answer(self));
	pthread_join(same.thread, NULL);
	EXPECT_EQ(0, self->reg.ret);
	EXPECT_EQ(0, same.ret);
	/* Once pinned, once charged: the two pages, and those of the fixture. */
	EXPECT_EQ(6, vm_pin());
}

TEST_F(fault, unbinding_goes_on)
{
	struct uldma_query q = { .size = sizeof(q) };
	int ret;

	if (driver_find_device(&device))
		SKIP(return, "no device on a bus");
	ret = driver_unbind(&device);
	if (ret)
		SKIP(return, "unbind: %s", strerror(-ret));
	EXPECT_EQ(-ENODEV, uldma_ioctl(self->fd, ULDMA_IOC_QUERY, &q));
	EXPECT_EQ(0, answer(self));
	EXPECT_EQ(-ENODEV, self->reg.ret);
	EXPECT_EQ(0, driver_bind(&device));
}

/* Regions over a file, each of which the worker has to wait for by itself. */
#define REGIONS 512

FIXTURE(file) {
	int uffd;
	int fd;
	int file;
	size_t page;
	/* Missing: what is written from here holds the file's lock. */
	char *missing;
	char *map;
	pthread_t writer;
	/* Of other memory, behind the file's mapping. */
	char *last;
	struct region r;
};

static void *run_writer(void *arg)
{
	struct _test_data_file *self = arg;

	return (void *)(long)pwrite(self->file, self->missing, 1, 0);
}

FIXTURE_SETUP(file)
{
	struct region other;

	self->page = page_size();
	self->fd = uldma_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	self->file = memfd(REGIONS * self->page, 0);
	ASSERT_LE(0, self->file);
	self->missing = mmap(NULL, self->page, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->missing);
	/* In one piece, so that the worker comes to the last page last. */
	self->map = mmap(NULL, (REGIONS + 1) * self->page,
			 PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0);
	ASSERT_NE(MAP_FAILED, self->map);
	ASSERT_EQ(self->map, mmap(self->map, REGIONS * self->page,
				  PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_FIXED, self->file, 0));
	for (int i = 0; i < REGIONS; i++)
		ASSERT_EQ(0, region_register(self->fd,
					     self->map + i * self->page,
					     self->page, RW, &other));
	self->last = self->map + REGIONS * self->page;
	ASSERT_EQ(0, region_register(self->fd, self->last, self->page, RW,
				     &self->r));
	self->uffd = fault_handler(self->missing, self->page);
	if (self->uffd == -EPERM)
		SKIP(return, "userfaultfd: %s", strerror(-self->uffd));
	ASSERT_LE(0, self->uffd);
	ASSERT_EQ(0, -pthread_create(&self->writer, NULL, run_writer, self));
	ASSERT_EQ(0, fault_wait(self->uffd));
	ASSERT_EQ(0, madvise(self->map, REGIONS * self->page, MADV_DONTNEED));
	ASSERT_EQ(0, munmap(self->last, self->page));
}

FIXTURE_TEARDOWN(file)
{
	close(self->uffd);
	close(self->fd);
	EXPECT_EQ(0, vm_pin());
}

static void writer_end(struct _test_data_file *self)
{
	fault_answer(self->uffd, self->missing);
	pthread_join(self->writer, NULL);
}

/* The worker waits for the lock once, not for every region over the file. */
TEST_F(file, stale_regions_are_found_behind_it)
{
	struct uldma_event event;

	EXPECT_EQ(0, event_wait(self->fd, ULDMA_EVENT_STALE, SOON, &event));
	EXPECT_EQ(self->r.handle, event.handle);
	writer_end(self);
}

TEST_F(file, close_does_not_wait_for_it)
{
	EXPECT_EQ(0, close(self->fd));
	EXPECT_EQ(0, vm_pin());
	writer_end(self);
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
