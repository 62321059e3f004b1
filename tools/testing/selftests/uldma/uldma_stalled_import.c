// SPDX-License-Identifier: GPL-2.0
/*
 * A process that has nothing but imports, which waits to be killed:
 *
 *	uldma_stalled_import NAME PEER COUNT	# prints "imported"
 *
 * PEER is as in DOC: peers. The device may stop afterwards.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "uldma_utils.h"

static int import_one(int fd, __u64 name, __u32 peer)
{
	struct uldma_region_import arg = {
		.size = sizeof(arg),
		.flags = ULDMA_ACCESS_READ,
		.name = name,
		.timeout_ns = PATIENCE,
		.peer = peer,
	};

	return uldma_ioctl(fd, ULDMA_IOC_REGION_IMPORT, &arg);
}

int main(int argc, char **argv)
{
	int fd, ret;

	if (argc != 4) {
		fprintf(stderr, "usage: %s NAME PEER COUNT\n", argv[0]);
		return 2;
	}
	fd = uldma_open(0);
	ret = fd < 0 ? fd : 0;
	for (int i = 0; i < atoi(argv[3]) && !ret; i++)
		ret = import_one(fd, strtoull(argv[1], NULL, 0), atoi(argv[2]));
	if (ret) {
		fprintf(stderr, "%s\n", strerror(-ret));
		return 1;
	}
	printf("imported\n");
	fflush(stdout);
	for (;;)
		pause();
}
