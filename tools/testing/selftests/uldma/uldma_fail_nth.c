// SPDX-License-Identifier: GPL-2.0
/*
 * Every allocation and every copy from or to user space of a call fails once,
 * by /proc/self/fail-nth. The call then tells so by an errno that callers know,
 * or needs it not and succeeds; either way nothing is left behind. What else
 * may go wrong is told by the debug kernel in its log.
 */
#include "uldma_harness.h"
#include "uldma_kinds.h"
#include "uldma_lmm.h"

#define NAME 0x68746e2d6c696166ULL
#define DEBUG "/sys/kernel/debug/"
/* More than a call can have by far. */
#define SITES 2000
/* So many that arrays of them take more than one page. */
#define PAGES 1500
/* Releasing may go on for a moment after the call. */
#define SETTLE 200

/**
 * struct state - what a call may leave behind
 * @vm_pin: pages charged to this process
 * @machine_pins: pages pinned in the machine
 * @usage: the driver's own counts
 */
struct state {
	long vm_pin;
	long long machine_pins;
	char usage[512];
};

/**
 * struct subject - what the calls work on
 * @armed: fail-nth of this thread
 * @fd: the device
 * @other: the device, opened by a call
 * @buf: touched memory
 * @map: mapped by a call
 * @r: a region
 * @c: a context
 * @s: a segment
 * @a: a region that is in the way of another
 * @b: one more
 */
struct subject {
	int armed;
	int fd;
	int other;
	char *buf;
	void *map;
	struct region r;
	struct context c;
	struct segment s;
	struct region a;
	struct region b;
};

FIXTURE(fail_nth) {
	struct subject it;
};

/* Allow any allocation to fail, and do not fill the log. */
static int allow(void)
{
	int ret = put(DEBUG "failslab/ignore-gfp-wait", "N");

	ret = ret ?: put(DEBUG "fail_page_alloc/ignore-gfp-wait", "N");
	ret = ret ?: put(DEBUG "fail_page_alloc/ignore-gfp-highmem", "N");
	ret = ret ?: put(DEBUG "fail_page_alloc/min-order", "0");
	ret = ret ?: put(DEBUG "failslab/verbose", "0");
	ret = ret ?: put(DEBUG "fail_page_alloc/verbose", "0");
	return ret ?: put(DEBUG "fail_usercopy/verbose", "0");
}

FIXTURE_SETUP(fail_nth)
{
	ASSERT_EQ(0, allow());
	self->it.armed = open("/proc/thread-self/fail-nth", O_RDWR);
	ASSERT_LE(0, self->it.armed);
	self->it.fd = uldma_open(0);
	ASSERT_LE(0, self->it.fd);
	self->it.buf = buffer(PAGES * page_size());
	ASSERT_NE(NULL, self->it.buf);
}

FIXTURE_TEARDOWN(fail_nth)
{
	close(self->it.fd);
	close(self->it.armed);
}

static void look(struct state *s)
{
	int fd = open(DEBUG "uldma0/usage", O_RDONLY);
	ssize_t n;

	*s = (struct state){ .vm_pin = vm_pin(),
			     .machine_pins = machine_pins() };
	n = fd < 0 ? -1 : read(fd, s->usage, sizeof(s->usage) - 1);
	if (n < 0)
		strcpy(s->usage, "unreadable");
	close(fd);
}

static bool same(const struct state *a, const struct state *b)
{
	return a->vm_pin == b->vm_pin && a->machine_pins == b->machine_pins &&
	       !strcmp(a->usage, b->usage);
}

static bool settles(const struct state *before, struct state *after)
{
	for (int i = 0; i < SETTLE; i++) {
		look(after);
		if (same(before, after))
			return true;
		usleep(5000);
	}
	return false;
}

/**
 * struct sweep - a call and what belongs to it
 * @prepare: makes what it works on, or NULL
 * @call: what is to fail; 0 or a negated errno
 * @undo: after a success, or NULL
 * @clear: after a failure, or NULL; what was prepared is whole
 */
struct sweep {
	int (*prepare)(struct subject *it);
	int (*call)(struct subject *it);
	int (*undo)(struct subject *it);
	int (*clear)(struct subject *it);
};

static int step(int (*fn)(struct subject *it), struct subject *it)
{
	return fn ? fn(it) : 0;
}

/*
 * Makes the nth site fail during the call. Says whether there was an nth one:
 * reading the count and clearing it are sites themselves.
 */
static int call_failing(struct subject *it, const struct sweep *s,
			unsigned int nth, bool *reached)
{
	char text[16];
	ssize_t n;
	int ret;

	snprintf(text, sizeof(text), "%u", nth);
	if (pwrite(it->armed, text, strlen(text), 0) < 0)
		return -EPROTO;
	ret = s->call(it);
	memset(text, 0, sizeof(text));
	n = pread(it->armed, text, sizeof(text) - 1, 0);
	*reached = n > 0 && !strcmp(text, "0\n");
	while (pwrite(it->armed, "0", 1, 0) < 0)
		if (errno != EFAULT)
			return -EPROTO;
	return ret;
}

static bool is_clean(int ret)
{
	return !ret || ret == -ENOMEM || ret == -EFAULT;
}

static void sweep(struct __test_metadata *_metadata, struct subject *it,
		  const struct sweep *s)
{
	struct state before, after;
	int failed = 0, ret;
	unsigned int nth;
	bool reached;

	/* Once without, for what the first call alone makes. */
	ASSERT_EQ(0, step(s->prepare, it));
	ASSERT_EQ(0, s->call(it));
	ASSERT_EQ(0, step(s->undo, it));
	look(&before);
	for (nth = 1; nth < SITES; nth++) {
		ASSERT_EQ(0, step(s->prepare, it));
		ret = call_failing(it, s, nth, &reached);
		EXPECT_TRUE(is_clean(ret))
			TH_LOG("site %u: %s", nth, strerror(-ret));
		EXPECT_TRUE(reached || !ret)
			TH_LOG("no site %u: %s", nth, strerror(-ret));
		failed += ret < 0;
		ASSERT_EQ(0, step(ret ? s->clear : s->undo, it))
			TH_LOG("site %u returned %d", nth, ret);
		ASSERT_TRUE(settles(&before, &after))
			TH_LOG("site %u (%s) left VmPin %ld, pins %lld, %s",
			       nth, strerror(-ret),
			       after.vm_pin - before.vm_pin,
			       after.machine_pins - before.machine_pins,
			       after.usage);
		if (!reached)
			break;
	}
	ASSERT_GT(SITES, nth);
	TH_LOG("%u sites, %d errors", nth - 1, failed);
}

static int open_it(struct subject *it)
{
	it->other = uldma_open(0);
	return it->other < 0 ? it->other : 0;
}

static int close_it(struct subject *it)
{
	return close(it->other) ? -errno : 0;
}

TEST_F(fail_nth, open)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.call = open_it,
		.undo = close_it,
	});
}

static int register_one(struct subject *it)
{
	return region_register(it->fd, it->buf + 8, 100, RW, &it->r);
}

static int register_many(struct subject *it)
{
	return region_register(it->fd, it->buf, PAGES * page_size(), RW,
			       &it->r);
}

static int unregister(struct subject *it)
{
	return region_unregister(it->fd, it->r.handle);
}

TEST_F(fail_nth, register_one)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.call = register_one,
		.undo = unregister,
	});
}

TEST_F(fail_nth, register_many)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.call = register_many,
		.undo = unregister,
	});
}

/* Memory that was never accessed: the kernel makes page tables meanwhile. */
static int register_fresh(struct subject *it)
{
	return region_register(it->fd, it->map, 3 * page_size(), RW,
			       &it->r);
}

static int fresh(struct subject *it)
{
	it->map = mmap(NULL, 3 * page_size(), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return it->map == MAP_FAILED ? -errno : 0;
}

static int drop_fresh(struct subject *it)
{
	return munmap(it->map, 3 * page_size()) ? -errno : 0;
}

static int unregister_fresh(struct subject *it)
{
	return unregister(it) ?: drop_fresh(it);
}

TEST_F(fail_nth, register_fresh)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.prepare = fresh,
		.call = register_fresh,
		.undo = unregister_fresh,
		.clear = drop_fresh,
	});
}

/* What was refused can be done again, so the region is still whole. */
TEST_F(fail_nth, unregister)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.prepare = register_many,
		.call = unregister,
		.clear = unregister,
	});
}

/*
 * Two areas in the range, a part of each of which has other memory now, whether
 * or not it was revalidated; and gaps before, between and behind.
 */
static int areas_and_suspects(struct subject *it)
{
	size_t page = page_size();
	char *p = map_anonymous(12 * page);

	it->map = p;
	return !p ? -ENOMEM :
	       region_register(it->fd, p + page, 4 * page, RW, &it->a) ?:
	       region_register(it->fd, p + 7 * page, 3 * page, RW, &it->b) ?:
	       madvise(p + 2 * page, page, MADV_DONTNEED) ||
			       madvise(p + 9 * page, 2 * page, MADV_DONTNEED) ?
		       -errno :
		       0;
}

static int register_over(struct subject *it)
{
	return region_register(it->fd, it->map, 12 * page_size(), RW, &it->r);
}

static int drop_areas(struct subject *it)
{
	return region_unregister(it->fd, it->a.handle) ?:
	       region_unregister(it->fd, it->b.handle) ?:
	       munmap(it->map, 12 * page_size()) ? -errno : 0;
}

static int unregister_over(struct subject *it)
{
	return unregister(it) ?: drop_areas(it);
}

TEST_F(fail_nth, register_over_areas)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.prepare = areas_and_suspects,
		.call = register_over,
		.undo = unregister_over,
		.clear = drop_areas,
	});
}

/* Areas for reading, of which a lock for writing needs some, and more. */
static int areas_to_read(struct subject *it)
{
	__u32 read = ULDMA_ACCESS_READ;
	size_t page = page_size();
	char *p = map_anonymous(12 * page);

	it->map = p;
	return !p ? -ENOMEM :
	       region_register(it->fd, p + page, 4 * page, read, &it->a) ?:
	       region_register(it->fd, p + 7 * page, 3 * page, read, &it->b);
}

TEST_F(fail_nth, register_to_write_what_is_read)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.prepare = areas_to_read,
		.call = register_over,
		.undo = unregister_over,
		.clear = drop_areas,
	});
}

static int areas_and_region(struct subject *it)
{
	return areas_and_suspects(it) ?: register_over(it);
}

/* What is left is split or merged, and has to be whole. */
TEST_F(fail_nth, unregister_from_areas)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.prepare = areas_and_region,
		.call = unregister,
		.undo = drop_areas,
		.clear = unregister_over,
	});
}

static int cleanup(struct subject *it)
{
	return region_cleanup(it->fd);
}

static int drop_map(struct subject *it)
{
	return munmap(it->map, 12 * page_size()) ? -errno : 0;
}

static int cleanup_again(struct subject *it)
{
	return cleanup(it) ?: drop_map(it);
}

TEST_F(fail_nth, cleanup)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.prepare = areas_and_region,
		.call = cleanup,
		.undo = drop_map,
		.clear = cleanup_again,
	});
}

static int ask_all(struct subject *it)
{
	struct uldma_region_charge charge;
	struct uldma_region_blocks blocks;
	struct uldma_block block[64];
	struct uldma_region_query query;
	struct uldma_lmm l;

	return region_query(it->fd, it->r.handle, &query) ?:
	       region_charge(it->fd, it->map, 12 * page_size(), RW, &charge) ?:
	       region_blocks(it->fd, it->r.handle, ULDMA_BLOCKS_PAGES, 0,
			     block, ARRAY_SIZE(block), &blocks) ?:
	       lmm_ioctl(it->fd, ULDMA_LMM_CACHE_OFF, &l);
}

TEST_F(fail_nth, questions)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.prepare = areas_and_region,
		.call = ask_all,
		.undo = unregister_over,
		.clear = unregister_over,
	});
}

/*
 * The cache releases unmapped memory, but not at once: after the revalidation
 * that a fence waits for, and so before the next.
 */
static int drop_cached(struct subject *it)
{
	return drop_areas(it) ?: stale_fence(it->other) ?:
				 stale_fence(it->other);
}

static int unregister_cached(struct subject *it)
{
	return unregister(it) ?: drop_cached(it);
}

TEST_F(fail_nth, register_with_cache)
{
	ASSERT_EQ(0, open_it(&self->it));
	ASSERT_EQ(0, turn_cache_on(self->it.fd));
	sweep(_metadata, &self->it, &(struct sweep){
		.prepare = areas_and_suspects,
		.call = register_over,
		.undo = unregister_cached,
		.clear = drop_cached,
	});
}

TEST_F(fail_nth, unregister_with_cache)
{
	ASSERT_EQ(0, open_it(&self->it));
	ASSERT_EQ(0, turn_cache_on(self->it.fd));
	sweep(_metadata, &self->it, &(struct sweep){
		.prepare = areas_and_region,
		.call = unregister,
		.undo = drop_cached,
		.clear = unregister_cached,
	});
}

static int create_context(struct subject *it)
{
	return context_create(it->fd, &it->c);
}

static int destroy_context(struct subject *it)
{
	return context_destroy(it->fd);
}

TEST_F(fail_nth, context_create)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.call = create_context,
		.undo = destroy_context,
	});
}

TEST_F(fail_nth, context_destroy)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.prepare = create_context,
		.call = destroy_context,
		.clear = destroy_context,
	});
}

static int create_queue_context(struct subject *it)
{
	return context_create_as(it->fd, ULDMA_METHOD_QUEUE, 0, &it->c);
}

/* One more page than others have. */
TEST_F(fail_nth, context_create_with_queue)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.call = create_queue_context,
		.undo = destroy_context,
	});
}

static int create_sched_notify_context(struct subject *it)
{
	return context_create_as(it->fd, ULDMA_METHOD_FLASH, 0, &it->c);
}

/* The kernel has to be asked to tell of context switches. */
TEST_F(fail_nth, context_create_sched_notify)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.call = create_sched_notify_context,
		.undo = destroy_context,
	});
}

static int map_context(struct subject *it)
{
	return map(it->fd, it->c.page_offset, it->c.page_length,
		   PROT_READ | PROT_WRITE, MAP_SHARED, &it->map);
}

static int unmap_and_destroy(struct subject *it)
{
	return munmap(it->map, it->c.page_length) ? -errno :
	       destroy_context(it);
}

TEST_F(fail_nth, context_map)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.prepare = create_context,
		.call = map_context,
		.undo = unmap_and_destroy,
		.clear = destroy_context,
	});
}

static int map_shadow(struct subject *it)
{
	return region_map(it->fd, &it->r, PROT_READ | PROT_WRITE);
}

static int register_with_context(struct subject *it)
{
	return create_context(it) ?: register_one(it);
}

static int unregister_with_context(struct subject *it)
{
	return unregister(it) ?: destroy_context(it);
}

static int unmap_shadow(struct subject *it)
{
	return region_unmap(&it->r) ?: unregister_with_context(it);
}

TEST_F(fail_nth, shadow_map)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.prepare = register_with_context,
		.call = map_shadow,
		.undo = unmap_shadow,
		.clear = unregister_with_context,
	});
}

static int export(struct subject *it)
{
	return region_export(it->fd, it->r.handle, RW, NAME);
}

static int unexport(struct subject *it)
{
	return region_unexport(it->fd, it->r.handle);
}

static int unexport_and_unregister(struct subject *it)
{
	return unexport(it) ?: unregister(it);
}

/* A name that was not freed would make the next export fail. */
TEST_F(fail_nth, export)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.prepare = register_one,
		.call = export,
		.undo = unexport_and_unregister,
		.clear = unregister,
	});
}

static int register_and_export(struct subject *it)
{
	return register_one(it) ?: export(it);
}

TEST_F(fail_nth, unexport)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.prepare = register_and_export,
		.call = unexport,
		.undo = unregister,
		.clear = unexport_and_unregister,
	});
}

static int create_segment(struct subject *it)
{
	return segment_create(it->fd, NAME, 3 * page_size(), &it->s);
}

static int destroy_segment(struct subject *it)
{
	return segment_destroy(it->fd, it->s.handle);
}

TEST_F(fail_nth, segment_create)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.call = create_segment,
		.undo = destroy_segment,
	});
}

TEST_F(fail_nth, segment_destroy)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.prepare = create_segment,
		.call = destroy_segment,
		.clear = destroy_segment,
	});
}

static int map_segment(struct subject *it)
{
	return segment_map(it->fd, &it->s);
}

static int unmap_segment(struct subject *it)
{
	return munmap(it->s.map, it->s.length) ? -errno :
	       destroy_segment(it);
}

TEST_F(fail_nth, segment_map)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.prepare = create_segment,
		.call = map_segment,
		.undo = unmap_segment,
		.clear = destroy_segment,
	});
}

static int start_and_wait(struct subject *it)
{
	return transfer(it->fd, BY_KERNEL, &it->r, 64, &it->r, 0, 32);
}

TEST_F(fail_nth, dma)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.prepare = register_one,
		.call = start_and_wait,
		.undo = unregister,
		.clear = unregister,
	});
}

/* Closing cannot fail, and takes everything with it. */
static int open_and_fill(struct subject *it)
{
	struct context c;
	struct segment s;
	struct region r;
	int fd = uldma_open(0);

	it->other = fd;
	return fd < 0 ? fd :
	       context_create(fd, &c) ?:
	       segment_create(fd, NAME, 1, &s) ?:
	       region_register(fd, it->buf, 4 * page_size(), RW, &r) ?:
	       region_export(fd, r.handle, RW, NAME);
}

TEST_F(fail_nth, close)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.prepare = open_and_fill,
		.call = close_it,
	});
}

int main(int argc, char **argv)
{
	if (argc == 1 && access(DEBUG "fail_usercopy", F_OK)) {
		ksft_print_header();
		ksft_set_plan(1);
		ksft_test_result_skip("the kernel has no fault injection\n");
		ksft_finished();
	}
	return uldma_main(argc, argv);
}
