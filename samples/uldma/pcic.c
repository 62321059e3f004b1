// SPDX-License-Identifier: MIT OR Apache-2.0
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <linux/uldma.h>

#include "pcic.h"

#define CONNECT_TIMEOUT_NS 30000000000ULL

/* Parses a decimal number that is followed by end only; -1 on error. */
static long number(const char *text, char end, const char **rest)
{
	char *stop;
	long value;

	if (*text < '0' || *text > '9')
		return -1;
	errno = 0;
	value = strtol(text, &stop, 10);
	if (errno || value > INT_MAX || (*stop && *stop != end))
		return -1;
	*rest = *stop ? stop + 1 : stop;
	return value;
}

/* Returns true if the file is /dev/uldmaN. */
static int is_device(int fd, long n)
{
	struct stat file, node;
	char path[32];

	snprintf(path, sizeof(path), "/dev/uldma%ld", n);
	return !fstat(fd, &file) && !stat(path, &node) && S_ISCHR(node.st_mode) &&
	       S_ISCHR(file.st_mode) && file.st_rdev == node.st_rdev;
}

/* Finds the peer that dev names, as in DOC: peers. */
static int parse(int fd, const char *dev, int cid, __u32 *peer)
{
	long value;

	*peer = 0;
	if (!dev)
		dev = "";
	if (!strncmp(dev, "uldma", 5)) {
		value = number(dev + 5, ':', &dev);
		if (value < 0 || !is_device(fd, value))
			goto invalid;
	}
	if (*dev) {
		value = number(dev, '\0', &dev);
		if (value < 0 || value >= ULDMA_MAX_NODES)
			goto invalid;
		*peer = value + 1;
	}
	if (cid > 0)
		return 0;
invalid:
	errno = EINVAL;
	return -1;
}

int pcic_listen(int fd, char *dev, int cid)
{
	struct uldma_conn_listen listen = {
		.size = sizeof(listen),
		.flags = ULDMA_LISTEN_ONCE,
		.port = cid,
	};
	__u32 peer;

	if (parse(fd, dev, cid, &peer))
		return -1;
	return ioctl(fd, ULDMA_IOC_CONN_LISTEN, &listen);
}

int pcic_connect(int fd, char *dev, int cid)
{
	struct uldma_conn_connect connect = {
		.size = sizeof(connect),
		.port = cid,
		.timeout_ns = CONNECT_TIMEOUT_NS,
	};

	if (parse(fd, dev, cid, &connect.peer))
		return -1;
	return ioctl(fd, ULDMA_IOC_CONN_CONNECT, &connect);
}

int pcic_disconnect(int fd)
{
	struct uldma_handle handle = { .size = sizeof(handle) };

	return ioctl(fd, ULDMA_IOC_CONN_DISCONNECT, &handle);
}

static int give(int fd, unsigned long command, void *data, int len)
{
	struct uldma_conn_buffer buffer = {
		.size = sizeof(buffer),
		.addr = (uintptr_t)data,
		.length = len,
	};

	if (len <= 0) {
		errno = EINVAL;
		return -1;
	}
	return ioctl(fd, command, &buffer) ? -1 : len;
}

static int get_back(int fd, unsigned long command, void **data, int len)
{
	struct uldma_conn_range range = {
		.size = sizeof(range),
		.length = len,
	};

	if (len <= 0) {
		errno = EINVAL;
		return -1;
	}
	if (ioctl(fd, command, &range))
		return -1;
	*data = (void *)(uintptr_t)range.out_addr;
	return range.out_length;
}

int pcic_prepost_recv(int fd, void *data, int len)
{
	return give(fd, ULDMA_IOC_CONN_PREPOST, data, len);
}

int pcic_recv(int fd, void **data, int len)
{
	return get_back(fd, ULDMA_IOC_CONN_RECV, data, len);
}

int pcic_send(int fd, void *data, int len)
{
	return give(fd, ULDMA_IOC_CONN_SEND, data, len);
}

int pcic_send_recycle(int fd, void **data, int len)
{
	return get_back(fd, ULDMA_IOC_CONN_RECYCLE, data, len);
}
