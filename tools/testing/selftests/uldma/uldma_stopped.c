// SPDX-License-Identifier: GPL-2.0
/*
 * Processes that are stopped and continued while they wait: no call ends by that,
 * and none gets its time anew. Signals that have a handler end each call, also
 * one that restarts what can be restarted.
 */
#include "uldma_harness.h"
#include "uldma_conn.h"
#include "uldma_exchange.h"
#include "uldma_method.h"
#include "uldma_msg.h"
#include "uldma_stops.h"

#define PORT 5100
/* Milliseconds between two stops of a process that waits for a limited time. */
#define PACE 200
/* Of these, three times as many as there are in the ten seconds of context_wait_ms. */
#define MOST 150
#define COUNT 1

/**
 * struct files - what the calls are about
 * @fd: an open file
 * @c: its context
 * @e: its endpoint, connected to what the other node does not have
 * @out: slots that send
 * @in: slots that receive
 * @timeout: of the call
 */
struct files {
	int fd;
	struct context c;
	struct endpoint e;
	struct slots out;
	struct slots in;
	__u64 timeout;
};

static int open_file(void *about)
{
	struct files *f = about;

	f->fd = uldma_open(0);
	return f->fd < 0 ? f->fd : 0;
}

static int open_endpoint(void *about)
{
	struct files *f = about;
	size_t page = page_size();

	return open_file(f) ?:
	       context_create_as(f->fd, ULDMA_METHOD_QUEUE, 0, &f->c) ?:
	       context_map(f->fd, &f->c) ?:
	       endpoint_create(f->fd, NO_LIMIT, page, &f->e) ?:
	       endpoint_connect(f->fd, &f->e, 1 - query(f->fd).out_node, 1,
				1) ?:
	       slots_create(f->fd, 0, f->e.handle, COUNT, page, &f->out) ?:
	       slots_create(f->fd, ULDMA_MSG_RECEIVE, f->e.handle, COUNT, page,
			    &f->in);
}

/* The open file has a context, and all are those of others. */
static int open_without_registers(void *about)
{
	__u64 limit = now_ns() + PATIENCE;
	struct files *f = about;
	int ret = open_endpoint(f);
	struct context c;
	int count, fd;

	if (ret)
		return ret;
	count = query(f->fd).out_contexts;
	/* They stay open until the process ends. */
	for (int i = 0; i < count; i++) {
		fd = uldma_open(0);
		if (fd < 0)
			return fd;
		/* Until the open file has had its context for long enough. */
		do {
			ret = context_create_as(fd, ULDMA_METHOD_KEY, 0, &c);
		} while (ret == -EBUSY && now_ns() < limit);
		if (ret)
			return ret;
	}
	return 0;
}

static int listen_there(void *about)
{
	struct files *f = about;

	return open_file(f) ?: conn_listen_once(f->fd, PORT);
}

static int read_event(void *about)
{
	struct files *f = about;
	struct uldma_event event;
	ssize_t got;

	/* News of the link, if any, come first. */
	do {
		got = read(f->fd, &event, sizeof(event));
	} while (got == sizeof(event));
	return got < 0 ? -errno : -EPROTO;
}

static int wait_transfer(void *about)
{
	struct uldma_dma_wait result;
	struct files *f = about;

	return dma_wait(f->fd, ULDMA_WAIT_CONTEXT, 1, f->timeout, &result);
}

static int wait_endpoint(void *about)
{
	struct files *f = about;

	return endpoint_wait(f->fd, &f->e, 1, f->timeout);
}

static int send_message(void *about)
{
	struct files *f = about;
	char byte = 0;

	return msg_send_as(f->fd, &f->out, &byte, 1, 1, f->timeout);
}

static int receive_message(void *about)
{
	struct uldma_msg_recv got;
	struct files *f = about;
	char byte;

	return msg_recv(f->fd, &f->in, &byte, 1, f->timeout, &got);
}

static int receive_connected(void *about)
{
	struct files *f = about;
	struct range range;

	return conn_recv(f->fd, 1, &range);
}

static int load_registers(void *about)
{
	struct files *f = about;

	return touch(f->c.page, LOAD);
}

FIXTURE(waits) {
	struct files f;
	struct caller c;
};

FIXTURE_VARIANT(waits) {
	struct call call;
};

FIXTURE_VARIANT_ADD(waits, read) {
	.call = { open_file, read_event },
};

FIXTURE_VARIANT_ADD(waits, accept) {
	.call = { listen_there, receive_connected },
};

FIXTURE_VARIANT_ADD(waits, transfer) {
	.call = { open_endpoint, wait_transfer },
};

FIXTURE_VARIANT_ADD(waits, endpoint) {
	.call = { open_endpoint, wait_endpoint },
};

FIXTURE_VARIANT_ADD(waits, receive) {
	.call = { open_endpoint, receive_message },
};

FIXTURE_VARIANT_ADD(waits, send_without_registers) {
	.call = { open_without_registers, send_message },
};

FIXTURE_SETUP(waits)
{
	if (geteuid() && variant->call.prepare == open_without_registers)
		SKIP(return, "needs root, to take all contexts");
	self->f.timeout = 6 * PATIENCE;
}

FIXTURE_TEARDOWN(waits)
{
}

TEST_F(waits, are_ended_by_handlers_only)
{
	ASSERT_EQ(0, caller_start(&self->c, &variant->call, &self->f));
	EXPECT_EQ(-EINTR, caller_interrupt(&self->c));
}

/* What waits for registers does so for a limited time, whatever stops it. */
FIXTURE(limited) {
	struct files f;
	struct caller c;
};

FIXTURE_VARIANT(limited) {
	struct call call;
	int result;
};

FIXTURE_VARIANT_ADD(limited, send) {
	.call = { open_without_registers, send_message },
	.result = -ETIMEDOUT,
};

FIXTURE_VARIANT_ADD(limited, access) {
	.call = { open_without_registers, load_registers },
	.result = SIGBUS,
};

FIXTURE_SETUP(limited)
{
	if (geteuid())
		SKIP(return, "needs root, to take all contexts");
	self->f.timeout = SECOND;
}

FIXTURE_TEARDOWN(limited)
{
}

TEST_F(limited, is_not_prolonged)
{
	int stops;

	ASSERT_EQ(0, caller_start(&self->c, &variant->call, &self->f));
	stops = caller_stop(&self->c, PACE, MOST);
	TH_LOG("ended after %d stops", stops);
	EXPECT_GT(MOST, stops);
	if (stops == MOST)
		kill(self->c.pid, SIGKILL);
	EXPECT_EQ(variant->result, caller_end(&self->c));
}

/* Allocating this much takes a while, in which the process can be stopped. */
#define LARGE (16UL << 20)
#define ROUNDS 20

static int make_memories(void *about)
{
	struct files *f = about;
	struct memory m;
	int ret = 0;

	for (int i = 0; !ret && i < ROUNDS; i++)
		ret = memory_create(f->fd, LARGE, &m) ?:
		      region_unregister(f->fd, m.r.handle);
	return ret;
}

static int make_slots(void *about)
{
	__u32 count = LARGE / ULDMA_MSG_MAX_SLOT;
	struct files *f = about;
	struct slots s;
	int ret = 0;

	for (int i = 0; !ret && i < ROUNDS; i++)
		ret = slots_create(f->fd, 0, f->e.handle, count,
				   ULDMA_MSG_MAX_SLOT, &s) ?:
		      region_unregister(f->fd, s.handle);
	return ret;
}

FIXTURE(making) {
	struct files f;
	struct caller c;
};

FIXTURE_VARIANT(making) {
	struct call call;
};

FIXTURE_VARIANT_ADD(making, memories) {
	.call = { open_file, make_memories },
};

FIXTURE_VARIANT_ADD(making, slots) {
	.call = { open_endpoint, make_slots },
};

FIXTURE_SETUP(making)
{
	if (geteuid())
		SKIP(return, "needs root, for more than RLIMIT_MEMLOCK");
}

FIXTURE_TEARDOWN(making)
{
}

/* Stops come whether it sleeps or not, and end some day, so that the call does. */
TEST_F(making, goes_on)
{
	ASSERT_EQ(0, caller_start(&self->c, &variant->call, &self->f));
	for (int i = 0; i < MOST && !poll_for(self->c.fd, 1); i++)
		if (stop_and_continue(self->c.pid))
			break;
	EXPECT_EQ(0, caller_end(&self->c));
}

int main(int argc, char **argv)
{
	return uldma_main(argc, argv);
}
