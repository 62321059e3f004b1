// SPDX-License-Identifier: GPL-2.0
/*
 * The kernel takes pages of a process away, moves, shares and protects them, and the
 * process does what it likes with its memory, while the device reads and writes it:
 * it never reads a byte of another page or one that was gone before, and no write
 * that it has acknowledged is lost, or found elsewhere.
 */
#include "uldma_harness.h"
#include "uldma_rounds.h"
#include "uldma_userfault.h"

static int advise(struct owner *o, size_t first, size_t count, int advice)
{
	return madvise(page_at(o, first), count * o->page, advice) ? -errno : 0;
}

static int discard_both(struct owner *o, change_fn change, bool for_good)
{
	struct few f = few_of(o);
	int ret;

	/* All at once, so that each page gets the frame of another one. */
	if (!random_below(o, 4))
		f = (struct few){ 0, o->half, o->half };
	ret = discard(o, f.read, f.count, change, for_good) ?:
	      discard(o, f.write, f.count, change, for_good);
	refill(o, f.read, f.count);
	refill(o, f.write, f.count);
	return ret;
}

static int dont_need(struct owner *o, size_t first, size_t count)
{
	return advise(o, first, count, MADV_DONTNEED);
}

static int discarded(struct owner *o)
{
	o->events++;
	return discard_both(o, dont_need, true);
}

/* Pages that are free to go, and then go if the device has not written them since. */
static int let_go(struct owner *o, size_t first, size_t count)
{
	return advise(o, first, count, MADV_FREE);
}

static int freed(struct owner *o)
{
	struct few f = few_of(o);
	long long before = events_of("pglazyfreed");
	int ret;

	ret = discard(o, f.read, f.count, let_go, false) ?:
	      discard(o, f.write, f.count, let_go, false) ?:
	      random_below(o, 2) ? owner_wait(o) : 0;
	ret = ret ?: advise(o, f.read, f.count, MADV_PAGEOUT) ?:
		     advise(o, f.write, f.count, MADV_PAGEOUT);
	check_writes(o, f.write, f.count);
	o->events += events_of("pglazyfreed") - before;
	refill(o, f.read, f.count);
	refill(o, f.write, f.count);
	return ret;
}

/* The group has memory for half of the pages. */
static int limited(struct owner *o)
{
	long long before = events_of("pswpout");

	for (size_t p = 0; p < o->half; p++) {
		check_writes(o, o->half + p, 1);
		touch_page(o, o->half + p);
		touch_page(o, p);
		if (p % 8 == 0)
			restamp(o, p, 1);
	}
	o->events += events_of("pswpout") - before;
	return 0;
}

/* More pages than the kernel keeps for each CPU. */
#define BALLAST (4UL << 20)

static char *ballast;

/* The frames go to other memory, so that the pages get others. */
static int give_away(struct owner *o, size_t first, size_t count)
{
	int ret = dont_need(o, first, count);

	ballast = map_small(o, BALLAST);
	if (!ballast)
		return -ENOMEM;
	memset(ballast, 1, BALLAST);
	return ret;
}

static int compacted(struct owner *o)
{
	__u64 before[2 * o->half], now[2 * o->half];
	int ret;

	ret = discard(o, 0, 2 * o->half, give_away, true);
	refill(o, 0, 2 * o->half);
	/* There is room now where the kernel moves pages to. */
	munmap(ballast, BALLAST);
	frames_of(o->at, 2 * o->half, before);
	ret = ret ?: put("/proc/sys/vm/compact_memory", "1");
	o->events += frames_changed(o, before, now);
	check_writes(o, o->half, o->half);
	restamp(o, 0, o->half);
	touch_pages(o, o->half, o->half);
	return ret;
}

/* The kernel takes frames out of use, for good. */
static int offlined(struct owner *o)
{
	struct few f = few_of(o);
	int ret = 0;

	for (int i = 0; i < 2 && !ret; i++) {
		ret = advise(o, i ? f.read : f.write, 1, MADV_SOFT_OFFLINE);
		o->events += !ret;
		/* A page that is on its way to a list is in use. */
		if (ret == -EBUSY)
			ret = 0;
	}
	ret = ret ?: owner_wait(o);
	use_again(o, &f);
	return ret;
}

/* Nothing changes what may not be written, nor reads what may not be read. */
static int shut_both(struct owner *o, change_fn no_reads, change_fn no_writes,
		     change_fn open)
{
	struct few f = few_of(o);
	size_t length = f.count * o->page;
	char *at = page_at(o, f.write);
	int ret;

	touch_pages(o, f.write, f.count);
	ret = no_writes(o, f.write, f.count) ?:
	      no_reads ? no_reads(o, f.read, f.count) : 0;
	if (ret)
		return ret;
	if (no_reads)
		owner_shut(o, f.read, f.count);
	owner_shut(o, f.write, f.count);
	memcpy(o->copy, at, length);
	ret = owner_wait(o);
	if (memcmp(o->copy, at, length))
		note_harm(o->writer.harm, "write: to pages that may not be written");
	if (no_reads)
		owner_shut(o, f.read, f.count);
	owner_shut(o, f.write, f.count);
	/* Whatever was wrong: a page that is shut has its thread wait. */
	ret = open(o, f.read, f.count) ?: open(o, f.write, f.count) ?: ret;
	use_again(o, &f);
	o->events++;
	return ret;
}

static int protect(struct owner *o, size_t first, size_t count, int prot)
{
	return mprotect(page_at(o, first), count * o->page, prot) ? -errno : 0;
}

static int protect_all(struct owner *o, size_t first, size_t count)
{
	return protect(o, first, count, PROT_NONE);
}

static int protect_from_writes(struct owner *o, size_t first, size_t count)
{
	return protect(o, first, count, PROT_READ);
}

static int unprotect(struct owner *o, size_t first, size_t count)
{
	return protect(o, first, count, PROT_READ | PROT_WRITE);
}

static int protected(struct owner *o)
{
	return shut_both(o, protect_all, protect_from_writes, unprotect);
}

static int write_protected(struct owner *o)
{
	return shut_both(o, NULL, userfault_protect, userfault_unprotect);
}

/* What is missing the process gives itself, without a fault of the device's. */
static int userfaulted(struct owner *o)
{
	struct few f = few_of(o);
	int ret;

	ret = discard(o, f.read, f.count, dont_need, true) ?:
	      discard(o, f.write, f.count, dont_need, true) ?:
	      random_below(o, 2) ? owner_wait(o) : 0;
	/* Whatever was wrong: a page that is missing has its thread wait. */
	for (size_t p = f.read; p < f.read + f.count; p++) {
		__u32 next = o->state[p].newest | 1;

		stamp_page(o->copy, place_of(o, p), OWNER, next / 2);
		STORE_RELEASE(o->state[p].newest, next);
		ret = userfault_copy(page_at(o, p), o->copy, o->page) ?: ret;
		STORE_RELEASE(o->state[p].oldest, next);
	}
	memset(o->copy, 0, o->page);
	for (size_t p = f.write; p < f.write + f.count; p++)
		ret = userfault_copy(page_at(o, p), o->copy, o->page) ?: ret;
	o->events++;
	return ret ?: userfault_none();
}

/* Memory goes elsewhere, and comes back. */
static int remap(char *from, char *to, size_t length)
{
	return mremap(from, length, length, MREMAP_MAYMOVE | MREMAP_FIXED,
		      to) == to ? 0 : -errno;
}

static int remapped(struct owner *o)
{
	struct few f = few_of(o);
	size_t length = f.count * o->page;
	char *away = map_small(o, 2 * length);
	int ret;

	if (!away)
		return -ENOMEM;
	check_writes(o, f.write, f.count);
	ret = remap(page_at(o, f.read), away, length) ?:
	      remap(page_at(o, f.write), away + length, length);
	if (ret)
		return ret;
	owner_shut(o, f.read, f.count);
	owner_shut(o, f.write, f.count);
	memcpy(o->copy, away, 2 * length);
	ret = owner_wait(o);
	if (memcmp(o->copy, away, 2 * length))
		note_harm(o->writer.harm, "write: to pages that were moved away");
	for (size_t p = 0; p < f.count; p++)
		check_write(o, f.write + p, away + length + p * o->page);
	owner_shut(o, f.read, f.count);
	owner_shut(o, f.write, f.count);
	ret = ret ?: remap(away, page_at(o, f.read), length) ?:
		     remap(away + length, page_at(o, f.write), length);
	use_again(o, &f);
	o->events++;
	return ret;
}

static int unmap(struct owner *o, size_t first, size_t count)
{
	char *at = page_at(o, first);
	size_t length = count * o->page;

	if (munmap(at, length))
		return -errno;
	if (mmap(at, length, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
		 0) != at)
		return -errno;
	return advise(o, first, count, MADV_NOHUGEPAGE);
}

static int unmapped(struct owner *o)
{
	o->events++;
	return discard_both(o, unmap, true);
}

/* In a child: its copy stays as it is, and then what it has written itself. */
static int keep_copy(struct owner *o, int in, int out)
{
	size_t pages = 2 * o->half;
	__u32 number;
	char byte;

	memcpy(o->copy, o->at, pages * o->page);
	if (write(out, "", 1) != 1 || read(in, &byte, 1) != 1)
		return 2;
	if (memcmp(o->copy, o->at, pages * o->page))
		return 3;
	for (size_t p = 0; p < pages; p++)
		stamp_page(page_at(o, p), place_of(o, p), CHILD, 1);
	if (write(out, "", 1) != 1 || read(in, &byte, 1) != 1)
		return 2;
	for (size_t i = 0; i < pages * o->page; i += sizeof(__u64))
		if (!stamped(*(__u64 *)(o->at + i), i, CHILD, &number))
			return 4;
	execl("/bin/true", "true", NULL);
	return 0;
}

static int forked(struct owner *o)
{
	int to[2], from[2], status, ret = 0;
	struct few f = few_of(o);
	char byte;
	pid_t pid;

	if (pipe(to) || pipe(from))
		return -errno;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(to[1]);
		close(from[0]);
		_exit(keep_copy(o, to[0], from[1]));
	}
	close(to[0]);
	close(from[1]);
	/* Once without any write, once after the process has its own copies. */
	for (int i = 0; i < 2 && !ret; i++) {
		if (read(from[0], &byte, 1) != 1)
			ret = -EPIPE;
		restamp(o, f.read, f.count);
		touch_pages(o, f.write, f.count);
		ret = ret ?: owner_wait(o);
		if (write(to[1], "", 1) != 1)
			ret = -EPIPE;
		f = (struct few){ 0, o->half, o->half };
		o->events++;
	}
	close(to[1]);
	close(from[0]);
	if (waitpid(pid, &status, 0) != pid)
		return -errno;
	if (status)
		note_harm(o->writer.harm, "write: to the child's copy: status %#x",
			  status);
	use_again(o, &f);
	return ret;
}

/* Pages that are like others are one with these, until either is written. */
static int merged(struct owner *o)
{
	struct few f = few_of(o);
	size_t length = f.count * o->page;
	char *twin = merge_memory(2 * length);
	int ret;

	if (!twin)
		return -ENOMEM;
	WRITE_ONCE(o->pause, true);
	ret = owner_wait(o);
	memcpy(twin, page_at(o, f.read), length);
	memcpy(twin + length, page_at(o, f.write), length);
	memcpy(o->copy, twin, 2 * length);
	ret = ret ?: merge_wait(twin, 2 * length, page_at(o, f.read),
				page_at(o, f.write), &o->events);
	WRITE_ONCE(o->pause, false);
	ret = ret ?: owner_wait(o);
	restamp(o, f.read, f.count);
	touch_pages(o, f.write, f.count);
	ret = ret ?: owner_wait(o);
	if (memcmp(o->copy, twin, 2 * length))
		note_harm(o->writer.harm, "write: to pages that are others', too");
	/* What is like it would be merged again, before it can be written. */
	munmap(twin, 2 * length);
	use_again(o, &f);
	return ret ?: owner_wait(o);
}

FIXTURE(stamps) {
	struct owner o;
	struct squat *other;
	pid_t pid;
};

FIXTURE_VARIANT(stamps) {
	/* One round of what is done with the memory. */
	int (*round)(struct owner *o);
	/* Returns why it cannot be done here, or NULL. */
	const char *(*begin)(struct owner *o);
	void (*end)(struct owner *o);
	bool zeroes;
	size_t half;
	/* Reads meet pages that are missing, too. */
	bool reads_miss;
};

#define HALF 32

FIXTURE_VARIANT_ADD(stamps, discarded) {
	.round = discarded,
	.zeroes = true,
	.reads_miss = true,
};

FIXTURE_VARIANT_ADD(stamps, freed) { freed, .zeroes = true };

FIXTURE_VARIANT_ADD(stamps, paged_out) {
	.round = paged_out,
	.begin = outside_begin,
	.end = outside_end,
	.reads_miss = true,
};

FIXTURE_VARIANT_ADD(stamps, limited) {
	.round = limited,
	.begin = group_begin,
	.end = group_leave,
	.half = 512,
	.reads_miss = true,
};

FIXTURE_VARIANT_ADD(stamps, compacted) { compacted, .zeroes = true };

FIXTURE_VARIANT_ADD(stamps, migrated) { migrated, nodes_begin };

FIXTURE_VARIANT_ADD(stamps, balanced) {
	.round = balanced,
	.begin = balance_begin,
	.end = balance_end,
};

FIXTURE_VARIANT_ADD(stamps, offlined) { offlined, offline_begin };

FIXTURE_VARIANT_ADD(stamps, merged) {
	.round = merged,
	.begin = merge_begin,
	.end = merge_end,
};

FIXTURE_VARIANT_ADD(stamps, userfaulted) {
	.round = userfaulted,
	.begin = userfault_begin_missing,
	.end = userfault_end,
	.reads_miss = true,
};

FIXTURE_VARIANT_ADD(stamps, write_protected) {
	.round = write_protected,
	.begin = userfault_begin_protect,
	.end = userfault_end,
};

FIXTURE_VARIANT_ADD(stamps, protected) { protected, .reads_miss = true };

FIXTURE_VARIANT_ADD(stamps, remapped) { remapped, .reads_miss = true };

FIXTURE_VARIANT_ADD(stamps, unmapped) {
	.round = unmapped,
	.zeroes = true,
	.reads_miss = true,
};

FIXTURE_VARIANT_ADD(stamps, forked) { forked };

FIXTURE_SETUP(stamps)
{
	const char *why;
	int ret;

	if (access(COUNTERS, R_OK))
		SKIP(return, "no counters at " COUNTERS);
	self->o = (struct owner){
		.page = page_size(),
		.half = variant->half ?: HALF,
		.file = -1,
		.zeroes = variant->zeroes,
	};
	self->o.at = map_small(&self->o, 2 * self->o.half * self->o.page);
	ASSERT_NE(NULL, self->o.at);
	ret = owner_make(&self->o);
	if (ret == -EOPNOTSUPP)
		SKIP(return, "the device has no optimistic entries");
	ASSERT_EQ(0, ret);
	self->other = squat_start(&self->pid);
	ASSERT_NE(NULL, self->other);
	why = variant->begin ? variant->begin(&self->o) : NULL;
	if (why)
		SKIP(return, "%s", why);
}

FIXTURE_TEARDOWN(stamps)
{
	if (self->other)
		EXPECT_EQ(0, squat_stop(self->other, self->pid));
	owner_end(&self->o);
}

TEST_F(stamps, are_true)
{
	struct shown before = shown_now();
	__u64 limit = now_ns() + LIMIT;
	struct owner *o = &self->o;
	unsigned long rounds = 0;
	int ret;

	ASSERT_EQ(0, owner_start(o));
	do {
		ret = variant->round(o);
		rounds++;
	} while (!ret && !owner_fails(o) && !*self->other->harm &&
		 now_ns() < limit &&
		 !(shown_enough(o, &before) && o->events >= ENOUGH &&
		   (!variant->reads_miss || o->reader.exceptions >= ENOUGH)));
	owner_stop(o);
	if (variant->end)
		variant->end(o);
	TH_LOG("%lu rounds, %lu events, reads %lu of %lu, %lu missing; "
	       "writes %lu, %lu missing; squats %lu; filled %lld, ended %lld",
	       rounds, o->events, o->reader.moved, o->reader.rounds,
	       o->reader.exceptions, o->writer.moved, o->writer.exceptions,
	       self->other->rounds, shown_now().filled - before.filled,
	       shown_now().ended - before.ended);
	EXPECT_EQ(0, ret);
	EXPECT_EQ(0, o->reader.ret);
	EXPECT_EQ(0, o->writer.ret);
	EXPECT_STREQ("", o->reader.harm);
	EXPECT_STREQ("", o->writer.harm);
	EXPECT_STREQ("", self->other->harm);
	EXPECT_TRUE(shown_enough(o, &before));
	EXPECT_LE(ENOUGH, o->events);
	EXPECT_LE(1, LOAD_ACQUIRE(self->other->rounds));
	if (variant->reads_miss)
		EXPECT_LE(ENOUGH, o->reader.exceptions);
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
