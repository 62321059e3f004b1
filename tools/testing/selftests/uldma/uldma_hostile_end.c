// SPDX-License-Identifier: GPL-2.0
/*
 * A peer that is alive and does not do its part of an end: it takes no answers,
 * confirms the end of no connection, or gives no segment back. That costs it its
 * session, and others nothing.
 */
#include <errno.h>
#include <stdio.h>

#include "uldma_hostile_link.h"

/* More than the ranges of a section, and than a driver keeps for a peer. */
#define CONNECTIONS 100
/* More than a ring, and a list of answers, have room for. */
#define CONNECTS 200
/* Where no process listens. */
#define CLOSED_PORT 1
/* Those of uldma_doorbell. */
#define SEGMENTS 31
#define SEGMENT_NAME 0x6c6c6562ULL

/* Waits for a message of a kind with a number, and answers none. */
static int listen_for(struct hostile *h, enum message_kind kind,
		      uint32_t number, struct message *m)
{
	uint64_t limit = hostile_now() + 2 * h->link_timeout;

	while (hostile_now() < limit) {
		if (!hostile_is_up(h))
			return -ENOTCONN;
		if (!hostile_take(h, m))
			hostile_pause(h);
		else if (KIND(m) == kind && NUMBER(m) == number)
			return 0;
	}
	return -ETIMEDOUT;
}

/* Has the victim end a connection of which it hears nothing any more. */
static int keep_connection(struct hostile *h)
{
	uint32_t flags = h->carried ? CONNECT_WINDOW : 0;
	struct message m;
	int ret;

	h->connection = hostile_random();
	ret = hostile_say(h, CONNECT, h->connection,
			  (uint64_t)h->port << 32 | flags, hostile_random(),
			  hostile_data_extent(h), hostile_ring_extent(h)) ?:
	      listen_for(h, CONNECTED, h->connection, &m);
	if (!ret)
		ret = -(int)(m.words[1] >> 32);
	/* An export of nothing breaks the rules of a connection. */
	return ret ?: hostile_say(h, EXPORT, (uint32_t)m.words[1], 0, 0, 0,
				  0) ?:
		      listen_for(h, DISCONNECT, h->connection, &m);
}

/* One after the other; where there is no room for more, the session has to end. */
static int never_lets_go(struct hostile *h)
{
	unsigned int kept = 0, sessions = 0;
	uint64_t limit = hostile_now() + 6 * h->link_timeout;
	int ret = 0;

	while (kept < CONNECTIONS && hostile_now() < limit) {
		if (!hostile_is_up(h)) {
			ret = hostile_meet(h);
			if (ret)
				return ret;
			sessions++;
		}
		ret = keep_connection(h);
		if (ret) {
			hostile_pause(h);
			continue;
		}
		kept++;
		limit = hostile_now() + 6 * h->link_timeout;
	}
	printf("%u connections in %u sessions\n", kept, sessions);
	return ret;
}

/* Lets a victim connect, with rings or without: 0 or a negated errno. */
static int accept_victim(struct hostile *h, uint64_t ring)
{
	struct message m;

	while (hostile_goes_on(h)) {
		if (!hostile_is_up(h))
			return -ENOTCONN;
		if (!hostile_take(h, &m)) {
			hostile_pause(h);
			continue;
		}
		if (KIND(&m) != CONNECT)
			continue;
		h->connection = 7;
		return hostile_say(h, CONNECTED, NUMBER(&m), h->connection,
				   m.words[2], hostile_data_extent(h), ring);
	}
	return -ETIMEDOUT;
}

/* Stays until the time is over, and takes what it is told: whether the link is up. */
static bool stay(struct hostile *h)
{
	struct message m;

	printf("holding\n");
	while (hostile_goes_on(h) && hostile_is_up(h))
		if (!hostile_take(h, &m))
			hostile_pause(h);
	printf("the link is %s\n", hostile_is_up(h) ? "up" : "down");
	return hostile_is_up(h);
}

/*
 * A connection that the victim makes, and ends in vain. Only where the victim has
 * memory of its own that may be written then does it end the session.
 */
static int holds(struct hostile *h, uint64_t ring)
{
	struct message m;
	int ret;

	ret = hostile_meet(h) ?:
	      accept_victim(h, ring) ?:
	      listen_for(h, DISCONNECT, h->connection, &m);
	/* A victim that does not end any connection is not worse off. */
	if (ret)
		return ret == -ETIMEDOUT ? 0 : ret;
	return stay(h) == (h->carried || ring);
}

static int holds_on(struct hostile *h)
{
	return holds(h, 0);
}

/* Of a victim that has named its own. */
static int holds_ring(struct hostile *h)
{
	return holds(h, hostile_ring_extent(h));
}

/* Segments, which the victim ends in vain. */
static int keeps_segments(struct hostile *h)
{
	struct message m;
	int ret = hostile_meet(h);
	unsigned int kept = 0;

	for (uint32_t i = 0; i < SEGMENTS && !ret; i++) {
		ret = hostile_say(h, LOOKUP_SEGMENT, i, SEGMENT_NAME + i, 0, 0,
				  0);
		while (!ret && (!hostile_take(h, &m) || NUMBER(&m) != i)) {
			hostile_pause(h);
			if (!hostile_is_up(h))
				ret = -ENOTCONN;
		}
		kept += !ret && KIND(&m) == SEGMENT;
	}
	printf("%u segments\n", kept);
	/* A victim without any is not worse off. */
	return ret || !kept ? ret : stay(h);
}

/* Connects to a port without a listener, and takes no answer. */
static int takes_nothing(struct hostile *h)
{
	unsigned int said = 0, sessions = 0;
	int ret = 0;

	while (hostile_goes_on(h)) {
		if (!hostile_is_up(h)) {
			ret = hostile_meet(h);
			if (ret)
				return ret;
			sessions++;
		}
		ret = hostile_say(h, CONNECT, said,
				  (uint64_t)CLOSED_PORT << 32,
				  hostile_random(), 0, 0);
		if (ret == -ENOTCONN)
			continue;
		if (ret)
			return ret;
		if (++said == CONNECTS)
			printf("flooding\n");
		if (!(said % 16))
			hostile_pause(h);
	}
	printf("%u connects in %u sessions\n", said, sessions);
	return 0;
}

const struct mode end_modes[] = {
	{ "never-lets-go", "96: answers no end, again and again",
	  never_lets_go },
	{ "holds-on", "96: answers no end, and stays", holds_on },
	{ "holds-ring", "96: the same, of a connection with rings", holds_ring },
	{ "keeps-segments", "96: gives no segment back", keeps_segments },
	{ "takes-nothing", "96: asks, and takes no answer", takes_nothing },
	{ }
};
