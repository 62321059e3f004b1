// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Sends standard input to a pcic_recv: pcic_send [DEV] CID, see pcic.h, with
 * ULDMA_DEVICE set if the device is not /dev/uldma0.
 */
#include <err.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "pcic.h"

static char buffer[0x100000];

int main(int argc, char **argv)
{
	const char *path = getenv("ULDMA_DEVICE") ?: "/dev/uldma0";
	int fd = open(path, O_RDWR | O_CLOEXEC);
	int length, back, n;
	void *data;

	if (argc < 2)
		errx(2, "usage: pcic_send [DEV] CID");
	if (fd < 0)
		err(1, "%s", path);
	if (pcic_connect(fd, argc > 2 ? argv[1] : NULL, atoi(argv[argc - 1])))
		err(1, "connect");
	while ((length = read(STDIN_FILENO, buffer, sizeof(buffer))) > 0) {
		if (pcic_send(fd, buffer, length) < 0)
			err(1, "send");
		/* Recycled memory is in the peer's memory. */
		for (back = 0; back < length; back += n) {
			n = pcic_send_recycle(fd, &data, length - back);
			if (n <= 0)
				err(1, "recycle");
		}
	}
	if (length < 0)
		err(1, "standard input");
	if (pcic_disconnect(fd))
		err(1, "disconnect");
	return 0;
}
