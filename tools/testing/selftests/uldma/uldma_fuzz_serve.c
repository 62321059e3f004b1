// SPDX-License-Identifier: GPL-2.0
/*
 * The objects of the other node that the fuzzer uses: regions, segments and
 * listeners under the names and ports of the model, until it is killed.
 */
#include <signal.h>
#include <sys/prctl.h>

#include "uldma_conn.h"
#include "uldma_fuzz_model.h"

/* A connection sends a little and has room for a little. */
#define ROOM 4096
#define SENT 64

static bool offer(int fd, char *memory, __u64 name)
{
	const struct object *region = remote_object(REGION, name);
	const struct object *created = remote_object(CREATED, name);
	struct segment segment;
	struct region r;

	return !region_register(fd, memory, region->length, RW, &r) &&
	       !region_export(fd, r.handle, region->exported, name) &&
	       !segment_create(fd, name, created->length, &segment);
}

/* Names an endpoint, unless the peer has given memory. */
static bool match(int fd)
{
	struct uldma_conn_stream stream = { .size = sizeof(stream), .timeout_ns = ~0ULL };
	struct uldma_endpoint_create endpoint = {
		.size = sizeof(endpoint),
		.flags = ULDMA_ENDPOINT_STREAM,
		.max_message = ROOM,
	};

	if (uldma_ioctl(fd, ULDMA_IOC_ENDPOINT_CREATE, &endpoint))
		_exit(1);
	stream.handle = endpoint.out_handle;
	if (uldma_ioctl(fd, ULDMA_IOC_CONN_STREAM, &stream))
		return false;
	return !(stream.out_flags & ULDMA_STREAM_REFUSED);
}

/* Serves one connection, until the peer ends it. */
static void talk(__u32 port, char *memory)
{
	int fd = uldma_open(0);

	if (fd < 0 || conn_accept(fd, port))
		_exit(1);
	if ((port != STREAM_PORT || !match(fd)) && !conn_prepost(fd, memory, ROOM))
		conn_send(fd, memory + ROOM, SENT);
	conn_poll(fd, POLLRDHUP, -1);
	close(fd);
}

/* Accepts one after the other at a port, each by a process that stays with it. */
static void listen_at(__u32 port)
{
	int fd = uldma_open(0);
	char *memory = buffer(2 * ROOM);

	if (fd < 0 || !memory || conn_listen(fd, port, ULDMA_CONN_MAX_BACKLOG))
		_exit(1);
	for (;;)
		talk(port, memory);
}

int serve_peer(void)
{
	char *memory = buffer(NAMES * REMOTE_LENGTH);
	int fd = uldma_open(0);

	if (fd < 0 || !memory)
		return 1;
	for (int i = 1; i <= NAMES; i++)
		if (!offer(fd, memory, i))
			return 1;
	for (int i = 1; i <= PORTS; i++) {
		pid_t pid = fork();

		if (!pid) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			listen_at(i);
		}
		if (pid < 0)
			return 1;
	}
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		meet_all();
	}
	printf("ready\n");
	fflush(stdout);
	for (;;)
		pause();
}
