/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A program whose steps the runner lets it take, one at a time.
 */
#ifndef __SELFTEST_ULDMA_STEPS_H
#define __SELFTEST_ULDMA_STEPS_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* Says what was done, and waits until the runner writes to the FIFO. */
static inline int go_on(const char *fifo, const char *done)
{
	int fd, ret;
	char c;

	printf("%s\n", done);
	fflush(stdout);
	fd = open(fifo, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ret = read(fd, &c, 1) == 1 ? 0 : -EPIPE;
	close(fd);
	return ret;
}

#endif /* __SELFTEST_ULDMA_STEPS_H */
