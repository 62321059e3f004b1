// SPDX-License-Identifier: GPL-2.0
/*
 * Optimistic regions: they pin nothing, the device accesses what is mapped, and a
 * transfer ends before a page that is not. What the process, its child or the
 * kernel does with the memory goes on as if there were no device.
 */
#include <pthread.h>

#include "uldma_harness.h"
#include "uldma_bind.h"
#include "uldma_kinds.h"
#include "uldma_lmm.h"
#include "uldma_optimistic.h"

#define PAGES 8
#define OPTIMISTIC (RW | ULDMA_REGISTER_OPTIMISTIC)

FIXTURE(optimistic) {
	int fd;
	long long pins;
	size_t page;
	/* The memory that is not pinned. */
	char *buf;
	struct region r;
	/* Memory that is. */
	char *copy;
	struct region to;
};

FIXTURE_SETUP(optimistic)
{
	int ret;

	self->page = page_size();
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	/* No page is there, and a touch of one does not bring the next ones. */
	self->buf = mmap(NULL, PAGES * self->page, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->buf);
	ASSERT_EQ(0, madvise(self->buf, PAGES * self->page, MADV_NOHUGEPAGE));
	self->copy = buffer(PAGES * self->page);
	ASSERT_NE(NULL, self->copy);
	ASSERT_EQ(0, region_register(self->fd, self->copy, PAGES * self->page,
				     RW, &self->to));
	self->pins = machine_pins();
	ret = region_register(self->fd, self->buf, PAGES * self->page,
			      OPTIMISTIC, &self->r);
	if (ret == -EOPNOTSUPP)
		SKIP(return, "the device has no optimistic entries");
	ASSERT_EQ(0, ret);
}

FIXTURE_TEARDOWN(optimistic)
{
	close(self->fd);
}

/* Reads or writes by the device; pages are numbers. */
#define READ(page_number, pages)                                              \
	copy_all(self->fd, &self->to, 0, &self->r,                            \
		 (page_number) * self->page, (pages) * self->page)
#define WRITE(page_number, pages)                                             \
	copy_all(self->fd, &self->r, (page_number) * self->page, &self->to,   \
		 0, (pages) * self->page)
#define READ_ONCE_FROM(page_number, pages, bytes)                             \
	copy(self->fd, &self->to, 0, &self->r, (page_number) * self->page,    \
	     (pages) * self->page, bytes)

/*
 * Lets all that the driver was told of until now happen: pages of the same process
 * are looked up one after the other, and this one is the last.
 */
static int settle(struct _test_data_optimistic *self)
{
	char *last = self->buf + (PAGES - 1) * self->page;

	if (madvise(last, self->page, MADV_DONTNEED))
		return -errno;
	*last = 1;
	return READ(PAGES - 1, 1);
}

TEST_F(optimistic, pins_nothing)
{
	struct uldma_region_query q = {
		.size = sizeof(q),
		.handle = self->r.handle,
	};

	pattern_fill(self->buf, PAGES * self->page, 1);
	ASSERT_EQ(0, READ(0, PAGES));
	EXPECT_EQ(-1, pattern_check(self->copy, PAGES * self->page, 1));
	EXPECT_EQ(PAGES, vm_pin());
	EXPECT_EQ(self->pins, machine_pins());
	ASSERT_EQ(0, uldma_ioctl(self->fd, ULDMA_IOC_REGION_QUERY, &q));
	EXPECT_EQ(RW | ULDMA_REGION_OPTIMISTIC, q.out_flags);
	EXPECT_EQ((uintptr_t)self->buf, q.out_addr);
	EXPECT_EQ(PAGES, q.out_pages);
	EXPECT_EQ(0, q.out_areas);
	EXPECT_EQ(0, region_unregister(self->fd, self->r.handle));
	EXPECT_EQ(self->pins, machine_pins());
}

TEST_F(optimistic, ends_before_a_page_that_is_missing)
{
	__u64 bytes;

	memset(self->buf, 1, 2 * self->page);
	memset(self->buf + 3 * self->page, 1, self->page);
	ASSERT_EQ(0, READ(0, 2));
	ASSERT_EQ(0, settle(self));
	EXPECT_EQ(ULDMA_DMA_NOT_RESIDENT, READ_ONCE_FROM(0, 4, &bytes));
	EXPECT_EQ(2 * self->page, bytes);
	/* It does not come by itself. */
	ASSERT_EQ(0, settle(self));
	EXPECT_EQ(ULDMA_DMA_NOT_RESIDENT, READ_ONCE_FROM(2, 1, &bytes));
	EXPECT_EQ(0, bytes);
	memset(self->buf + 2 * self->page, 1, self->page);
	EXPECT_EQ(0, READ(0, 4));
}

/* Entries are made where a page is first missed, some hundred at a time. */
TEST_F(optimistic, large_regions_fill_bit_by_bit)
{
	size_t pages = 2000, length = pages * self->page;
	size_t part = 300 * self->page, at;
	struct region r, to;
	char *buf, *copied;
	__u64 bytes;

	buf = mmap(NULL, length, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ASSERT_NE(MAP_FAILED, buf);
	copied = buffer(part);
	ASSERT_NE(NULL, copied);
	ASSERT_EQ(0, region_register(self->fd, copied, part, RW, &to));
	ASSERT_EQ(0, region_register(self->fd, buf, length, OPTIMISTIC, &r));
	/* The last page first. */
	buf[length - 1] = 9;
	ASSERT_EQ(0, copy_all(self->fd, &to, 0, &r, length - self->page,
			      self->page));
	EXPECT_EQ(9, copied[self->page - 1]);
	EXPECT_EQ(ULDMA_DMA_NOT_RESIDENT,
		  copy(self->fd, &to, 0, &r, 0, part, &bytes));
	EXPECT_EQ(0, bytes);
	for (at = 0; at + part <= length; at += 2 * part) {
		pattern_fill(buf + at, part, 1 + at / part);
		ASSERT_EQ(0, copy_all(self->fd, &to, 0, &r, at, part));
		EXPECT_EQ(-1, pattern_check(copied, part, 1 + at / part));
	}
	/* All of them end at once. */
	ASSERT_EQ(0, madvise(buf, length, MADV_DONTNEED));
	for (at = 0; at + part <= length; at += part) {
		EXPECT_EQ(ULDMA_DMA_NOT_RESIDENT,
			  copy(self->fd, &to, 0, &r, at, part, &bytes));
		EXPECT_EQ(0, bytes);
	}
	EXPECT_EQ(0, region_unregister(self->fd, r.handle));
}

TEST_F(optimistic, rights_are_those_of_the_region)
{
	struct region r;
	__u64 bytes;

	memset(self->buf, 1, self->page);
	ASSERT_EQ(0, region_register(self->fd, self->buf, self->page,
				     ULDMA_ACCESS_READ |
					     ULDMA_REGISTER_OPTIMISTIC, &r));
	EXPECT_EQ(-EACCES, copy(self->fd, &r, 0, &self->to, 0, self->page,
				&bytes));
	EXPECT_EQ(0, copy_all(self->fd, &self->to, 0, &r, 0, self->page));
}

TEST_F(optimistic, the_device_writes)
{
	memset(self->buf, 1, 3 * self->page);
	pattern_fill(self->copy, 2 * self->page, 7);
	ASSERT_EQ(0, WRITE(1, 2));
	EXPECT_EQ(-1, pattern_check(self->buf + self->page, 2 * self->page, 7));
	EXPECT_EQ(1, self->buf[self->page - 1]);
}

TEST_F(optimistic, discarded_pages_are_gone)
{
	__u64 bytes;

	memset(self->buf, 1, 4 * self->page);
	ASSERT_EQ(0, READ(0, 4));
	ASSERT_EQ(0, madvise(self->buf + self->page, self->page, MADV_DONTNEED));
	EXPECT_EQ(ULDMA_DMA_NOT_RESIDENT, READ_ONCE_FROM(0, 4, &bytes));
	EXPECT_EQ(self->page, bytes);
	memset(self->buf + self->page, 2, 1);
	ASSERT_EQ(0, READ(0, 4));
	EXPECT_EQ(2, self->copy[self->page]);
	EXPECT_EQ(0, self->copy[self->page + 1]);
	EXPECT_EQ(1, self->copy[2 * self->page]);
}

TEST_F(optimistic, addresses_mean_what_is_mapped)
{
	char *at = self->buf + self->page;
	__u64 bytes;
	char *p;

	memset(self->buf, 1, 4 * self->page);
	ASSERT_EQ(0, READ(0, 4));
	ASSERT_EQ(0, munmap(at, 2 * self->page));
	EXPECT_EQ(ULDMA_DMA_NOT_RESIDENT, READ_ONCE_FROM(1, 2, &bytes));
	ASSERT_EQ(0, settle(self));
	EXPECT_EQ(ULDMA_DMA_NOT_RESIDENT, READ_ONCE_FROM(1, 2, &bytes));
	p = mmap(at, 2 * self->page, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	ASSERT_EQ(at, p);
	memset(at, 5, 2 * self->page);
	ASSERT_EQ(0, READ(0, 4));
	EXPECT_EQ(5, self->copy[self->page]);
	EXPECT_EQ(1, self->copy[3 * self->page]);
}

TEST_F(optimistic, holes_are_part_of_a_region)
{
	size_t length = 1024 * self->page;
	struct region r;
	char *p;

	p = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, p);
	ASSERT_EQ(0, munmap(p + self->page, 512 * self->page));
	ASSERT_EQ(0, region_register(self->fd, p, length, OPTIMISTIC, &r));
	ASSERT_EQ(0, mprotect(p + length - self->page, self->page,
			      PROT_READ | PROT_WRITE));
	pattern_fill(p + length - self->page, self->page, 3);
	ASSERT_EQ(0, copy_all(self->fd, &self->to, 0, &r, length - self->page,
			      self->page));
	EXPECT_EQ(-1, pattern_check(self->copy, self->page, 3));
	EXPECT_EQ(0, region_unregister(self->fd, r.handle));
}

TEST_F(optimistic, protection_holds)
{
	__u64 bytes;

	memset(self->buf, 1, self->page);
	ASSERT_EQ(0, WRITE(0, 1));
	ASSERT_EQ(0, mprotect(self->buf, self->page, PROT_READ));
	memset(self->copy, 9, self->page);
	EXPECT_EQ(ULDMA_DMA_NOT_RESIDENT,
		  copy(self->fd, &self->r, 0, &self->to, 0, self->page, &bytes));
	ASSERT_EQ(0, settle(self));
	EXPECT_EQ(ULDMA_DMA_NOT_RESIDENT,
		  copy(self->fd, &self->r, 0, &self->to, 0, self->page, &bytes));
	EXPECT_NE(9, self->buf[0]);
	EXPECT_EQ(0, READ(0, 1));
	ASSERT_EQ(0, mprotect(self->buf, self->page, PROT_READ | PROT_WRITE));
	self->buf[1] = 1;
	memset(self->copy, 9, self->page);
	ASSERT_EQ(0, WRITE(0, 1));
	EXPECT_EQ(9, self->buf[0]);
}

/* A child reads its copy when the test says so. */
static int child_sees(int in, const char *at, char wanted)
{
	char byte;

	if (read(in, &byte, 1) != 1)
		return 2;
	return *at == wanted ? 0 : 1;
}

TEST_F(optimistic, a_child_keeps_its_copy)
{
	int go[2], status;
	__u64 bytes;
	pid_t pid;

	memset(self->buf, 1, self->page);
	memset(self->copy, 1, self->page);
	ASSERT_EQ(0, WRITE(0, 1));
	ASSERT_EQ(0, pipe(go));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(child_sees(go[0], self->buf, 1));
	}
	memset(self->copy, 4, self->page);
	/* The page is the child's, too: the device does not write it. */
	EXPECT_EQ(ULDMA_DMA_NOT_RESIDENT,
		  copy(self->fd, &self->r, 0, &self->to, 0, self->page, &bytes));
	EXPECT_EQ(1, self->buf[0]);
	/* The parent gets a copy of its own. */
	self->buf[1] = 1;
	ASSERT_EQ(0, WRITE(0, 1));
	EXPECT_EQ(4, self->buf[0]);
	ASSERT_EQ(1, write(go[1], "", 1));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
}

TEST_F(optimistic, writes_reach_the_file)
{
	struct region r;
	char *at, *found;
	__u64 bytes;
	int file;

	if (!has_ext4())
		SKIP(return, "no ext4 at " EXT4);
	file = file_in(EXT4, self->page);
	ASSERT_LE(0, file);
	found = malloc(self->page);
	ASSERT_NE(NULL, found);
	at = mmap(NULL, self->page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	ASSERT_NE(MAP_FAILED, at);
	at[0] = 1;
	ASSERT_EQ(0, region_register(self->fd, at, self->page, OPTIMISTIC, &r));
	pattern_fill(self->copy, self->page, 6);
	ASSERT_EQ(0, copy_all(self->fd, &r, 0, &self->to, 0, self->page));
	/* The file system wants to know of the next write. */
	ASSERT_EQ(0, msync(at, self->page, MS_SYNC));
	EXPECT_EQ(ULDMA_DMA_NOT_RESIDENT,
		  copy(self->fd, &r, 0, &self->to, 0, self->page, &bytes));
	EXPECT_EQ(0, copy_all(self->fd, &self->to, 0, &r, 0, self->page));
	EXPECT_EQ(ULDMA_DMA_NOT_RESIDENT,
		  copy(self->fd, &r, 0, &self->to, 0, self->page, &bytes));
	at[0] = 1;
	pattern_fill(self->copy, self->page, 7);
	ASSERT_EQ(0, copy_all(self->fd, &r, 0, &self->to, 0, self->page));
	/* The last mapping goes, and with it what the device has written. */
	ASSERT_EQ(0, munmap(at, self->page));
	ASSERT_EQ(0, fsync(file));
	ASSERT_EQ(0, posix_fadvise(file, 0, self->page, POSIX_FADV_DONTNEED));
	ASSERT_EQ(self->page, pread(file, found, self->page, 0));
	EXPECT_EQ(-1, pattern_check(found, self->page, 7));
	EXPECT_EQ(0, region_unregister(self->fd, r.handle));
}

TEST_F(optimistic, writes_outlive_swap)
{
	struct timespec now, limit;
	cpu_set_t here;
	__u64 bytes;
	int ret;

	if (!number_in("/proc/meminfo", "SwapTotal"))
		SKIP(return, "no swap space");
	/* A page that another CPU is about to put on a list is not paged out. */
	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	ASSERT_EQ(0, sched_setaffinity(0, sizeof(here), &here));
	memset(self->buf, 1, self->page);
	pattern_fill(self->copy, self->page, 8);
	ASSERT_EQ(0, WRITE(0, 1));
	clock_gettime(CLOCK_MONOTONIC, &limit);
	limit.tv_sec += PATIENCE / SECOND;
	do {
		ASSERT_EQ(0, madvise(self->buf, self->page, MADV_PAGEOUT));
		ret = READ_ONCE_FROM(0, 1, &bytes);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (!ret && now.tv_sec <= limit.tv_sec);
	EXPECT_EQ(ULDMA_DMA_NOT_RESIDENT, ret);
	EXPECT_EQ(-1, pattern_check(self->buf, self->page, 8));
	memset(self->copy, 0, self->page);
	ASSERT_EQ(0, READ(0, 1));
	EXPECT_EQ(-1, pattern_check(self->copy, self->page, 8));
}

TEST_F(optimistic, secrets_are_kept)
{
	int secret = syscall(__NR_memfd_secret, 0);
	struct region r;
	__u64 bytes;
	char *at;

	if (secret < 0)
		SKIP(return, "no secret memory: %s", strerror(errno));
	ASSERT_EQ(0, ftruncate(secret, self->page));
	at = mmap(NULL, self->page, PROT_READ | PROT_WRITE, MAP_SHARED, secret,
		  0);
	ASSERT_NE(MAP_FAILED, at);
	memset(at, 1, self->page);
	ASSERT_EQ(0, region_register(self->fd, at, self->page, OPTIMISTIC, &r));
	for (int i = 0; i < 3; i++) {
		EXPECT_EQ(ULDMA_DMA_NOT_RESIDENT,
			  copy(self->fd, &self->to, 0, &r, 0, self->page,
			       &bytes));
		ASSERT_EQ(0, settle(self));
	}
}

TEST_F(optimistic, pages_that_need_to_stay_are_refused)
{
	struct uldma_region_blocks blocks = {
		.size = sizeof(blocks),
		.handle = self->r.handle,
	};

	if (geteuid())
		SKIP(return, "only root may ask for bus addresses");
	EXPECT_EQ(-EOPNOTSUPP, uldma_ioctl(self->fd, ULDMA_IOC_REGION_BLOCKS,
					   &blocks));
}

TEST_F_TIMEOUT(optimistic, the_driver_is_unbound, 60)
{
	struct pci_address device;

	if (geteuid())
		SKIP(return, "only root can unbind a driver");
	ASSERT_EQ(0, driver_find_device(&device));
	memset(self->buf, 1, PAGES * self->page);
	ASSERT_EQ(0, READ(0, PAGES));
	ASSERT_EQ(0, driver_unbind(&device));
	memset(self->buf, 2, self->page);
	EXPECT_EQ(0, madvise(self->buf, PAGES * self->page, MADV_DONTNEED));
	EXPECT_EQ(0, munmap(self->buf, self->page));
	EXPECT_EQ(0, region_unregister(self->fd, self->r.handle));
	EXPECT_EQ(0, driver_bind(&device));
}

/* The device copies from memory that another thread discards and fills. */
struct filler {
	char *at;
	size_t length;
	bool stop;
	unsigned long rounds;
};

static void *discard_and_fill(void *arg)
{
	struct filler *f = arg;

	while (!READ_ONCE(f->stop)) {
		for (size_t i = 0; i < f->length; i += page_size())
			*(unsigned long *)(f->at + i) = f->rounds + 1;
		__atomic_store_n(&f->rounds, f->rounds + 1, __ATOMIC_RELEASE);
		if (madvise(f->at, f->length, MADV_DONTNEED))
			return (void *)(long)errno;
	}
	return NULL;
}

TEST_F_TIMEOUT(optimistic, what_is_read_was_there, 120)
{
	struct filler f = { self->buf, (PAGES - 1) * self->page };
	unsigned long read = 0, before, after, word;
	pthread_t thread;
	__u64 bytes;
	void *err;

	ASSERT_EQ(0, pthread_create(&thread, NULL, discard_and_fill, &f));
	/* Both are to happen: reads, and pages that are gone. */
	for (int i = 0; i < 2000 || (read < 100 && i < 2000000); i++) {
		before = __atomic_load_n(&f.rounds, __ATOMIC_ACQUIRE);
		READ_ONCE_FROM(0, 1, &bytes);
		after = __atomic_load_n(&f.rounds, __ATOMIC_ACQUIRE) + 1;
		if (bytes != self->page)
			continue;
		word = *(unsigned long *)self->copy;
		/* Zero is what a page has before it is written. */
		if (word && (word < before || word > after)) {
			EXPECT_GE(word, before);
			EXPECT_LE(word, after);
			break;
		}
		read++;
	}
	WRITE_ONCE(f.stop, true);
	ASSERT_EQ(0, pthread_join(thread, &err));
	EXPECT_EQ(NULL, err);
	EXPECT_LE(100, read);
}

/* Regions of one page that come and go while others do: each is filled. */
struct comer {
	pthread_t thread;
	int fd;
	char *at;
	const struct region *to;
	size_t to_at;
	int ret;
};

/* Of the kernel's transfers only the last ones are remembered. */
static pthread_mutex_t one_copies = PTHREAD_MUTEX_INITIALIZER;

static void *come_and_go(void *arg)
{
	struct comer *c = arg;
	struct region r;

	for (int i = 0; i < 50 && !c->ret; i++) {
		c->ret = region_register(c->fd, c->at, page_size(), OPTIMISTIC,
					 &r);
		if (c->ret)
			break;
		pthread_mutex_lock(&one_copies);
		c->ret = copy_all(c->fd, c->to, c->to_at, &r, 0, page_size());
		pthread_mutex_unlock(&one_copies);
		c->ret = c->ret ?: region_unregister(c->fd, r.handle);
	}
	return NULL;
}

TEST_F_TIMEOUT(optimistic, regions_come_and_go, 120)
{
	struct comer comers[PAGES];

	memset(self->buf, 1, PAGES * self->page);
	for (int i = 0; i < PAGES; i++) {
		comers[i] = (struct comer){
			.fd = self->fd,
			.at = self->buf + i * self->page,
			.to = &self->to,
			.to_at = i * self->page,
		};
		ASSERT_EQ(0, pthread_create(&comers[i].thread, NULL, come_and_go,
					    &comers[i]));
	}
	for (int i = 0; i < PAGES; i++) {
		ASSERT_EQ(0, pthread_join(comers[i].thread, NULL));
		EXPECT_EQ(0, comers[i].ret);
	}
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
