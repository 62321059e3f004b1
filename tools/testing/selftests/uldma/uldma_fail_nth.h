/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Makes every allocation and every copy from or to user space of a call fail
 * once, by /proc/self/fail-nth. The call then returns ENOMEM or EFAULT, or does
 * without and succeeds; either way it leaves nothing behind. The log of the
 * debug kernel reports any other defect.
 *
 * A program includes this once: it has the fixture and the main function.
 */
#ifndef __SELFTEST_ULDMA_FAIL_NTH_H
#define __SELFTEST_ULDMA_FAIL_NTH_H

#include "uldma_harness.h"
#include "uldma_kinds.h"

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
static inline int allow(void)
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

static inline void read_state(struct state *s)
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

static inline bool same(const struct state *a, const struct state *b)
{
	return a->vm_pin == b->vm_pin && a->machine_pins == b->machine_pins &&
	       !strcmp(a->usage, b->usage);
}

static inline bool settles(const struct state *before, struct state *after)
{
	for (int i = 0; i < SETTLE; i++) {
		read_state(after);
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

static inline int step(int (*fn)(struct subject *it), struct subject *it)
{
	return fn ? fn(it) : 0;
}

/*
 * Makes the nth site fail during the call. Says whether there was an nth one:
 * reading the count and clearing it are sites themselves.
 */
static inline int call_failing(struct subject *it, const struct sweep *s,
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

static inline bool is_clean(int ret)
{
	return !ret || ret == -ENOMEM || ret == -EFAULT;
}

static inline void sweep(struct __test_metadata *_metadata, struct subject *it,
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
	read_state(&before);
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

static inline int open_it(struct subject *it)
{
	it->other = uldma_open(0);
	return it->other < 0 ? it->other : 0;
}

static inline int close_it(struct subject *it)
{
	return close(it->other) ? -errno : 0;
}

static inline int register_one(struct subject *it)
{
	return region_register(it->fd, it->buf + 8, 100, RW, &it->r);
}

static inline int unregister(struct subject *it)
{
	return region_unregister(it->fd, it->r.handle);
}

static inline int fail_nth_main(int argc, char **argv)
{
	if (argc == 1 && access(DEBUG "fail_usercopy", F_OK)) {
		ksft_print_header();
		ksft_set_plan(1);
		ksft_test_result_skip("the kernel has no fault injection\n");
		ksft_finished();
	}
	return uldma_main(argc, argv);
}

#endif /* __SELFTEST_ULDMA_FAIL_NTH_H */
