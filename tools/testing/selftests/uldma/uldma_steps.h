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

/*
 * Opens the FIFO, also for writing: the end of one writer is no end of the file
 * then, and the next one always finds a reader.
 */
static inline int steps_open(const char *path)
{
	int fifo = open(path, O_RDWR | O_CLOEXEC);

	return fifo < 0 ? -errno : fifo;
}

/* Says what was done, and waits until the runner writes to the FIFO. */
static inline int go_on(int fifo, const char *done)
{
	char c;

	printf("%s\n", done);
	fflush(stdout);
	return read(fifo, &c, 1) == 1 ? 0 : -EPIPE;
}

#endif /* __SELFTEST_ULDMA_STEPS_H */
