/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What has to be set up before the kernel, or another process, does something with
 * the memory of an owner. Each *_begin() returns why that cannot be, or NULL.
 */
#ifndef __SELFTEST_ULDMA_ADVERSARY_H
#define __SELFTEST_ULDMA_ADVERSARY_H

#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "uldma_owner.h"

#ifndef MADV_SOFT_OFFLINE
#define MADV_SOFT_OFFLINE 101
#endif
#ifndef MPOL_MF_MOVE
#define MPOL_MF_MOVE 2
#endif

static inline const char *swap_begin(void)
{
	return number_in("/proc/meminfo", "SwapFree") > 0 ? NULL :
							     "no swap space";
}

/* The process that pages others' memory out. */
static struct partner outside;

static inline long outside_serve(long address, long length, void *data)
{
	struct iovec range = { (void *)address, length };
	static int owner = -1;

	if (owner < 0)
		owner = syscall(__NR_pidfd_open, getppid(), 0);
	if (owner < 0 || syscall(__NR_process_madvise, owner, &range, 1,
				 MADV_PAGEOUT, 0) < 0)
		return -errno;
	return 0;
}

static inline const char *outside_begin(struct owner *o)
{
	long ret;

	if (swap_begin())
		return swap_begin();
	if (partner_start(&outside, outside_serve, NULL))
		return "no other process";
	ret = partner_call(&outside, (long)o->at, o->page);
	if (!ret)
		return NULL;
	partner_end(&outside);
	no_memory("process_madvise: %s", strerror(-ret));
	return why_not;
}

static inline int page_out_from_outside(void *at, size_t length)
{
	return partner_call(&outside, (long)at, length);
}

static inline void outside_end(struct owner *o)
{
	partner_end(&outside);
}

#define SMALL_GROUP "/tmp/uldma-stamps"

static inline void group_end(void)
{
	put(SMALL_GROUP "/cgroup.procs", "0");
	rmdir(SMALL_GROUP "/uldma");
	umount(SMALL_GROUP);
	rmdir(SMALL_GROUP);
}

/* Makes this process part of a group that has @limit bytes of memory. */
static inline const char *group_join(size_t limit)
{
	char text[24];

	if (swap_begin())
		return swap_begin();
	mkdir(SMALL_GROUP, 0700);
	if (mount("none", SMALL_GROUP, "cgroup2", 0, NULL))
		return "no cgroup2";
	put(SMALL_GROUP "/cgroup.subtree_control", "+memory");
	mkdir(SMALL_GROUP "/uldma", 0700);
	snprintf(text, sizeof(text), "%zu", limit);
	if (put(SMALL_GROUP "/uldma/memory.max", text) ||
	    put(SMALL_GROUP "/uldma/cgroup.procs", "0")) {
		group_end();
		return "no limits of memory";
	}
	return NULL;
}

/* Of one that has memory for half of the pages. */
static inline const char *group_begin(struct owner *o)
{
	return group_join(o->half * o->page);
}

static inline void group_leave(struct owner *o)
{
	group_end();
}

/* How many pages have another frame than before. */
static inline size_t frames_changed(struct owner *o, __u64 *before, __u64 *now)
{
	size_t count = 0;

	frames_of(o->at, 2 * o->half, now);
	for (size_t p = 0; p < 2 * o->half; p++)
		count += before[p] && now[p] && before[p] != now[p];
	return count;
}

static inline const char *nodes_begin(struct owner *o)
{
	return access("/sys/devices/system/node/node1", F_OK) ?
	       "the machine has one node of memory" : NULL;
}

#define BALANCING "/proc/sys/kernel/numa_balancing"
#define BALANCING_SCAN "/sys/kernel/debug/sched/numa_balancing/scan_"

/* What the kernel balances by, and what it had before. */
static struct balancing {
	const char *file;
	const char *value;
	char was[16];
} balancing[] = {
	{ BALANCING, "1" },
	/* Once in a tenth of a second; it would take a minute for pages that stay. */
	{ BALANCING_SCAN "period_min_ms", "100" },
	{ BALANCING_SCAN "period_max_ms", "100" },
};

static inline void balance_end(struct owner *o)
{
	for (int i = 0; i < ARRAY_SIZE(balancing); i++)
		put(balancing[i].file, balancing[i].was);
}

/* Has the kernel move pages to the node that uses them; each has one processor. */
static inline const char *balance_begin(struct owner *o)
{
	if (nodes_begin(o))
		return nodes_begin(o);
	for (int i = 0; i < ARRAY_SIZE(balancing); i++) {
		struct balancing *b = &balancing[i];
		int fd = open(b->file, O_RDONLY);
		ssize_t length = fd < 0 ? -1 :
				 read(fd, b->was, sizeof(b->was) - 1);

		close(fd);
		if (length < 0)
			return "memory is not balanced";
	}
	for (int i = 0; i < ARRAY_SIZE(balancing); i++) {
		if (put(balancing[i].file, balancing[i].value)) {
			balance_end(o);
			return "memory is not balanced so often";
		}
	}
	return NULL;
}

static inline const char *offline_begin(struct owner *o)
{
	if (!madvise(o->at, o->page, MADV_SOFT_OFFLINE) || errno != EINVAL)
		return NULL;
	return "no MADV_SOFT_OFFLINE";
}

#define KSM "/sys/kernel/mm/ksm/"

static inline const char *merge_begin(struct owner *o)
{
	if (madvise(o->at, 2 * o->half * o->page, MADV_MERGEABLE))
		return "no KSM";
	put(KSM "sleep_millisecs", "0");
	put(KSM "pages_to_scan", "1000");
	put(KSM "smart_scan", "0");
	return put(KSM "run", "1") ? "KSM does not run" : NULL;
}

static inline void merge_end(struct owner *o)
{
	/* Ends what was merged, too. */
	put(KSM "run", "2");
	put(KSM "run", "0");
	put(KSM "smart_scan", "1");
	put(KSM "pages_to_scan", "100");
	put(KSM "sleep_millisecs", "20");
}

static inline void *merge_memory(size_t length)
{
	char *p = map_small(NULL, length);

	return p && !madvise(p, length, MADV_MERGEABLE) ? p : NULL;
}

/*
 * Waits until pages are one with the others that are like them, and counts these; of
 * memory that is in two pieces.
 */
static inline int merge_wait(char *twin, size_t length, char *first,
			     char *second, unsigned long *events)
{
	__u64 limit = now_ns() + PATIENCE;
	size_t page = page_size(), half = length / 2, left;

	do {
		left = 0;
		for (size_t i = 0; i < length; i += page) {
			char *other = i < half ? first + i : second + i - half;

			left += !frame(twin + i) ||
				frame(twin + i) != frame(other);
		}
		if (!left) {
			*events += length / page;
			return 0;
		}
		usleep(1000);
	} while (now_ns() < limit);
	return -ETIMEDOUT;
}

#endif /* __SELFTEST_ULDMA_ADVERSARY_H */
