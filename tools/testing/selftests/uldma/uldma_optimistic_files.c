// SPDX-License-Identifier: GPL-2.0
/*
 * Files that are mapped, cut and written back while the device reads and writes
 * them: what it has written is in the file. And processes that end, or run another
 * program, while the device writes to their memory: it writes to no other.
 */
#include "uldma_harness.h"
#include "uldma_owner.h"

#define HALF 32
#define FEW 8

/* Pages of the file that are cut off, or punched out. */
static int punch(struct owner *o, size_t first, size_t count)
{
	return fallocate(o->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			 place_of(o, first), count * o->page) ? -errno : 0;
}

static int cut(struct owner *o, size_t first, size_t count)
{
	return ftruncate(o->file, place_of(o, first)) ||
	       ftruncate(o->file, place_of(o, 2 * o->half)) ? -errno : 0;
}

static int cut_and_refill(struct owner *o, size_t first, size_t count,
			  change_fn change)
{
	int ret = discard(o, first, count, change, true);

	refill(o, first, count);
	o->events++;
	return ret;
}

static int punched(struct owner *o)
{
	size_t first = random_below(o, 2 * o->half);
	size_t count = 1 + random_below(o, 2 * o->half - first);

	return cut_and_refill(o, first, count, punch);
}

static int truncated(struct owner *o)
{
	size_t first = random_below(o, 2 * o->half);

	return cut_and_refill(o, first, 2 * o->half - first, cut);
}

/* Writes some pages back, and has them read from the disk again. */
static int written_back(struct owner *o)
{
	size_t count = 1 + random_below(o, FEW);
	size_t first = random_below(o, 2 * o->half - count + 1);
	char *at = page_at(o, first);
	size_t length = count * o->page;
	int ret = 0;

	if (random_below(o, 2))
		ret = msync(at, length, MS_SYNC) ? -errno : 0;
	else
		sync();
	check_writes(o, first, count);
	/* What is mapped is kept. */
	if (madvise(at, length, MADV_DONTNEED) ||
	    fsync(o->file) ||
	    posix_fadvise(o->file, place_of(o, first), length,
			  POSIX_FADV_DONTNEED))
		ret = -errno;
	o->events += count - resident(at, length);
	check_writes(o, first, count);
	restamp(o, first, count);
	touch_pages(o, first, count);
	return ret ?: owner_wait(o);
}

FIXTURE(files) {
	struct owner o;
};

FIXTURE_VARIANT(files) {
	int (*round)(struct owner *o);
	const char *in;
	bool zeroes;
};

FIXTURE_VARIANT_ADD(files, punched) { punched, "/dev/shm", true };
FIXTURE_VARIANT_ADD(files, truncated) { truncated, "/dev/shm", true };
FIXTURE_VARIANT_ADD(files, punched_ext4) { punched, EXT4, true };
FIXTURE_VARIANT_ADD(files, truncated_ext4) { truncated, EXT4, true };
FIXTURE_VARIANT_ADD(files, written_back) { written_back, EXT4 };

FIXTURE_SETUP(files)
{
	struct owner *o = &self->o;
	int ret;

	if (access(COUNTERS, R_OK))
		SKIP(return, "no counters at " COUNTERS);
	if (!strcmp(variant->in, EXT4) && !has_ext4())
		SKIP(return, "no ext4 at " EXT4);
	*o = (struct owner){
		.page = page_size(),
		.half = HALF,
		.zeroes = variant->zeroes,
	};
	o->file = file_in(variant->in, 2 * HALF * o->page);
	ASSERT_LE(0, o->file);
	o->at = map_or_why(2 * HALF * o->page, MAP_SHARED, o->file);
	ASSERT_NE(NULL, o->at);
	ret = owner_make(o);
	if (ret == -EOPNOTSUPP)
		SKIP(return, "the device has no optimistic entries");
	ASSERT_EQ(0, ret);
}

FIXTURE_TEARDOWN(files)
{
	owner_end(&self->o);
}

/* What is in the file when nothing of it is in memory. */
static int check_file(struct owner *o)
{
	size_t length = o->half * o->page;
	off_t at = place_of(o, o->half);

	if (munmap(o->at, 2 * length) || fsync(o->file) ||
	    posix_fadvise(o->file, 0, 0, POSIX_FADV_DONTNEED) ||
	    pread(o->file, o->copy, length, at) != length)
		return -errno;
	for (size_t p = 0; p < o->half; p++)
		check_write(o, o->half + p, o->copy + p * o->page);
	return 0;
}

TEST_F(files, are_true)
{
	struct shown before = shown_now();
	__u64 limit = now_ns() + LIMIT;
	struct owner *o = &self->o;
	int ret;

	ASSERT_EQ(0, owner_start(o));
	do
		ret = variant->round(o);
	while (!ret && !owner_fails(o) && now_ns() < limit &&
	       !(shown_enough(o, &before) && o->events >= ENOUGH));
	owner_stop(o);
	TH_LOG("%lu events, reads %lu, %lu missing; writes %lu, %lu missing",
	       o->events, o->reader.moved, o->reader.exceptions,
	       o->writer.moved, o->writer.exceptions);
	EXPECT_EQ(0, ret);
	EXPECT_EQ(0, check_file(o));
	EXPECT_EQ(0, o->reader.ret);
	EXPECT_EQ(0, o->writer.ret);
	EXPECT_STREQ("", o->reader.harm);
	EXPECT_STREQ("", o->writer.harm);
	EXPECT_TRUE(shown_enough(o, &before));
	EXPECT_LE(ENOUGH, o->events);
}

/* A process that ends while the device reads and writes its memory. */
FIXTURE(ending) {
	struct squat *other;
	pid_t pid;
};

FIXTURE_VARIANT(ending) {
	void (*end)(void);
};

static void by_exit(void)
{
	_exit(0);
}

static void by_kill(void)
{
	kill(getpid(), SIGKILL);
}

static void by_exec(void)
{
	execl("/bin/true", "true", NULL);
}

FIXTURE_VARIANT_ADD(ending, exit) { by_exit };
FIXTURE_VARIANT_ADD(ending, kill) { by_kill };
FIXTURE_VARIANT_ADD(ending, exec) { by_exec };

FIXTURE_SETUP(ending)
{
	if (access(COUNTERS, R_OK))
		SKIP(return, "no counters at " COUNTERS);
	self->other = squat_start(&self->pid);
	ASSERT_NE(NULL, self->other);
}

FIXTURE_TEARDOWN(ending)
{
	if (self->other)
		EXPECT_EQ(0, squat_stop(self->other, self->pid));
}

/* In a child, which returns an exit status only if it fails. */
static int run_and_end(void (*end)(void))
{
	struct owner o = { .page = page_size(), .half = HALF, .file = -1 };
	int ret;

	o.at = map_small(&o, 2 * HALF * o.page);
	ret = o.at ? owner_make(&o) : -ENOMEM;
	ret = ret ?: owner_start(&o);
	if (ret)
		return ret == -EOPNOTSUPP ? 77 : 1;
	while (LOAD_ACQUIRE(o.reader.moved) < 2 ||
	       LOAD_ACQUIRE(o.writer.moved) < 2)
		if (owner_fails(&o) || owner_wait(&o))
			return 2;
	end();
	return 3;
}

TEST_F(ending, is_the_end)
{
	struct shown before = shown_now(), now;
	unsigned long squats;
	int status, ends = 0;
	__u64 limit;
	pid_t pid;

	for (; ends < ENOUGH && !*self->other->harm; ends++) {
		pid = fork();
		ASSERT_LE(0, pid);
		if (!pid) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			_exit(run_and_end(variant->end));
		}
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
			SKIP(return, "the device has no optimistic entries");
		ASSERT_TRUE(!status || status == SIGKILL)
			TH_LOG("status %#x", status);
	}
	/* The other process has had the pages, and has checked them. */
	squats = LOAD_ACQUIRE(self->other->rounds) + 2;
	limit = now_ns() + PATIENCE;
	while (LOAD_ACQUIRE(self->other->rounds) < squats && now_ns() < limit)
		sched_yield();
	now = shown_now();
	TH_LOG("%d ends, filled %lld, ended %lld, squats %lu", ends,
	       now.filled - before.filled, now.ended - before.ended,
	       self->other->rounds);
	EXPECT_STREQ("", self->other->harm);
	EXPECT_LE(squats, self->other->rounds);
	EXPECT_LE(ENOUGH * HALF, now.ended - before.ended);
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
