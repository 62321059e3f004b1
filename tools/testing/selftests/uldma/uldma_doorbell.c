// SPDX-License-Identifier: GPL-2.0
/*
 * Segments on pages of all classes, each of which has a doorbell bit:
 *
 *	uldma_doorbell serve	# prints "ready", and "woken N" once for each
 *				# segment that is stored to and rung
 *	uldma_doorbell ring N	# on the other node: stores to segment N, rings
 *	uldma_doorbell storm	# there: rings all without end; prints "ringing"
 */
#include <poll.h>
#include <stdio.h>

#include "uldma_utils.h"

#define NAME 0x6c6c6562ULL
/* Pages of different classes, of which two share a bit. */
#define SEGMENTS 31

static int serve(int fd)
{
	struct segment s[SEGMENTS];
	bool woken[SEGMENTS] = { };
	struct uldma_event event;
	int ret;

	for (int i = 0; i < SEGMENTS; i++) {
		ret = segment_create(fd, NAME + i, 1, &s[i]) ?:
		      segment_map(fd, &s[i]);
		if (ret)
			return ret;
	}
	printf("ready\n");
	for (;;) {
		ret = event_wait(fd, ULDMA_EVENT_DOORBELL, -1, &event);
		if (ret)
			return ret;
		for (int i = 0; i < SEGMENTS; i++) {
			if (s[i].handle != event.handle || woken[i] ||
			    !READ_ONCE(s[i].map[0]))
				continue;
			woken[i] = true;
			printf("woken %d\n", i);
		}
	}
}

static int ring(int fd, unsigned long number)
{
	struct segment s;
	int ret = segment_attach(fd, NAME + number, &s) ?: segment_map(fd, &s);

	if (ret)
		return ret;
	WRITE_ONCE(s.map[0], 1);
	return doorbell(fd, s.handle);
}

static int storm(int fd)
{
	struct segment s[SEGMENTS];
	int ret = 0;

	for (int i = 0; !ret && i < SEGMENTS; i++)
		ret = segment_attach(fd, NAME + i, &s[i]);
	if (!ret)
		printf("ringing\n");
	while (!ret)
		for (int i = 0; !ret && i < SEGMENTS; i++)
			ret = doorbell(fd, s[i].handle);
	return ret;
}

int main(int argc, char **argv)
{
	const char *role = argc > 1 ? argv[1] : "";
	int fd = uldma_open(0);
	int ret = fd;

	setlinebuf(stdout);
	if (fd >= 0 && !strcmp(role, "serve"))
		ret = serve(fd);
	else if (fd >= 0 && !strcmp(role, "ring") && argc == 3)
		ret = ring(fd, strtoul(argv[2], NULL, 0));
	else if (fd >= 0 && !strcmp(role, "storm"))
		ret = storm(fd);
	else if (fd >= 0)
		ret = -EINVAL;
	if (ret)
		fprintf(stderr, "%s: %s\n", role, strerror(-ret));
	return !!ret;
}
