/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A fork() that takes long: it copies the page tables of a sparse mapping, for
 * which a control group lets it wait after every 128. All the time its address
 * space is locked for writing. If memory of that mapping is registered, a change of
 * it goes on, too, and the kernel removes no notifier of the address space.
 */
#ifndef __SELFTEST_ULDMA_SLOW_H
#define __SELFTEST_ULDMA_SLOW_H

#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "uldma_kinds.h"

#define GROUP "/tmp/uldma-slow-fork"
#define STRIDE (2UL << 20)

/* Looking for the state of a thread, in steps that leave it the processor. */
#define ROUNDS 6000
#define ROUND_US 10000

/* Makes the control group. Returns -EOPNOTSUPP if the kernel has none that limits memory. */
static inline int group_make(void)
{
	mkdir(GROUP, 0700);
	if (mount("none", GROUP, "cgroup2", 0, NULL))
		return -EOPNOTSUPP;
	put(GROUP "/cgroup.subtree_control", "+memory");
	mkdir(GROUP "/uldma", 0700);
	if (put(GROUP "/uldma/memory.high", "max"))
		return -EOPNOTSUPP;
	put(GROUP "/uldma/memory.swap.max", "0");
	return 0;
}

/* Adds this process to the control group. */
static inline int group_join(void)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", getpid());
	return put(GROUP "/uldma/cgroup.procs", pid);
}

/* From now on the processes wait for their memory, or no more. */
static inline int group_wait(bool wait)
{
	return put(GROUP "/uldma/memory.high", wait ? "4096" : "max");
}

/* Removes the control group, whose processes have ended. */
static inline void group_end(void)
{
	for (int i = 0; i < ROUNDS && rmdir(GROUP "/uldma") && errno == EBUSY;
	     i++)
		usleep(ROUND_US);
	umount(GROUP);
	rmdir(GROUP);
}

/* Makes a mapping that has so many page tables, and a first page that is written to. */
static inline char *make_sparse(unsigned long tables)
{
	char *p = mmap(NULL, tables * STRIDE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED || madvise(p, tables * STRIDE, MADV_NOHUGEPAGE))
		return NULL;
	/* Otherwise fork() leaves the tables to page faults. */
	WRITE_ONCE(*p, 1);
	for (unsigned long i = 1; i < tables; i++)
		(void)READ_ONCE(p[i * STRIDE]);
	return p;
}

/* Whether a thread sleeps in a function of the kernel whose name has this in it, or below it. */
static inline bool sleeps_in(pid_t pid, pid_t thread, const char *name)
{
	char path[64], stack[4096] = "";
	ssize_t len;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stack", pid, thread);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		return false;
	len = read(fd, stack, sizeof(stack) - 1);
	close(fd);
	return len > 0 && strstr(stack, name);
}

#endif /* __SELFTEST_ULDMA_SLOW_H */
