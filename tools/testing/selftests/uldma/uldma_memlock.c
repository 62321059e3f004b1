// SPDX-License-Identifier: GPL-2.0
/*
 * Accounting: a page that is pinned counts against RLIMIT_MEMLOCK, once per
 * address space, however often and by whichever file it is registered.
 */
#include <pthread.h>

#include "uldma_harness.h"

#define PAGES 64

FIXTURE(memlock) {
	int fd;
	size_t page;
	char *buf;
	struct region r;
	long long pins;
};

FIXTURE_SETUP(memlock)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
	self->page = page_size();
	self->buf = buffer(PAGES * self->page);
	ASSERT_NE(NULL, self->buf);
	self->pins = machine_pins();
}

FIXTURE_TEARDOWN(memlock)
{
	close(self->fd);
}

/* Registers whole pages of the buffer. */
static int register_pages(struct _test_data_memlock *self, int first, int count,
			  struct region *r)
{
	return region_register(self->fd, self->buf + first * self->page,
			       count * self->page, RW, r);
}

TEST_F(memlock, exact_limit)
{
	struct region more;

	ASSERT_EQ(0, set_memlock(4 * self->page));
	ASSERT_EQ(0, drop_privileges());
	ASSERT_EQ(0, register_pages(self, 0, 4, &self->r));
	EXPECT_EQ(4, vm_pin());
	EXPECT_EQ(-ENOMEM, register_pages(self, 4, 1, &more));
	EXPECT_EQ(-ENOMEM, register_pages(self, 0, 5, &more));
	EXPECT_EQ(4, vm_pin());
	EXPECT_EQ(4, pinned_pages(self->fd));
	EXPECT_EQ(1, query(self->fd).out_file_regions);
	/* Pages that are counted already cost nothing. */
	EXPECT_EQ(0, register_pages(self, 1, 3, &more));
	ASSERT_EQ(0, region_unregister(self->fd, more.handle));
	ASSERT_EQ(0, region_unregister(self->fd, self->r.handle));
	EXPECT_EQ(0, register_pages(self, 4, 4, &more));
}

TEST_F(memlock, too_much_at_once)
{
	ASSERT_EQ(0, set_memlock(4 * self->page));
	ASSERT_EQ(0, drop_privileges());
	EXPECT_EQ(-ENOMEM, register_pages(self, 0, 5, &self->r));
	EXPECT_EQ(0, vm_pin());
	EXPECT_EQ(0, pinned_pages(self->fd));
	EXPECT_EQ(0, query(self->fd).out_file_regions);
}

TEST_F(memlock, limit_of_zero)
{
	ASSERT_EQ(0, set_memlock(0));
	ASSERT_EQ(0, drop_privileges());
	EXPECT_EQ(-EPERM, register_pages(self, 0, 1, &self->r));
	EXPECT_EQ(0, vm_pin());
}

TEST_F(memlock, capability)
{
	if (geteuid())
		SKIP(return, "needs CAP_IPC_LOCK");
	ASSERT_EQ(0, set_memlock(self->page));
	EXPECT_EQ(0, register_pages(self, 0, PAGES, &self->r));
	EXPECT_EQ(PAGES, vm_pin());
}

TEST_F(memlock, limit_lowered_below_use)
{
	struct region other;

	ASSERT_EQ(0, set_memlock(4 * self->page));
	ASSERT_EQ(0, drop_privileges());
	ASSERT_EQ(0, register_pages(self, 0, 2, &self->r));
	ASSERT_EQ(0, register_pages(self, 2, 2, &other));
	ASSERT_EQ(0, set_memlock(self->page));
	ASSERT_EQ(0, region_unregister(self->fd, other.handle));
	EXPECT_EQ(2, vm_pin());
	EXPECT_EQ(-ENOMEM, register_pages(self, 2, 1, &other));
	ASSERT_EQ(0, region_unregister(self->fd, self->r.handle));
	EXPECT_EQ(0, vm_pin());
	EXPECT_EQ(0, register_pages(self, 2, 1, &other));
}

/* Only the pages that are new must fit below the limit. */
TEST_F(memlock, overlap)
{
	struct region r[3];

	ASSERT_EQ(0, set_memlock(3 * self->page));
	ASSERT_EQ(0, drop_privileges());
	ASSERT_EQ(0, register_pages(self, 0, 2, &r[0]));
	ASSERT_EQ(0, register_pages(self, 1, 2, &r[1]));
	EXPECT_EQ(-ENOMEM, register_pages(self, 2, 2, &r[2]));
	EXPECT_EQ(3, vm_pin());
	EXPECT_EQ(3, pinned_pages(self->fd));
}

TEST_F(memlock, one_page_a_thousand_times)
{
	struct region r[1000];

	for (int i = 0; i < ARRAY_SIZE(r); i++) {
		ASSERT_EQ(0, register_pages(self, 0, 1, &r[i]))
			TH_LOG("time %d", i);
	}
	EXPECT_EQ(1, vm_pin());
	EXPECT_EQ(1, pinned_pages(self->fd));
	/* 7 has no factor in common with 1000, so this reaches all. */
	for (int i = 0, at = 0; i < ARRAY_SIZE(r); i++) {
		EXPECT_EQ(1, vm_pin());
		at = (at + 7) % ARRAY_SIZE(r);
		ASSERT_EQ(0, region_unregister(self->fd, r[at].handle));
	}
	EXPECT_EQ(0, vm_pin());
	EXPECT_EQ(self->pins, machine_pins());
}

TEST_F(memlock, same_memory_by_two_files)
{
	int other = uldma_open(0);
	struct region theirs;

	ASSERT_LE(0, other);
	ASSERT_EQ(0, register_pages(self, 0, 4, &self->r));
	ASSERT_EQ(0, region_register(other, self->buf + 2 * self->page,
				     4 * self->page, RW, &theirs));
	EXPECT_EQ(6, vm_pin());
	EXPECT_EQ(6, pinned_pages(self->fd));
	ASSERT_EQ(0, region_unregister(self->fd, self->r.handle));
	EXPECT_EQ(4, vm_pin());
	ASSERT_EQ(0, close(other));
	EXPECT_EQ(0, vm_pin());
	EXPECT_EQ(self->pins, machine_pins());
}

/* A failure in the middle must not release the pins of earlier areas. */
TEST_F(memlock, failed_overlap)
{
	struct region more;

	pattern_fill(self->buf, self->page, 1);
	ASSERT_EQ(0, register_pages(self, 0, 2, &self->r));
	ASSERT_EQ(0, munmap(self->buf + 3 * self->page, self->page));
	for (int i = 0; i < 8; i++) {
		EXPECT_EQ(-EFAULT, register_pages(self, 1, 4, &more))
			TH_LOG("time %d", i);
	}
	EXPECT_EQ(2, vm_pin());
	EXPECT_EQ(self->pins + 2, machine_pins());
	EXPECT_EQ(0, transfer(self->fd, BY_KERNEL, &self->r, self->page,
			      &self->r, 0, self->page));
	EXPECT_EQ(-1, pattern_check(self->buf + self->page, self->page, 1));
}

FIXTURE(order) {
	int fd;
};

FIXTURE_VARIANT(order) {
	int order[3];
};

FIXTURE_SETUP(order)
{
	self->fd = uldma_open(0);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(order)
{
	close(self->fd);
}

FIXTURE_VARIANT_ADD(order, abc) { { 0, 1, 2 } };
FIXTURE_VARIANT_ADD(order, acb) { { 0, 2, 1 } };
FIXTURE_VARIANT_ADD(order, bac) { { 1, 0, 2 } };
FIXTURE_VARIANT_ADD(order, bca) { { 1, 2, 0 } };
FIXTURE_VARIANT_ADD(order, cab) { { 2, 0, 1 } };
FIXTURE_VARIANT_ADD(order, cba) { { 2, 1, 0 } };

static int pages_of(__u64 mask)
{
	return __builtin_popcountll(mask);
}

/* Two ranges that touch and one over both, ended in each order. */
TEST_F(order, unregister)
{
	static const __u64 masks[3] = { 0x0f, 0xf0, 0x7e };
	long long pins = machine_pins();
	size_t page = page_size();
	char *buf = buffer(8 * page);
	__u64 left = 0xff;
	struct region r[3];

	ASSERT_NE(NULL, buf);
	ASSERT_EQ(0, region_register(self->fd, buf, 4 * page, RW, &r[0]));
	ASSERT_EQ(0, region_register(self->fd, buf + 4 * page, 4 * page, RW,
				     &r[1]));
	ASSERT_EQ(0, region_register(self->fd, buf + page, 6 * page, RW,
				     &r[2]));
	EXPECT_EQ(8, vm_pin());
	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(0, region_unregister(self->fd,
					       r[variant->order[i]].handle));
		left = 0;
		for (int j = i + 1; j < 3; j++)
			left |= masks[variant->order[j]];
		EXPECT_EQ(pages_of(left), vm_pin());
		EXPECT_EQ(pages_of(left), pinned_pages(self->fd));
		for (int j = i + 1; j < 3; j++) {
			EXPECT_EQ(0, transfer(self->fd, BY_KERNEL,
					      &r[variant->order[j]], 0,
					      &r[variant->order[j]], page,
					      page));
		}
	}
	EXPECT_EQ(0, left);
	EXPECT_EQ(pins, machine_pins());
}

/* Random ranges against a count per page. */
TEST_F(memlock, random_ranges)
{
	struct {
		struct region r;
		int first;
		int count;
	} slot[24] = { };
	int uses[PAGES] = { };
	unsigned int seed = 1;

	for (int step = 0; step < 2000; step++) {
		int i = rand_r(&seed) % ARRAY_SIZE(slot);
		int change = slot[i].count ? -1 : 1;
		int expected = 0;

		if (slot[i].count) {
			ASSERT_EQ(0, region_unregister(self->fd,
						       slot[i].r.handle));
		} else {
			slot[i].first = rand_r(&seed) % PAGES;
			slot[i].count = 1 + rand_r(&seed) %
					(PAGES - slot[i].first);
			ASSERT_EQ(0, register_pages(self, slot[i].first,
						    slot[i].count, &slot[i].r));
		}
		for (int p = 0; p < slot[i].count; p++)
			uses[slot[i].first + p] += change;
		if (change < 0)
			slot[i].count = 0;
		for (int p = 0; p < PAGES; p++)
			expected += !!uses[p];
		ASSERT_EQ(expected, pinned_pages(self->fd))
			TH_LOG("step %d", step);
	}
	EXPECT_EQ(pinned_pages(self->fd), vm_pin());
	EXPECT_EQ(self->pins + vm_pin(), machine_pins());
}

struct racer {
	pthread_barrier_t *barrier;
	int fd;
	char *at;
	size_t length;
	int rounds;
	int got;
	int errors;
};

static void *race_for_limit(void *arg)
{
	struct racer *racer = arg;
	struct region r;

	for (int i = 0; i < racer->rounds; i++) {
		int ret;

		pthread_barrier_wait(racer->barrier);
		ret = region_register(racer->fd, racer->at, racer->length, RW,
				      &r);
		racer->got = !ret;
		racer->errors += ret && ret != -ENOMEM;
		pthread_barrier_wait(racer->barrier);
		/* The main thread looks, while nothing changes. */
		pthread_barrier_wait(racer->barrier);
		if (!ret && region_unregister(racer->fd, r.handle))
			racer->errors++;
	}
	return NULL;
}

TEST_F(memlock, threads_race_for_limit)
{
	struct racer racers[2];
	pthread_barrier_t barrier;
	pthread_t threads[2];
	int rounds = 200;

	ASSERT_EQ(0, set_memlock(self->page));
	ASSERT_EQ(0, drop_privileges());
	pthread_barrier_init(&barrier, NULL, 3);
	for (int i = 0; i < 2; i++) {
		racers[i] = (struct racer){
			.barrier = &barrier,
			.fd = self->fd,
			.at = self->buf + i * self->page,
			.length = self->page,
			.rounds = rounds,
		};
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, race_for_limit,
					    &racers[i]));
	}
	for (int i = 0; i < rounds; i++) {
		pthread_barrier_wait(&barrier);
		pthread_barrier_wait(&barrier);
		EXPECT_GE(1, racers[0].got + racers[1].got);
		EXPECT_EQ(racers[0].got + racers[1].got, vm_pin());
		pthread_barrier_wait(&barrier);
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		EXPECT_EQ(0, racers[i].errors);
	}
	EXPECT_EQ(0, vm_pin());
}

static void *race_for_range(void *arg)
{
	struct racer *racer = arg;
	struct region r;

	pthread_barrier_wait(racer->barrier);
	for (int i = 0; i < racer->rounds; i++)
		if (region_register(racer->fd, racer->at, racer->length, RW,
				    &r) ||
		    region_unregister(racer->fd, r.handle))
			racer->errors++;
	return NULL;
}

TEST_F(memlock, threads_share_a_range)
{
	struct racer racers[8];
	pthread_barrier_t barrier;
	pthread_t threads[8];

	pthread_barrier_init(&barrier, NULL, ARRAY_SIZE(threads));
	for (int i = 0; i < ARRAY_SIZE(threads); i++) {
		racers[i] = (struct racer){
			.barrier = &barrier,
			.fd = self->fd,
			.at = self->buf + i % 3 * self->page,
			.length = 5 * self->page,
			.rounds = 100,
		};
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, race_for_range,
					    &racers[i]));
	}
	for (int i = 0; i < ARRAY_SIZE(threads); i++) {
		pthread_join(threads[i], NULL);
		EXPECT_EQ(0, racers[i].errors);
	}
	EXPECT_EQ(0, query(self->fd).out_file_regions);
	EXPECT_EQ(0, vm_pin());
	EXPECT_EQ(self->pins, machine_pins());
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
