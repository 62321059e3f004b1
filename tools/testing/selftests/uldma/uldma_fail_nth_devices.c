// SPDX-License-Identifier: GPL-2.0
/*
 * Calls by which two devices come to share pins, as uldma_fail_nth.h has it.
 */
#include "uldma_fail_nth.h"
#include "uldma_conn.h"

/* Pages of each device, half of which the other has, too. */
#define SHARED 12
/* More than any call has, so that none fails. */
#define MANY_SITES 1000000

static int open_second(struct subject *it)
{
	it->other = conn_open_at(uldma_other(), 0);
	return it->other < 0 ? it->other : 0;
}

static int register_first(struct subject *it)
{
	return region_register(it->fd, it->buf, SHARED * page_size(), RW,
			       &it->a);
}

static int unregister_first(struct subject *it)
{
	return region_unregister(it->fd, it->a.handle);
}

static int register_second(struct subject *it)
{
	return region_register(it->other,
			       it->buf + SHARED / 2 * page_size(),
			       SHARED * page_size(), RW, &it->b);
}

static int unregister_second(struct subject *it)
{
	return region_unregister(it->other, it->b.handle);
}

static int end_second(struct subject *it)
{
	return close_it(it) ?: unregister_first(it);
}

TEST_F(fail_nth, open_second)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.prepare = register_first,
		.call = open_second,
		.undo = end_second,
		.clear = unregister_first,
	});
}

/* The sites of opening the second device while the first has pages. */
static int sites_of_open(struct subject *it, size_t pages)
{
	char text[16];
	int left, ret;

	ret = region_register(it->fd, it->buf, pages * page_size(), RW, &it->a);
	if (ret)
		return ret;
	snprintf(text, sizeof(text), "%d", MANY_SITES);
	if (pwrite(it->armed, text, strlen(text), 0) < 0)
		return -EPROTO;
	ret = open_second(it);
	memset(text, 0, sizeof(text));
	if (pread(it->armed, text, sizeof(text) - 1, 0) <= 0)
		return -EPROTO;
	left = atoi(text);
	while (pwrite(it->armed, "0", 1, 0) < 0)
		if (errno != EFAULT)
			return -EPROTO;
	return ret ?: end_second(it) ?: MANY_SITES - left;
}

/* Others wait while a device is opened, so that takes no step for each page. */
TEST_F(fail_nth, open_is_bounded)
{
	int one, all;

	/* Once without, for what the first call alone makes. */
	ASSERT_LT(0, sites_of_open(&self->it, 1));
	one = sites_of_open(&self->it, 1);
	all = sites_of_open(&self->it, PAGES);
	ASSERT_LT(0, one);
	ASSERT_LT(0, all);
	EXPECT_GT(one + PAGES / 4, all)
		TH_LOG("%d sites with 1 page, %d with %d", one, all, PAGES);
}

static int both_open(struct subject *it)
{
	return open_second(it) ?: register_first(it);
}

static int end_both(struct subject *it)
{
	return unregister_second(it) ?: end_second(it);
}

TEST_F(fail_nth, register_second)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.prepare = both_open,
		.call = register_second,
		.undo = end_both,
		.clear = end_second,
	});
}

static int second_opened_later(struct subject *it)
{
	return register_first(it) ?: open_second(it);
}

/* The pages of the first device become shared when the second pins some. */
TEST_F(fail_nth, share_earlier_pins)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.prepare = second_opened_later,
		.call = register_second,
		.undo = end_both,
		.clear = end_second,
	});
}

/* The first device leaves its pins to the second. */
static int both_registered(struct subject *it)
{
	return both_open(it) ?: register_second(it);
}

static int second_has_all(struct subject *it)
{
	return unregister_second(it) ?: close_it(it);
}

static int all_is_left(struct subject *it)
{
	return unregister_first(it) ?: second_has_all(it);
}

TEST_F(fail_nth, unregister_first)
{
	sweep(_metadata, &self->it, &(struct sweep){
		.prepare = both_registered,
		.call = unregister_first,
		.undo = second_has_all,
		.clear = all_is_left,
	});
}

int main(int argc, char **argv)
{
	if (argc == 1 && access(uldma_other(), F_OK)) {
		ksft_print_header();
		ksft_exit_skip("no device node %s\n", uldma_other());
	}
	return fail_nth_main(argc, argv);
}
