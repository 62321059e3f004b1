// SPDX-License-Identifier: GPL-2.0
/*
 * Failing allocations and copies in calls that register, unregister and query
 * memory, with and without the pin cache.
 */
#include "uldma_fail_nth.h"
#include "uldma_lmm.h"

static int register_many(struct subject *it)
{
	return region_register(it->fd, it->buf, PAGES * page_size(), RW,
			       &it->r);
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

/* After an error the call succeeds when repeated: the region is intact. */
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

/* The remaining areas are split or merged, and have to be intact. */
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

int main(int argc, char **argv)
{
	return fail_nth_main(argc, argv);
}
