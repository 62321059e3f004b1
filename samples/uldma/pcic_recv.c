// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Receives the data of a pcic_send to standard output: pcic_recv CID, with
 * ULDMA_DEVICE set if the device is not /dev/uldma0.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "pcic.h"

#define LENGTH 0x100000

static char buffers[2][LENGTH];

static void give(int fd, int i)
{
	/* The peer may have disconnected; what it sent before can still be received. */
	if (pcic_prepost_recv(fd, buffers[i % 2], LENGTH) < 0 && errno != EPIPE)
		err(1, "prepost");
}

int main(int argc, char **argv)
{
	const char *path = getenv("ULDMA_DEVICE") ?: "/dev/uldma0";
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct pollfd connected = { .fd = fd, .events = POLLOUT };
	int length, n, i = 0, taken = 0;
	char *data;

	if (argc != 2)
		errx(2, "usage: pcic_recv CID");
	if (fd < 0)
		err(1, "%s", path);
	if (pcic_listen(fd, NULL, atoi(argv[1])))
		err(1, "listen");
	fprintf(stderr, "listening\n");
	if (poll(&connected, 1, -1) < 0)
		err(1, "poll");
	give(fd, 0);
	give(fd, 1);
	while ((length = pcic_recv(fd, (void **)&data, LENGTH)) > 0) {
		for (taken += length; length > 0; data += n, length -= n) {
			n = write(STDOUT_FILENO, data, length);
			if (n < 0)
				err(1, "standard output");
		}
		/* Memory comes back in the order of posting. */
		if (taken >= LENGTH) {
			taken -= LENGTH;
			give(fd, i++);
		}
	}
	if (length < 0)
		err(1, "receive");
	if (pcic_disconnect(fd))
		err(1, "disconnect");
	return 0;
}
