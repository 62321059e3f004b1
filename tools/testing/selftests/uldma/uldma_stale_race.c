// SPDX-License-Identifier: GPL-2.0
/*
 * Registrations while their addresses change, and owners that end while they
 * register: a process that registers after a change sees what was written after it,
 * and nothing stays pinned.
 */
#include <pthread.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "uldma_harness.h"
#include "uldma_kinds.h"
#include "uldma_lmm.h"

#ifndef __NR_pidfd_open
#define __NR_pidfd_open 434
#endif
#ifndef __NR_process_mrelease
#define __NR_process_mrelease 448
#endif

#define PAGES 8
#define ROUNDS 300

FIXTURE(race) {
	int fd;
	int other;
	size_t page;
	size_t length;
	char *buf;
	char *copy;
	struct region to;
	long long pins;
};

FIXTURE_VARIANT(race) {
	/* Puts new memory in place of the old. */
	int (*change)(char *at, size_t length);
	/* True if the range is unmapped for a moment. */
	bool hole;
	void *(*map)(size_t length);
};

FIXTURE_SETUP(race)
{
	self->pins = machine_pins();
	self->fd = uldma_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	self->other = uldma_open(O_NONBLOCK);
	ASSERT_LE(0, self->other);
	self->page = page_size();
	self->length = PAGES * self->page;
	self->buf = variant->map(self->length);
	if (!self->buf)
		SKIP(return, "%s", why_not);
	self->copy = buffer(self->length);
	ASSERT_NE(NULL, self->copy);
	ASSERT_EQ(0, region_register(self->fd, self->copy, self->length, RW,
				     &self->to));
}

FIXTURE_TEARDOWN(race)
{
	close(self->other);
	close(self->fd);
	EXPECT_EQ(0, vm_pin());
	EXPECT_EQ(self->pins, machine_pins());
}

static int map_over(char *at, size_t length)
{
	return mmap(at, length, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at ?
		       0 : -errno;
}

static int unmap_and_map(char *at, size_t length)
{
	if (munmap(at, length))
		return -errno;
	return mmap(at, length, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
		    0) == at ? 0 : -errno;
}

static int discard(char *at, size_t length)
{
	return madvise(at, length, MADV_DONTNEED) ? -errno : 0;
}

static int remove_pages(char *at, size_t length)
{
	return madvise(at, length, MADV_REMOVE) ? -errno : 0;
}

/* A page of each two, so that there are many areas. */
static int discard_every_second(char *at, size_t length)
{
	int ret = 0;

	for (size_t i = 0; i < length && !ret; i += 2 * page_size())
		ret = discard(at + i, page_size());
	return ret;
}

/* The pages come back, but others do not. */
static int move_and_back(char *at, size_t length)
{
	char *to = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
			-1, 0);

	if (mremap(at, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, to) !=
		    to ||
	    mremap(to, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, at) != at)
		return -errno;
	return 0;
}

FIXTURE_VARIANT_ADD(race, mapped_over) { map_over, false, map_anonymous };
FIXTURE_VARIANT_ADD(race, unmapped) { unmap_and_map, true, map_anonymous };
FIXTURE_VARIANT_ADD(race, discarded) { discard, false, map_anonymous };
FIXTURE_VARIANT_ADD(race, removed) { remove_pages, false, map_shared };
FIXTURE_VARIANT_ADD(race, in_pieces) {
	discard_every_second, false, map_anonymous };
FIXTURE_VARIANT_ADD(race, moved_back) { move_and_back, true, map_anonymous };

/* By a new registration the device reads the bytes that were written last. */
static int register_and_compare(struct _test_data_race *self, __u64 seed,
				struct region *r)
{
	int ret;

	pattern_fill(self->buf, self->length, seed);
	ret = region_register(self->fd, self->buf, self->length, RW, r) ?:
	      transfer(self->fd, BY_KERNEL, &self->to, 0, r, 0, self->length);
	if (!ret && pattern_check(self->copy, self->length, seed) >= 0)
		ret = -EBADMSG;
	return ret;
}

/* The driver may revalidate an old change while the next one is made. */
TEST_F(race, newest_bytes)
{
	struct region r;

	for (int i = 1; i <= ROUNDS; i++) {
		ASSERT_EQ(0, register_and_compare(self, i, &r))
			TH_LOG("round %d", i);
		ASSERT_EQ(0, variant->change(self->buf, self->length));
		if (i % 2)
			ASSERT_EQ(0, region_unregister(self->fd, r.handle));
		if (i % 16 == 0)
			ASSERT_EQ(0, region_cleanup(self->fd) ?:
				  region_register(self->fd, self->copy,
						  self->length, RW,
						  &self->to));
	}
	ASSERT_EQ(0, region_cleanup(self->fd));
	EXPECT_EQ(0, vm_pin());
	EXPECT_EQ(self->pins, machine_pins());
}

/**
 * struct changer - a thread that changes what is mapped
 * @change: how
 * @at: where
 * @length: how much
 * @done: set at the end
 * @error: what a change said
 */
struct changer {
	int (*change)(char *at, size_t length);
	char *at;
	size_t length;
	bool done;
	int error;
};

static void *change_again(void *arg)
{
	struct changer *c = arg;

	for (int i = 0; i < ROUNDS && !c->error; i++) {
		c->error = c->change(c->at, c->length);
		if (!c->error)
			memset(c->at, i, c->length);
	}
	__atomic_store_n(&c->done, true, __ATOMIC_RELEASE);
	return NULL;
}

struct registrar {
	struct _test_data_race *self;
	struct changer *changer;
	size_t at;
	size_t length;
	bool hole;
	int registered;
	int error;
};

static void *register_again(void *arg)
{
	struct registrar *it = arg;
	struct region r;
	int ret;

	while (!__atomic_load_n(&it->changer->done, __ATOMIC_ACQUIRE)) {
		ret = region_register(it->self->fd, it->self->buf + it->at,
				      it->length, RW, &r);
		if (ret == -EFAULT && it->hole)
			continue;
		ret = ret ?: region_unregister(it->self->fd, r.handle);
		it->registered++;
		if (ret) {
			it->error = ret;
			break;
		}
	}
	return NULL;
}

TEST_F_TIMEOUT(race, registered_meanwhile, 240)
{
	struct changer changer = { variant->change, self->buf, self->length };
	struct registrar registrars[] = {
		{ self, &changer, 0, self->length, variant->hole },
		{ self, &changer, 2 * self->page, 3 * self->page,
		  variant->hole },
	};
	pthread_t threads[3];
	struct region r;

	/* The changes come last: what maps memory meanwhile may get theirs. */
	for (int i = 0; i < 2; i++)
		ASSERT_EQ(0, pthread_create(&threads[1 + i], NULL,
					    register_again, &registrars[i]));
	ASSERT_EQ(0, pthread_create(&threads[0], NULL, change_again,
				    &changer));
	for (int i = 0; i < 3; i++)
		ASSERT_EQ(0, pthread_join(threads[i], NULL));
	EXPECT_EQ(0, changer.error);
	EXPECT_EQ(0, registrars[0].error);
	EXPECT_EQ(0, registrars[1].error);
	TH_LOG("%d and %d registrations", registrars[0].registered,
	       registrars[1].registered);

	EXPECT_EQ(0, register_and_compare(self, 77, &r));
	EXPECT_EQ(0, stale_pages(self->fd, r.handle));
	EXPECT_EQ(2 * PAGES, vm_pin());
	ASSERT_EQ(0, stale_fence(self->other));
	EXPECT_EQ(0, stale_told(self->fd, r.handle).events);
	EXPECT_EQ(2 * PAGES * self->page, lmm(self->fd).out_locked);
	EXPECT_EQ(2, query(self->fd).out_file_regions);
	EXPECT_EQ(2, lmm(self->fd).out_areas);
}

/* Only the neighbours change. */
TEST_F_TIMEOUT(race, beside, 240)
{
	struct changer changer = { variant->change,
				   self->buf + self->length / 2,
				   self->length / 2 };
	struct registrar registrar = { self, &changer, 0, self->length / 2 };
	struct region r;
	pthread_t threads[2];

	pattern_fill(self->buf, self->length / 2, 1);
	ASSERT_EQ(0, region_register(self->fd, self->buf, self->length / 2, RW,
				     &r));
	ASSERT_EQ(0, pthread_create(&threads[1], NULL, register_again,
				    &registrar));
	ASSERT_EQ(0, pthread_create(&threads[0], NULL, change_again,
				    &changer));
	while (!__atomic_load_n(&changer.done, __ATOMIC_ACQUIRE)) {
		ASSERT_EQ(0, transfer(self->fd, BY_KERNEL, &self->to, 0, &r, 0,
				      self->length / 2));
		ASSERT_EQ(-1, pattern_check(self->copy, self->length / 2, 1));
	}
	for (int i = 0; i < 2; i++)
		ASSERT_EQ(0, pthread_join(threads[i], NULL));
	EXPECT_EQ(0, changer.error);
	EXPECT_EQ(0, registrar.error);
	ASSERT_EQ(0, stale_fence(self->other));
	EXPECT_EQ(0, stale_told(self->fd, r.handle).events);
	EXPECT_EQ(PAGES + PAGES / 2, vm_pin());
}

/*
 * The kernel tells of a hole before it is made, and a file's pages go after
 * their mappings went: the driver must revalidate again.
 */
TEST(holes_are_told)
{
	int file = memfd(HUGE, 0), fd = uldma_open(O_NONBLOCK);
	size_t pages = HUGE / page_size();
	int other = uldma_open(O_NONBLOCK);
	struct region r;
	char *buf;

	ASSERT_LE(0, file);
	ASSERT_LE(0, fd);
	ASSERT_LE(0, other);
	buf = map_or_why(HUGE, MAP_SHARED, file);
	ASSERT_NE(NULL, buf);
	for (int i = 0; i < 30; i++) {
		ASSERT_EQ(0, region_register(fd, buf, HUGE, RW, &r));
		ASSERT_EQ(0, fallocate(file, FALLOC_FL_PUNCH_HOLE |
					     FALLOC_FL_KEEP_SIZE, 0, HUGE));
		ASSERT_EQ(0, stale_fence(other));
		ASSERT_EQ(pages, stale_pages(fd, r.handle))
			TH_LOG("time %d", i);
		EXPECT_EQ(pages, stale_told(fd, r.handle).pages);
		ASSERT_EQ(0, region_unregister(fd, r.handle));
	}
	close(other);
	close(fd);
	close(file);
}

FIXTURE(end) {
	long long pins;
	size_t page;
	struct uldma_query before;
	int fd;
};

FIXTURE_SETUP(end)
{
	self->pins = machine_pins();
	self->page = page_size();
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->before = query(self->fd);
}

FIXTURE_TEARDOWN(end)
{
	struct uldma_query now = query(self->fd);

	EXPECT_EQ(self->before.out_regions, now.out_regions);
	EXPECT_EQ(self->before.out_pages, now.out_pages);
	EXPECT_EQ(self->pins, machine_pins());
	close(self->fd);
}

/* Registers, changes and unregisters until it is killed. */
static void register_for_ever(int fd, void *arg)
{
	size_t length = 64 * page_size();
	int device = uldma_open(O_NONBLOCK);
	char *buf = buffer(length);
	struct region r[4];

	for (unsigned int i = 0;; i++) {
		for (int j = 0; j < 4; j++)
			if (region_register(device, buf + j * page_size(),
					    length / 2, RW, &r[j]))
				_exit(1);
		if (discard(buf, length) ||
		    region_unregister(device, r[i % 4].handle) ||
		    (i % 8 == 7 && region_cleanup(device)))
			_exit(2);
		if (i < 2 && write(fd, "", 1) != 1)
			_exit(3);
	}
}

/* As the killer of processes does when memory is short: it must not sleep. */
TEST_F_TIMEOUT(end, killed_and_reaped, 240)
{
	struct helper child = { };
	int reaped = 0, pidfd;
	char byte;

	for (int i = 0; i < 30; i++) {
		ASSERT_EQ(0, helper_start(&child, register_for_ever, NULL));
		pidfd = syscall(__NR_pidfd_open, child.pid, 0);
		ASSERT_LE(0, pidfd);
		for (int j = 0; j <= i % 2; j++)
			ASSERT_EQ(1, read(child.fd, &byte, 1));
		ASSERT_EQ(0, kill(child.pid, SIGKILL));
		reaped += !syscall(__NR_process_mrelease, pidfd, 0);
		ASSERT_EQ(0, helper_kill(&child));
		close(pidfd);
		EXPECT_EQ(self->pins, machine_pins())
			TH_LOG("time %d", i);
	}
	TH_LOG("%d of 30 were reaped before they had ended", reaped);
}

static void *eat(void *arg)
{
	for (;;) {
		char *p = map_anonymous(1 << 20);

		if (p)
			memset(p, 1, 1 << 20);
	}
	return NULL;
}

static void register_and_eat(int fd, void *arg)
{
	char byte, *group = arg;
	pthread_t thread;

	snprintf(why_not, sizeof(why_not), "%d", getpid());
	byte = put(group, why_not) ? 'x' : 'y';
	if (write(fd, &byte, 1) != 1 || byte == 'x' ||
	    pthread_create(&thread, NULL, eat, NULL))
		_exit(1);
	register_for_ever(fd, NULL);
}

#define GROUP "/tmp/uldma-cgroup"

TEST_F_TIMEOUT(end, out_of_memory, 240)
{
	struct helper child = { };
	int status = 0;
	char byte;

	mkdir(GROUP, 0700);
	if (mount("none", GROUP, "cgroup2", 0, NULL))
		SKIP(return, "no cgroup2: %s", strerror(errno));
	put(GROUP "/cgroup.subtree_control", "+memory");
	mkdir(GROUP "/uldma", 0700);
	if (put(GROUP "/uldma/memory.max", "33554432")) {
		rmdir(GROUP "/uldma");
		umount(GROUP);
		SKIP(return, "no memory controller: %s", strerror(errno));
	}
	put(GROUP "/uldma/memory.swap.max", "0");
	ASSERT_EQ(0, helper_start(&child, register_and_eat,
				  GROUP "/uldma/cgroup.procs"));
	ASSERT_EQ(1, read(child.fd, &byte, 1));
	EXPECT_EQ('y', byte);
	ASSERT_EQ(child.pid, waitpid(child.pid, &status, 0));
	EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		TH_LOG("status %x", status);
	close(child.fd);
	rmdir(GROUP "/uldma");
	umount(GROUP);
	rmdir(GROUP);
}

enum ending {
	BY_EXIT,
	BY_SIGNAL,
	BY_EXEC,
};

static void pass_and_end(int sock, enum ending ending)
{
	int fd = uldma_open(O_NONBLOCK);
	char *buf = buffer(PAGES * page_size());
	struct region r;
	char byte;

	if (fd < 0 || region_register(fd, buf, PAGES * page_size(), RW, &r))
		_exit(1);
	/* Until the other side has it. */
	if (send_file(sock, fd, r.handle) || read(sock, &byte, 1) != 1)
		_exit(1);
	if (ending == BY_EXIT)
		_exit(0);
	if (ending == BY_SIGNAL)
		raise(SIGKILL);
	freopen("/dev/null", "w", stderr);
	execl("/proc/self/exe", "uldma_stale_race", "-l", NULL);
	_exit(1);
}

FIXTURE(passed) {
	long long pins;
};

FIXTURE_VARIANT(passed) {
	enum ending ending;
};

FIXTURE_SETUP(passed)
{
	self->pins = machine_pins();
}

FIXTURE_TEARDOWN(passed)
{
	EXPECT_EQ(self->pins, machine_pins());
}

FIXTURE_VARIANT_ADD(passed, exit) { BY_EXIT };
FIXTURE_VARIANT_ADD(passed, signal) { BY_SIGNAL };
FIXTURE_VARIANT_ADD(passed, exec) { BY_EXEC };

/* Looking for what a work item does, in steps that leave it the processor. */
#define LOOKS 2000
#define LOOK_US 10000

/* The file lives on elsewhere, and the memory does not live on with it. */
TEST_F(passed, owner_ends)
{
	struct uldma_event event = { };
	struct region r;
	int fds[2], fd;
	__u32 handle;
	pid_t pid;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		close(fds[0]);
		pass_and_end(fds[1], variant->ending);
	}
	close(fds[1]);
	fd = receive_file(fds[0], &handle);
	ASSERT_LE(0, fd);
	EXPECT_EQ(-ETIMEDOUT, event_wait(fd, ULDMA_EVENT_STALE, 0, &event));
	EXPECT_EQ(-EPERM, region_register(fd, &event, 1, RW, &r));
	ASSERT_EQ(1, write(fds[0], "", 1));

	ASSERT_EQ(pid, waitpid(pid, NULL, 0));
	for (int i = 0; i < LOOKS && machine_pins() != self->pins; i++)
		usleep(LOOK_US);
	EXPECT_EQ(self->pins, machine_pins());
	EXPECT_EQ(0, query(fd).out_file_regions);
	EXPECT_EQ(-ETIMEDOUT, event_wait(fd, ULDMA_EVENT_STALE, 0, &event));
	EXPECT_EQ(-EPERM, region_register(fd, &event, 1, RW, &r));
	close(fd);
	close(fds[0]);
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
