// SPDX-License-Identifier: GPL-2.0
/*
 * One process that has two devices open: a page that it registers at both is
 * pinned and charged once, until the last registration has ended.
 */
#include <pthread.h>

#include "uldma_harness.h"
#include "uldma_conn.h"
#include "uldma_lmm.h"

#define PAGES 8
#define ROUNDS 200
#define AGAIN "--again"

/* Opens one of the two devices. */
static int open_device(int which)
{
	return conn_open_at(which ? uldma_other() : uldma_node(), 0);
}

FIXTURE(devices) {
	int fd[2];
	size_t page;
	char *buf;
	struct region r[2];
	long long pins;
};

FIXTURE_SETUP(devices)
{
	self->page = page_size();
	self->buf = buffer(PAGES * self->page);
	ASSERT_NE(NULL, self->buf);
	self->pins = machine_pins();
	for (int i = 0; i < 2; i++) {
		self->fd[i] = open_device(i);
		ASSERT_LE(0, self->fd[i]);
	}
}

FIXTURE_TEARDOWN(devices)
{
	for (int i = 0; i < 2; i++)
		close(self->fd[i]);
	EXPECT_EQ(0, vm_pin());
	/* Only root sees the counters of this moment. */
	if (!geteuid())
		EXPECT_EQ(self->pins, machine_pins());
}

/* Registers pages of the buffer at one of the devices. */
static int register_at(struct _test_data_devices *self, int which, int first,
		       int count, __u32 access)
{
	return region_register(self->fd[which], self->buf + first * self->page,
			       count * self->page, access, &self->r[which]);
}

static int unregister_at(struct _test_data_devices *self, int which)
{
	return region_unregister(self->fd[which], self->r[which].handle);
}

/* Closes a device: 0 or a negated errno. */
static int close_at(struct _test_data_devices *self, int which)
{
	int fd = self->fd[which];

	self->fd[which] = -1;
	return close(fd) ? -errno : 0;
}

/*
 * Pages that the process is charged for, if the machine has as many pins. The
 * driver pins a page for a moment when it finds out what an address means now.
 */
static long pinned_once(struct _test_data_devices *self)
{
	__u64 limit = now_ns() + PATIENCE;

	for (;;) {
		long charged = vm_pin();
		long long pinned = machine_pins() - self->pins;

		if (charged == pinned)
			return charged;
		if (now_ns() > limit)
			return -1000 * charged - pinned;
		sched_yield();
	}
}

FIXTURE_VARIANT(devices) {
	int first;
	bool by_close;
};

FIXTURE_VARIANT_ADD(devices, first_unregisters_first) { 0, false };
FIXTURE_VARIANT_ADD(devices, second_unregisters_first) { 1, false };
FIXTURE_VARIANT_ADD(devices, first_closes_first) { 0, true };
FIXTURE_VARIANT_ADD(devices, second_closes_first) { 1, true };

/* Ends what is registered at one of the devices. */
static int end_at(struct _test_data_devices *self, bool by_close, int which)
{
	return by_close ? close_at(self, which) : unregister_at(self, which);
}

TEST_F(devices, same_pages)
{
	ASSERT_EQ(0, register_at(self, 0, 0, PAGES, RW));
	EXPECT_EQ(PAGES, pinned_once(self));
	ASSERT_EQ(0, register_at(self, 1, 0, PAGES, RW));
	EXPECT_EQ(PAGES, pinned_once(self));
	EXPECT_EQ(PAGES, pinned_pages(self->fd[0]));
	EXPECT_EQ(PAGES, pinned_pages(self->fd[1]));
	ASSERT_EQ(0, end_at(self, variant->by_close, variant->first));
	EXPECT_EQ(PAGES, pinned_once(self));
	ASSERT_EQ(0, end_at(self, variant->by_close, !variant->first));
	EXPECT_EQ(0, pinned_once(self));
}

TEST_F(devices, overlap)
{
	ASSERT_EQ(0, register_at(self, 0, 0, 5, RW));
	ASSERT_EQ(0, register_at(self, 1, 3, 5, RW));
	EXPECT_EQ(8, pinned_once(self));
	ASSERT_EQ(0, end_at(self, variant->by_close, variant->first));
	EXPECT_EQ(5, pinned_once(self));
	ASSERT_EQ(0, end_at(self, variant->by_close, !variant->first));
	EXPECT_EQ(0, pinned_once(self));
}

/* The rights at each device are its own. */
TEST_F(devices, reader_and_writer)
{
	ASSERT_EQ(0, register_at(self, 0, 0, PAGES, ULDMA_ACCESS_READ));
	ASSERT_EQ(0, register_at(self, 1, 0, PAGES, RW));
	EXPECT_EQ(PAGES, pinned_once(self));
	ASSERT_EQ(0, end_at(self, variant->by_close, variant->first));
	EXPECT_EQ(PAGES, pinned_once(self));
	ASSERT_EQ(0, end_at(self, variant->by_close, !variant->first));
	EXPECT_EQ(0, pinned_once(self));
}

/* What the first device had pinned before the second was opened counts, too. */
TEST_F(devices, opened_later)
{
	struct region half;

	ASSERT_EQ(0, close_at(self, 1));
	ASSERT_EQ(0, register_at(self, 0, 0, PAGES, RW));
	ASSERT_EQ(0, region_register(self->fd[0], self->buf,
				     self->page * PAGES / 2, RW, &half));
	self->fd[1] = open_device(1);
	ASSERT_LE(0, self->fd[1]);
	EXPECT_EQ(PAGES, pinned_once(self));
	ASSERT_EQ(0, register_at(self, 1, 0, PAGES, RW));
	EXPECT_EQ(PAGES, pinned_once(self));
	ASSERT_EQ(0, end_at(self, variant->by_close, variant->first));
	EXPECT_EQ(PAGES, pinned_once(self));
	ASSERT_EQ(0, end_at(self, variant->by_close, !variant->first));
	EXPECT_EQ(variant->by_close ? 0 : PAGES / 2, pinned_once(self));
}

/*
 * The addresses mean other pages now: the second device gets these, and the
 * first keeps the pages that were mapped when it registered them.
 */
TEST_F(devices, moved_pages)
{
	ASSERT_EQ(0, register_at(self, 0, 0, PAGES, RW));
	ASSERT_NE(MAP_FAILED,
		  mmap(self->buf, 4 * self->page, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	ASSERT_EQ(0, register_at(self, 1, 0, PAGES, RW));
	EXPECT_EQ(PAGES + 4, pinned_once(self));
	ASSERT_EQ(0, end_at(self, variant->by_close, variant->first));
	EXPECT_EQ(PAGES, pinned_once(self));
	ASSERT_EQ(0, end_at(self, variant->by_close, !variant->first));
	EXPECT_EQ(0, pinned_once(self));
}

/* A page that both have pinned needs no room below the limit. */
TEST_F(devices, limit)
{
	struct uldma_region_charge cost;
	struct region more;

	ASSERT_EQ(0, set_memlock(4 * self->page));
	ASSERT_EQ(0, drop_privileges());
	ASSERT_EQ(0, register_at(self, 0, 0, 4, RW));
	EXPECT_EQ(-ENOMEM, register_at(self, 1, 0, 5, RW));
	EXPECT_EQ(4, vm_pin());
	EXPECT_EQ(0, pinned_pages(self->fd[1]));
	ASSERT_EQ(0, region_charge(self->fd[1], self->buf, 5 * self->page, RW,
				   &cost));
	EXPECT_EQ(self->page, cost.out_charge);
	EXPECT_EQ(0, register_at(self, 1, 0, 4, RW));
	EXPECT_EQ(4, vm_pin());
	/* The other device's registration still has all pages. */
	ASSERT_EQ(0, end_at(self, variant->by_close, variant->first));
	EXPECT_EQ(-ENOMEM, region_register(self->fd[!variant->first],
					   self->buf + 4 * self->page, 1, RW,
					   &more));
	EXPECT_EQ(4, vm_pin());
}

/* Pages in the pin cache of one device are pinned already for the other. */
TEST_F(devices, cached)
{
	int first = variant->first;

	ASSERT_EQ(0, turn_cache_on(self->fd[first]));
	ASSERT_EQ(0, register_at(self, first, 0, PAGES, RW));
	ASSERT_EQ(0, unregister_at(self, first));
	ASSERT_EQ(0, register_at(self, !first, 0, PAGES, RW));
	EXPECT_EQ(PAGES, pinned_once(self));
	ASSERT_EQ(0, close_at(self, first));
	EXPECT_EQ(PAGES, pinned_once(self));
}

/* Registers the buffer at both devices in a process of its own. */
static int hold_both(struct _test_data_devices *self)
{
	char *buf = buffer(PAGES * self->page);
	struct region r;
	int fd;

	for (int i = 0; buf && i < 2; i++) {
		fd = open_device(i);
		if (fd < 0 || fcntl(fd, F_SETFD, 0) ||
		    region_register(fd, buf, PAGES * self->page, RW, &r))
			return -EIO;
	}
	return buf ? vm_pin() : -ENOMEM;
}

static void register_and_stay(int fd, void *arg)
{
	int pages = hold_both(arg);

	if (write(fd, &pages, sizeof(pages)) != sizeof(pages))
		_exit(1);
}

/* A child has memory of its own, and leaves that of its parent alone. */
TEST_F(devices, child_is_killed)
{
	struct helper child;
	int pages;

	ASSERT_EQ(0, register_at(self, 0, 0, PAGES, RW));
	ASSERT_EQ(0, helper_start(&child, register_and_stay, self));
	ASSERT_EQ(sizeof(pages), read(child.fd, &pages, sizeof(pages)));
	EXPECT_EQ(PAGES, pages);
	EXPECT_EQ(self->pins + 2 * PAGES, machine_pins());
	ASSERT_EQ(0, register_at(self, 1, 0, PAGES, RW));
	EXPECT_EQ(self->pins + 2 * PAGES, machine_pins());
	ASSERT_EQ(0, helper_kill(&child));
	EXPECT_EQ(PAGES, pinned_once(self));
	ASSERT_EQ(0, end_at(self, variant->by_close, variant->first));
	EXPECT_EQ(PAGES, pinned_once(self));
}

static void register_and_execute(int out, void *arg)
{
	char fd[16];

	if (hold_both(arg) < 0)
		_exit(1);
	snprintf(fd, sizeof(fd), "%d", out);
	execl("/proc/self/exe", "uldma_devices", AGAIN, fd, NULL);
	_exit(1);
}

/* The program that was executed, with both files still open. */
static int executed(const char *fd)
{
	int pages = vm_pin();

	return write(atoi(fd), &pages, sizeof(pages)) != sizeof(pages) ||
	       pause();
}

TEST_F(devices, another_program_is_executed)
{
	struct helper child;
	int pages;

	ASSERT_EQ(0, helper_start(&child, register_and_execute, self));
	ASSERT_EQ(sizeof(pages), read(child.fd, &pages, sizeof(pages)));
	EXPECT_EQ(0, pages);
	EXPECT_EQ(self->pins, machine_pins());
	ASSERT_EQ(0, helper_kill(&child));
}

struct race {
	struct _test_data_devices *self;
	pthread_barrier_t *together;
	int which;
	int failed;
};

static void *register_often(void *arg)
{
	struct race *race = arg;

	for (int i = 0; i < ROUNDS; i++) {
		pthread_barrier_wait(race->together);
		race->failed |= register_at(race->self, race->which, i % 3,
					    4, RW);
		race->failed |= unregister_at(race->self, race->which);
	}
	race->failed |= register_at(race->self, race->which, 0, PAGES, RW);
	return NULL;
}

TEST_F(devices, both_at_once)
{
	pthread_barrier_t together;
	struct race race[2];
	pthread_t thread[2];

	ASSERT_EQ(0, pthread_barrier_init(&together, NULL, 2));
	for (int i = 0; i < 2; i++) {
		race[i] = (struct race){ self, &together, i };
		ASSERT_EQ(0, pthread_create(&thread[i], NULL, register_often,
					    &race[i]));
	}
	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(0, pthread_join(thread[i], NULL));
		EXPECT_EQ(0, race[i].failed);
	}
	EXPECT_EQ(PAGES, pinned_once(self));
	ASSERT_EQ(0, end_at(self, variant->by_close, variant->first));
	EXPECT_EQ(PAGES, pinned_once(self));
	ASSERT_EQ(0, end_at(self, variant->by_close, !variant->first));
	EXPECT_EQ(0, pinned_once(self));
}

/* Writes to a file of the driver of the first device: 0 or a negated errno. */
static int tell_driver(const char *driver, const char *what, const char *name)
{
	char file[600];
	ssize_t done;
	int fd;

	snprintf(file, sizeof(file), "%s/%s", driver, what);
	fd = open(file, O_WRONLY);
	if (fd < 0)
		return -errno;
	done = write(fd, name, strlen(name));
	close(fd);
	return done < 0 ? -EIO : 0;
}

/* Starts a transfer of the second device, if it has an engine. */
static int second_starts(struct _test_data_devices *self, __u64 *ticket)
{
	size_t half = PAGES / 2 * self->page;

	if (query(self->fd[1]).out_backend != ULDMA_BACKEND_ADAPTER)
		return 0;
	return transfer_start(self->fd[1], BY_KERNEL, &self->r[1], half,
			      &self->r[1], 0, half, ticket);
}

/* Waits for it, and checks the data. */
static int second_ends(struct _test_data_devices *self, __u64 ticket)
{
	size_t half = PAGES / 2 * self->page;
	int ret;

	if (query(self->fd[1]).out_backend != ULDMA_BACKEND_ADAPTER)
		return 0;
	ret = transfer_wait(self->fd[1], BY_KERNEL, ticket, half);
	return ret ?: memcmp(self->buf, self->buf + half, half);
}

/*
 * The driver is unbound from the first device, which confirms nothing any more:
 * the second one goes on, and has the pages until it ends.
 */
TEST_F(devices, first_is_unbound)
{
	char place[256], device[256] = "", driver[512];
	const char *name;
	__u64 ticket = 0;
	ssize_t len;

	snprintf(place, sizeof(place), "/sys/class/misc/%s/device",
		 strrchr(uldma_node(), '/') + 1);
	len = readlink(place, device, sizeof(device) - 1);
	ASSERT_LT(0, len);
	name = strrchr(device, '/') + 1;
	if (strncmp(name, "0000:", 5))
		SKIP(return, "the driver cannot be unbound from %s", name);
	snprintf(place, sizeof(place), "/sys/bus/pci/devices/%s/driver", name);
	ASSERT_NE(NULL, realpath(place, driver));
	ASSERT_EQ(0, register_at(self, 0, 0, PAGES, RW));
	ASSERT_EQ(0, register_at(self, 1, 0, PAGES, RW));
	pattern_fill(self->buf, PAGES / 2 * self->page, 7);
	ASSERT_EQ(0, second_starts(self, &ticket));
	ASSERT_EQ(0, tell_driver(driver, "unbind", name));
	EXPECT_EQ(0, second_ends(self, ticket));
	EXPECT_EQ(PAGES, pinned_once(self));
	EXPECT_EQ(0, end_at(self, variant->by_close, variant->first));
	EXPECT_EQ(PAGES, pinned_once(self));
	if (!variant->first) {
		pattern_fill(self->buf, PAGES / 2 * self->page, 8);
		EXPECT_EQ(0, second_starts(self, &ticket));
		EXPECT_EQ(0, second_ends(self, ticket));
	}
	EXPECT_EQ(0, end_at(self, variant->by_close, !variant->first));
	EXPECT_EQ(0, pinned_once(self));
	EXPECT_EQ(0, tell_driver(driver, "bind", name));
	EXPECT_EQ(0, access(uldma_node(), F_OK));
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], AGAIN))
		return executed(argv[2]);
	if (argc == 1 && access(uldma_other(), F_OK)) {
		ksft_print_header();
		ksft_exit_skip("no device node %s\n", uldma_other());
	}
	return uldma_main(argc, argv);
}
