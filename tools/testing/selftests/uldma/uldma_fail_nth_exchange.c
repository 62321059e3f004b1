// SPDX-License-Identifier: GPL-2.0
/*
 * Failing allocations and copies in calls on exchangeable memory.
 */
#include "uldma_fail_nth.h"
#include "uldma_exchange.h"

#define LENGTH (16 * page_size())

static struct memory memory, other;

static int create(struct subject *it)
{
	return memory_create(it->fd, LENGTH, &memory);
}

static int end(struct subject *it)
{
	return region_unregister(it->fd, memory.r.handle);
}

TEST_F(fail_nth, exchange_create)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.call = create,
		.undo = end,
	});
}

static int protect(struct subject *it)
{
	return memory_protect(it->fd, &memory, 0, LENGTH);
}

TEST_F(fail_nth, exchange_protect)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.prepare = create,
		.call = protect,
		.undo = end,
		.clear = end,
	});
}

static int create_and_copy(struct subject *it)
{
	int ret = create(it) ?: memory_map(it->fd, &memory) ?: protect(it);

	if (ret)
		return ret;
	memset(memory.at, 1, LENGTH);
	return munmap(memory.at, LENGTH) ? -errno : 0;
}

static int release(struct subject *it)
{
	int ret = memory_release(it->fd, &memory, 0, LENGTH);

	return ret < 0 ? ret : 0;
}

TEST_F(fail_nth, exchange_release)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.prepare = create_and_copy,
		.call = release,
		.undo = end,
		.clear = end,
	});
}

static int create_two(struct subject *it)
{
	return create(it) ?: memory_create(it->fd, LENGTH, &other);
}

static int end_two(struct subject *it)
{
	return end(it) ?: region_unregister(it->fd, other.r.handle);
}

static int swap(struct subject *it)
{
	return memory_swap(it->fd, &memory, 0, &other, 0, LENGTH);
}

TEST_F(fail_nth, exchange_swap)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.prepare = create_two,
		.call = swap,
		.undo = end_two,
		.clear = end_two,
	});
}

int main(int argc, char **argv)
{
	return fail_nth_main(argc, argv);
}
