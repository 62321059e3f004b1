// SPDX-License-Identifier: GPL-2.0
/*
 * A process that waits in every call that has a time-out, and is stopped and
 * continued meanwhile: no call gets its time anew.
 *
 *	uldma_stalled_wait PEER PORT	# prints "ready"
 *
 * PEER is as in DOC: peers, and has a listener at PORT. The calls begin with
 * the first line of standard input: the peer has to stand still by then, and
 * the device to be stalled. The process ends with the second one.
 *
 * Exits with 1 if a call does not end in time, or otherwise than by that, and
 * with 2 if the link went down first.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "uldma_conn_match.h"
#include "uldma_msg.h"
#include "uldma_stops.h"

#define TOO_LATE 2
/* A call's, in nanoseconds. */
#define TIMEOUT 1000000000ULL
/* Milliseconds from one stop to the next, of which some are in each call. */
#define PACE 200
/* Stops until the calls have to have ended. */
#define MOST 50
#define NAME 0x77616974
#define BYTES 4096

/**
 * struct files - what the calls are about
 * @peer: the peer that does not answer
 * @fd: a file with a context and an endpoint
 * @context: its context
 * @endpoint: its endpoint, connected to what the peer does not have
 * @out: slots that send
 * @in: slots that receive
 * @stream: a file whose connection has a peer that names no endpoint
 * @matched: its endpoint
 * @free: a file without a connection
 */
struct files {
	__u32 peer;
	int fd;
	struct context context;
	struct endpoint endpoint;
	struct slots out;
	struct slots in;
	int stream;
	struct matched matched;
	int free;
};

static int wait_transfer(struct files *f)
{
	struct uldma_dma_wait result;

	return dma_wait(f->fd, ULDMA_WAIT_CONTEXT, ULDMA_STATUS_RECORDS,
			TIMEOUT, &result);
}

static int wait_import(struct files *f)
{
	struct uldma_region_import arg = {
		.size = sizeof(arg),
		.flags = ULDMA_ACCESS_READ,
		.name = NAME,
		.timeout_ns = TIMEOUT,
		.peer = f->peer,
	};

	return uldma_ioctl(f->fd, ULDMA_IOC_REGION_IMPORT, &arg);
}

static int wait_attach(struct files *f)
{
	struct uldma_segment_attach arg = {
		.size = sizeof(arg),
		.name = NAME,
		.timeout_ns = TIMEOUT,
		.peer = f->peer,
	};

	return uldma_ioctl(f->fd, ULDMA_IOC_SEGMENT_ATTACH, &arg);
}

static int wait_connect(struct files *f)
{
	struct uldma_conn_connect arg = {
		.size = sizeof(arg),
		.peer = f->peer,
		.port = NAME,
		.timeout_ns = TIMEOUT,
	};

	return uldma_ioctl(f->free, ULDMA_IOC_CONN_CONNECT, &arg);
}

static int wait_stream(struct files *f)
{
	return matched_wait(f->stream, &f->matched, 0, TIMEOUT);
}

static int wait_endpoint(struct files *f)
{
	return endpoint_wait(f->fd, &f->endpoint, 1, TIMEOUT);
}

static int wait_send(struct files *f)
{
	char byte = 0;
	int ret = msg_send_as(f->fd, &f->out, &byte, 1, 1, TIMEOUT);

	/* The only slot is posted. */
	return ret ?: msg_send_as(f->fd, &f->out, &byte, 1, 2, TIMEOUT);
}

static int wait_receive(struct files *f)
{
	struct uldma_msg_recv got;
	char byte;

	return msg_recv(f->fd, &f->in, &byte, 1, TIMEOUT, &got);
}

static const struct {
	const char *name;
	int (*fn)(struct files *f);
} calls[] = {
	{ "DMA_WAIT", wait_transfer },
	{ "REGION_IMPORT", wait_import },
	{ "SEGMENT_ATTACH", wait_attach },
	{ "CONN_CONNECT", wait_connect },
	{ "CONN_STREAM", wait_stream },
	{ "ENDPOINT_WAIT", wait_endpoint },
	{ "MSG_SEND", wait_send },
	{ "MSG_RECV", wait_receive },
};

#define CALLS ARRAY_SIZE(calls)

/**
 * struct waiting - a thread in a call
 * @files: what the call is about
 * @call: which it is
 * @ret: what it returned
 */
struct waiting {
	struct files *files;
	int call;
	int ret;
};

static int make_files(struct files *f, __u32 port)
{
	f->fd = uldma_open(0);
	f->stream = uldma_open(0);
	f->free = uldma_open(0);
	if (f->fd < 0 || f->stream < 0 || f->free < 0)
		return -ENODEV;
	return context_create_as(f->fd, ULDMA_METHOD_QUEUE, 0, &f->context) ?:
	       endpoint_create(f->fd, NO_LIMIT, BYTES, &f->endpoint) ?:
	       endpoint_connect(f->fd, &f->endpoint, f->peer - 1, 1, 1) ?:
	       slots_create(f->fd, 0, f->endpoint.handle, 1, BYTES, &f->out) ?:
	       slots_create(f->fd, ULDMA_MSG_RECEIVE, f->endpoint.handle, 1,
			    BYTES, &f->in) ?:
	       conn_connect(f->stream, f->peer, port) ?:
	       endpoint_create_as(f->stream, ULDMA_ENDPOINT_STREAM, NO_LIMIT,
				  BYTES, &f->matched.endpoint);
}

static void *make_call(void *arg)
{
	struct waiting *w = arg;

	w->ret = calls[w->call].fn(w->files);
	return NULL;
}

/* Says which calls did not end by their time-out: 0, 1 or TOO_LATE. */
static int make_calls(struct files *f)
{
	struct waiting waiting[CALLS];
	pthread_t thread[CALLS];
	int status = 0;

	for (int i = 0; i < CALLS; i++) {
		waiting[i] = (struct waiting){ .files = f, .call = i };
		if (pthread_create(&thread[i], NULL, make_call, &waiting[i]))
			return 1;
	}
	for (int i = 0; i < CALLS; i++) {
		pthread_join(thread[i], NULL);
		if (waiting[i].ret == -ETIMEDOUT)
			continue;
		printf("%s: %s\n", calls[i].name, strerror(-waiting[i].ret));
		if (status != 1)
			status = waiting[i].ret == -ENOTCONN ? TOO_LATE : 1;
	}
	fflush(stdout);
	return status;
}

/* Reports by @fd that the calls begin, and how they have ended. */
static void wait_in_calls(__u32 peer, __u32 port, int fd)
{
	struct files f = { .peer = peer };
	int ret = make_files(&f, port);
	char line, status;

	if (ret) {
		fprintf(stderr, "%s\n", strerror(-ret));
		_exit(1);
	}
	printf("ready\n");
	fflush(stdout);
	if (read(STDIN_FILENO, &line, 1) != 1 || write(fd, "", 1) != 1)
		_exit(1);
	status = make_calls(&f);
	if (write(fd, &status, 1) != 1 || read(STDIN_FILENO, &line, 1) != 1)
		_exit(1);
	_exit(status);
}

int main(int argc, char **argv)
{
	int fds[2], status;
	pid_t child;
	char byte;

	if (argc != 3 || pipe(fds)) {
		fprintf(stderr, "usage: %s PEER PORT\n", argv[0]);
		return 1;
	}
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		wait_in_calls(atoi(argv[1]), atoi(argv[2]), fds[1]);
	}
	close(fds[1]);
	if (child < 0 || read(fds[0], &byte, 1) != 1)
		return 1;
	for (int stops = 0; !poll_for(fds[0], PACE); stops++) {
		if (stops == MOST || stop_and_continue(child)) {
			printf("not ended after %d stops\n", stops);
			return 1;
		}
	}
	printf("ended\n");
	fflush(stdout);
	if (waitpid(child, &status, 0) != child || !WIFEXITED(status))
		return 1;
	return WEXITSTATUS(status);
}
