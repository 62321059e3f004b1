// SPDX-License-Identifier: GPL-2.0
/*
 * Endpoints of streams that no node may name. A program of the victim asks for
 * matched streams at the second port: each connection that the peer breaks is
 * reset, at once or when the peer's time to end it is over, and nothing else.
 */
#include <errno.h>
#include <stdio.h>

#include "uldma_hostile_link.h"

/* Word 1 of STREAM: an endpoint is named. */
#define NAMED 0x100000000ULL
/* Flag of CONNECT: receivers move the data. */
#define CONNECT_PULL 1
#define SECOND 1000000000ULL

/* An endpoint that this node does not have. */
static int name(struct hostile *h, uint32_t theirs)
{
	return hostile_say(h, STREAM, theirs, NAMED | 1, hostile_random(), 0, 0);
}

static int refuse(struct hostile *h, uint32_t theirs)
{
	return hostile_say(h, STREAM, theirs, 0, 0, 0, 0);
}

static int export(struct hostile *h, uint32_t theirs)
{
	return hostile_say(h, EXPORT, theirs, 4096, 1, 1, 0);
}

static int done(struct hostile *h, uint32_t theirs)
{
	return hostile_say(h, DONE, theirs, 4096, 0, 0, 0);
}

/* Waits for the reset, which may take the victim's limit for an end. */
static int await_reset(struct hostile *h)
{
	uint64_t limit = hostile_now() + h->link_timeout + 10 * SECOND;
	struct message reply;
	int ret;

	do
		ret = hostile_await(h, DISCONNECT, h->connection, &reply);
	while (ret == -ETIMEDOUT && hostile_now() < limit);
	if (!ret && !(reply.words[1] >> 32)) {
		printf("disconnected, not reset\n");
		ret = -EPROTO;
	}
	return ret;
}

/* Connects, and waits until the victim has named its endpoint. */
static int begin(struct hostile *h, uint32_t *theirs, struct message *named)
{
	h->features |= FEATURE_STREAMS;
	return hostile_remeet(h) ?:
	       hostile_connect(h, h->stream_port, theirs) ?:
	       hostile_await(h, STREAM, h->connection, named);
}

/* One of a peer's mistakes; all but the first argument are about the connection. */
typedef int (*mistake_t)(struct hostile *h, uint32_t theirs,
			 const struct message *named);

static int try(struct hostile *h, const char *what, mistake_t mistake)
{
	struct message named;
	uint32_t theirs;
	int ret;

	ret = begin(h, &theirs, &named) ?:
	      mistake(h, theirs, &named) ?:
	      await_reset(h);
	printf("%s: %s\n", what, ret ? "not reset" : "reset");
	if (!ret && !hostile_is_up(h))
		ret = -ENOTCONN;
	return ret;
}

static int does_not_exist(struct hostile *h, uint32_t theirs,
			  const struct message *named)
{
	return name(h, theirs);
}

static int is_the_victims(struct hostile *h, uint32_t theirs,
			  const struct message *named)
{
	return hostile_say(h, STREAM, theirs, named->words[1], named->words[2],
			   0, 0);
}

static int is_out_of_range(struct hostile *h, uint32_t theirs,
			   const struct message *named)
{
	return hostile_say(h, STREAM, theirs, NAMED | UINT32_MAX, ~0ULL, 0, 0);
}

static int run_wrong(struct hostile *h)
{
	return try(h, "an endpoint that does not exist", does_not_exist) ?:
	       try(h, "the victim's own endpoint", is_the_victims) ?:
	       try(h, "an index that no table has", is_out_of_range);
}

static int same_twice(struct hostile *h, uint32_t theirs,
		      const struct message *named)
{
	return hostile_say(h, STREAM, theirs, NAMED | 1, 1, 0, 0) ?:
	       hostile_say(h, STREAM, theirs, NAMED | 1, 1, 0, 0);
}

static int another(struct hostile *h, uint32_t theirs,
		   const struct message *named)
{
	return name(h, theirs) ?: name(h, theirs);
}

static int refuses_first(struct hostile *h, uint32_t theirs,
			 const struct message *named)
{
	return refuse(h, theirs) ?: name(h, theirs);
}

static int refuses_later(struct hostile *h, uint32_t theirs,
			 const struct message *named)
{
	return name(h, theirs) ?: refuse(h, theirs);
}

static int refuses_twice(struct hostile *h, uint32_t theirs,
			 const struct message *named)
{
	return refuse(h, theirs) ?: refuse(h, theirs);
}

static int run_twice(struct hostile *h)
{
	return try(h, "an endpoint, twice", same_twice) ?:
	       try(h, "two endpoints", another) ?:
	       try(h, "none, then one", refuses_first) ?:
	       try(h, "one, then none", refuses_later) ?:
	       try(h, "none, twice", refuses_twice);
}

static int after_calls(struct hostile *h, uint32_t theirs,
		       const struct message *named)
{
	return export(h, theirs) ?: name(h, theirs);
}

static int exports_later(struct hostile *h, uint32_t theirs,
			 const struct message *named)
{
	return name(h, theirs) ?: export(h, theirs);
}

static int reports_later(struct hostile *h, uint32_t theirs,
			 const struct message *named)
{
	return name(h, theirs) ?: done(h, theirs);
}

/* Receivers are to move the data, and the peer names an endpoint for it. */
static int run_pull(struct hostile *h)
{
	struct message m;
	int ret;

	h->connection = hostile_random();
	ret = hostile_remeet(h) ?:
	      hostile_say(h, CONNECT, h->connection,
			  (uint64_t)h->stream_port << 32 | CONNECT_PULL,
			  hostile_random(), 0, 0) ?:
	      hostile_await(h, CONNECTED, h->connection, &m);
	if (!ret && m.words[1] >> 32)
		ret = -(int)(m.words[1] >> 32);
	ret = ret ?: name(h, m.words[1]) ?: await_reset(h);
	printf("an endpoint, with PULL: %s\n", ret ? "not reset" : "reset");
	return ret;
}

/* A program that uses calls refuses, and the peer insists. */
static int run_refused(struct hostile *h)
{
	struct message m;
	uint32_t theirs;
	int ret;

	ret = hostile_remeet(h) ?:
	      hostile_connect(h, h->port, &theirs) ?:
	      name(h, theirs) ?:
	      hostile_await(h, STREAM, h->connection, &m);
	if (!ret && (m.words[1] || m.words[2]))
		ret = -EPROTO;
	ret = ret ?: name(h, theirs) ?: await_reset(h);
	printf("an endpoint that was refused: %s\n",
	       ret ? "not reset" : "reset");
	return ret;
}

static int run_mixed(struct hostile *h)
{
	return try(h, "an endpoint, after an export", after_calls) ?:
	       try(h, "an export, after an endpoint", exports_later) ?:
	       try(h, "a report, after an endpoint", reports_later) ?:
	       run_pull(h) ?:
	       run_refused(h);
}

/* Connections that there never were, and one that has ended: all are passed over. */
static int run_nowhere(struct hostile *h)
{
	uint32_t number, theirs;
	unsigned int said = 0;
	struct message m;
	int ret;

	ret = begin(h, &theirs, &m) ?:
	      hostile_say(h, DISCONNECT, theirs, h->connection, 0, 0, 0) ?:
	      hostile_await(h, DISCONNECTED, h->connection, &m);
	while (!ret && hostile_goes_on(h)) {
		number = hostile_random();
		ret = name(h, theirs) ?:
		      refuse(h, theirs) ?:
		      name(h, number) ?:
		      hostile_say(h, STREAM, number, NAMED | UINT32_MAX,
				  hostile_random(), 0, 0) ?:
		      hostile_say(h, LOOKUP_REGION, number, 1, 0, 0, 0) ?:
		      hostile_await(h, REFUSED, number, &m);
		said++;
	}
	printf("%u times; the link is %s\n", said,
	       hostile_is_up(h) ? "up" : "down");
	return ret;
}

const struct mode stream_modes[] = {
	{ "stream-wrong", "84: endpoints that this node does not have", run_wrong },
	{ "stream-twice", "86: says twice which endpoint it uses", run_twice },
	{ "stream-mixed", "84: uses an endpoint and calls", run_mixed },
	{ "stream-nowhere", "86, 92: endpoints for no connection", run_nowhere },
	{ }
};
