// SPDX-License-Identifier: GPL-2.0
/*
 * Failing allocations and copies in calls that make and end open files,
 * contexts, mappings, exports and segments, and in transfers.
 */
#include "uldma_fail_nth.h"
#include "uldma_window.h"

TEST_F(fail_nth, open)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.call = open_it,
		.undo = close_it,
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

/* The driver has to register for notifications of context switches. */
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

static int create_window(struct subject *it)
{
	struct window w;
	int ret = window_create(it->fd, RW, 3 * page_size(), &w);

	it->r = w.r;
	return ret;
}

TEST_F(fail_nth, window_create)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.call = create_window,
		.undo = unregister,
	});
}

TEST_F(fail_nth, window_unregister)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.prepare = create_window,
		.call = unregister,
		.clear = unregister,
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
	return fail_nth_main(argc, argv);
}
