/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory whose faults its process handles itself.
 */
#ifndef __SELFTEST_ULDMA_USERFAULT_H
#define __SELFTEST_ULDMA_USERFAULT_H

#include <sys/syscall.h>

#include <linux/userfaultfd.h>

#include "uldma_owner.h"

static int userfault_fd = -1;

static inline const char *userfault_begin(struct owner *o, __u64 mode)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register arg = {
		.range = { (uintptr_t)o->at, 2 * o->half * o->page },
		.mode = mode,
	};

	/* Its pages are there before: a thread that meets a fault would wait. */
	touch_pages(o, 0, 2 * o->half);
	userfault_fd = syscall(__NR_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (userfault_fd < 0 || ioctl(userfault_fd, UFFDIO_API, &api) ||
	    ioctl(userfault_fd, UFFDIO_REGISTER, &arg)) {
		no_memory("userfaultfd: %s", strerror(errno));
		return why_not;
	}
	return NULL;
}

static inline const char *userfault_begin_missing(struct owner *o)
{
	return userfault_begin(o, UFFDIO_REGISTER_MODE_MISSING);
}

static inline const char *userfault_begin_protect(struct owner *o)
{
	return userfault_begin(o, UFFDIO_REGISTER_MODE_WP);
}

static inline void userfault_end(struct owner *o)
{
	close(userfault_fd);
}

static inline int userfault_copy(void *to, const void *from, size_t length)
{
	struct uffdio_copy arg = {
		.dst = (uintptr_t)to,
		.src = (uintptr_t)from,
		.len = length,
	};
	int ret;

	/* It is to be tried again after a change of the mappings. */
	do
		ret = ioctl(userfault_fd, UFFDIO_COPY, &arg) ? -errno : 0;
	while (ret == -EAGAIN);
	return ret;
}

/* No fault waits for this process: the device makes none. */
static inline int userfault_none(void)
{
	struct uffd_msg msg;

	if (read(userfault_fd, &msg, sizeof(msg)) >= 0)
		return -EFAULT;
	return errno == EAGAIN ? 0 : -errno;
}

static inline int userfault_set(struct owner *o, size_t first, size_t count,
				__u64 mode)
{
	struct uffdio_writeprotect arg = {
		.range = { (uintptr_t)page_at(o, first), count * o->page },
		.mode = mode,
	};

	return ioctl(userfault_fd, UFFDIO_WRITEPROTECT, &arg) ? -errno : 0;
}

static inline int userfault_protect(struct owner *o, size_t first,
				    size_t count)
{
	return userfault_set(o, first, count, UFFDIO_WRITEPROTECT_MODE_WP);
}

static inline int userfault_unprotect(struct owner *o, size_t first,
				      size_t count)
{
	return userfault_set(o, first, count, 0);
}

#endif /* __SELFTEST_ULDMA_USERFAULT_H */
