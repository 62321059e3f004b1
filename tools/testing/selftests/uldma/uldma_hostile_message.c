// SPDX-License-Identifier: GPL-2.0
/*
 * Messages that no node may send. Those that violate the link's protocol end the
 * session, those that violate a connection's reset it, and those about a
 * connection that does not exist have no effect. Numbers are those of the list of
 * hostile peers in the notes on prior art.
 */
#include <errno.h>
#include <stdio.h>

#include "uldma_hostile_link.h"

/* Says a message in a session, and sees whether that ends it. */
static int ends_session(struct hostile *h, const struct message *m, bool *ends)
{
	uint32_t number = hostile_random();
	struct message reply;
	int ret = hostile_remeet(h);

	if (!ret)
		ret = hostile_put(h, m);
	if (!ret)
		ret = hostile_say(h, LOOKUP_REGION, number, 1, 0, 0, 0);
	if (!ret)
		ret = hostile_await(h, REFUSED, number, &reply);
	*ends = ret == -ENOTCONN;
	return *ends ? 0 : ret;
}

/* Some messages, each in a session of its own: how many did not end it. */
static int all_end(struct hostile *h, const struct message *messages,
		   unsigned int count)
{
	unsigned int tried = 0, survived = 0;
	bool ends;
	int ret;

	for (; tried < count; tried++) {
		ret = ends_session(h, &messages[tried], &ends);
		if (ret)
			return ret;
		if (!ends)
			printf("%#llx was taken\n",
			       (unsigned long long)messages[tried].words[0]);
		survived += !ends;
	}
	printf("%u messages, %u of which did not end the session\n", tried,
	       survived);
	return survived;
}

/* 84 */
static int unknown_kind(struct hostile *h)
{
	const struct message messages[] = {
		message(0, 1, 0, 0, 0, 0),
		message(STREAM + 1, 1, 0, 0, 0, 0),
		message(128, 1, 0, 0, 0, 0),
		message(255, ~0U, ~0ULL, ~0ULL, ~0ULL, ~0ULL),
	};

	return all_end(h, messages, ARRAY_SIZE(messages));
}

/* 84 */
static int reserved_bits(struct hostile *h)
{
	struct message messages[] = {
		message(LOOKUP_REGION, 1, 1, 0, 0, 0),
		message(LOOKUP_REGION, 1, 1, 1, 0, 0),
		message(DONE, 1, 1, 0, 0, 1),
		message(DISCONNECTED, 1, 1, 0, 0, 0),
		message(EXPORT, 1, 1, 0, 0, 0),
		message(STREAM, 1, 1, 0, 0, 0),
		message(CONNECT, 1, 1, 1, 0, 0),
		message(CONNECT, 1, 1, 1, 0, 0),
		message(CONNECT, 1, 1, 1, 0, 0),
	};

	messages[0].words[0] |= 1 << PRIVATE_BYTES_SHIFT;
	messages[4].words[5] = 1;
	messages[6].words[0] |= 1 << 16;
	/* More private data than is possible, and some behind its end. */
	messages[7].words[0] |= 129 << PRIVATE_BYTES_SHIFT;
	messages[8].words[0] |= 7 << PRIVATE_BYTES_SHIFT;
	messages[8].words[PRIVATE] = 1ULL << 56;
	return all_end(h, messages, ARRAY_SIZE(messages));
}

/* 86, 92: about connections that there never were; all are passed over. */
static int stale_messages(struct hostile *h)
{
	struct message m;
	unsigned int said = 0;
	uint32_t to;
	int ret = hostile_meet(h);

	while (!ret && hostile_goes_on(h)) {
		to = hostile_random();
		ret = hostile_say(h, CONNECTED, to, hostile_random(),
				  hostile_random(), 0, 0) ?:
		      hostile_say(h, EXPORT, to, hostile_random(),
				  hostile_random(), hostile_random(), 0) ?:
		      hostile_say(h, DONE, to, hostile_random(), 0, 0, 0) ?:
		      hostile_say(h, DISCONNECTED, to, 0, 0, 0, 0) ?:
		      hostile_say(h, SEGMENT_GONE, 0, hostile_random(), 0, 0,
				  0) ?:
		      hostile_say(h, SEGMENT_LEFT, 0, hostile_random() & ~7ULL,
				  1, 0, 0) ?:
		      hostile_say(h, DISCONNECT, to, said, 0, 0, 0) ?:
		      hostile_await(h, DISCONNECTED, said, &m);
		said++;
	}
	printf("%u times; the link is %s\n", said,
	       hostile_is_up(h) ? "up" : "down");
	return ret;
}

/* Breaks the rules of a connection, which shall be reset, and nothing else. */
static int breaks_connection(struct hostile *h, const char *what,
			     struct message *m)
{
	struct message reply;
	uint32_t theirs;
	int ret;

	ret = hostile_remeet(h) ?: hostile_connect(h, h->port, &theirs);
	if (ret) {
		printf("%s: cannot connect to port %u: %d\n", what, h->port,
		       ret);
		return ret;
	}
	m->words[0] |= (uint64_t)theirs << 32;
	ret = hostile_put(h, m) ?:
	      hostile_await(h, DISCONNECT, h->connection, &reply);
	printf("%s: %s\n", what, ret ? "not reset" :
	       reply.words[1] >> 32 ? "reset" : "disconnected");
	return ret;
}

/* 84, 86, 97: impossible sizes, and answers without a request. */
static int bad_stream(struct hostile *h)
{
	struct {
		const char *what;
		struct message m;
	} tries[] = {
		{ "done without an export",
		  message(DONE, 0, 1ULL << 40, 0, 0, 0) },
		{ "done with nothing", message(DONE, 0, 0, 0, 0, 0) },
		{ "export of nothing", message(EXPORT, 0, 0, 0, 0, 0) },
		{ "export of 2^63", message(EXPORT, 0, 1ULL << 63, 1, 1, 0) },
		{ "export of all ones",
		  message(EXPORT, 0, ~0ULL, ~0ULL, ~0ULL, 0) },
		{ "export under a name that cannot be",
		  message(EXPORT, 0, 4096, 1ULL << 32, 1, 0) },
		{ "an endpoint, without the feature",
		  message(STREAM, 0, 1ULL << 32 | 1, 1, 0, 0) },
		{ "no endpoint, without a request",
		  message(STREAM, 0, 0, 0, 0, 0) },
		{ "connected twice", message(CONNECTED, 0, 7, 7, 0, 0) },
		{ "disconnected without disconnect",
		  message(DISCONNECTED, 0, 0, 0, 0, 0) },
	};
	struct message too_much = message(EXPORT, 0, DATA_BYTES + 1, 0, 0, 0);
	int ret = 0;

	for (unsigned int i = 0; i < ARRAY_SIZE(tries); i++)
		ret |= breaks_connection(h, tries[i].what, &tries[i].m);
	if (h->carried)
		ret |= breaks_connection(h, "export of more than the range",
					 &too_much);
	return ret;
}

/* 84: regions that are not exported, which an engine must not find. */
static int bad_exports(struct hostile *h)
{
	struct message reply;
	unsigned int said = 0;
	uint32_t theirs;
	int ret = 0;

	while (!ret && hostile_goes_on(h)) {
		ret = hostile_remeet(h) ?:
		      hostile_connect(h, h->port, &theirs);
		for (int i = 0; i < 64 && !ret; i++, said++)
			ret = hostile_say(h, EXPORT, theirs, 4096,
					  hostile_random() & 0x3fff,
					  hostile_random() & 0xff, 0);
		/* One more than there can be. */
		if (!ret)
			ret = hostile_say(h, EXPORT, theirs, 4096, 1, 1, 0) ?:
			      hostile_await(h, DISCONNECT, h->connection,
					    &reply);
	}
	printf("%u exports; the link is %s\n", said,
	       hostile_is_up(h) ? "up" : "down");
	/* The time can be over while the listener is busy with the last one. */
	return ret == -ECONNREFUSED && said ? 0 : ret;
}

/* 96: the first end is answered, the second one has no effect. */
static int disconnect_twice(struct hostile *h)
{
	struct message m;
	uint32_t theirs;
	int ret;

	ret = hostile_meet(h) ?:
	      hostile_connect(h, h->port, &theirs) ?:
	      hostile_say(h, DISCONNECT, theirs, h->connection, 0, 0, 0) ?:
	      hostile_await(h, DISCONNECTED, h->connection, &m) ?:
	      hostile_say(h, DISCONNECT, theirs, h->connection, 0, 0, 0) ?:
	      hostile_say(h, LOOKUP_REGION, 1, 1, 0, 0, 0) ?:
	      hostile_await(h, REFUSED, 1, &m);
	printf("%s\n", ret ? "not answered" : "answered");
	return ret;
}

/* 96: as many connects as possible, to any listener; none is ended. */
static int connect_flood(struct hostile *h)
{
	unsigned int asked = 0, refused = 0, accepted = 0;
	bool is_full = false;
	struct message m;
	int ret = hostile_meet(h);

	while (!ret && hostile_goes_on(h)) {
		ret = hostile_say(h, CONNECT, asked,
				  (uint64_t)(asked % 101 ?: h->port) << 32 |
				  (h->carried ? CONNECT_WINDOW : 0),
				  hostile_random(), hostile_data_extent(h),
				  hostile_ring_extent(h));
		asked++;
		while (hostile_take(h, &m)) {
			if (KIND(&m) != CONNECTED)
				continue;
			accepted += !(m.words[1] >> 32);
			refused += !!(m.words[1] >> 32);
			if (!is_full && m.words[1] >> 32 && !(NUMBER(&m) % 101)) {
				printf("its port is full\n");
				is_full = true;
			}
		}
		if (!(asked % 100))
			hostile_pause(h);
	}
	printf("%u connects, %u accepted, %u refused\n", asked, accepted,
	       refused);
	return ret ?: !hostile_is_up(h);
}

/* Connects with these ranges, and sees whether they are believed. */
static int believes(struct hostile *h, uint64_t data, uint64_t ring,
		    unsigned int *believed)
{
	uint32_t number = hostile_random();
	struct message m;
	int ret;

	ret = hostile_remeet(h) ?:
	      hostile_say(h, CONNECT, number, (uint64_t)h->port << 32 |
			  (h->carried ? CONNECT_WINDOW : 0),
			  hostile_random(), data, ring) ?:
	      hostile_await(h, CONNECTED, number, &m);
	if (!ret && !(m.words[1] >> 32)) {
		printf("data at %#llx, a ring at %#llx were believed\n",
		       (unsigned long long)data, (unsigned long long)ring);
		++*believed;
	}
	return ret;
}

/* 85: ranges of the window that are not there, or are something else's. */
static int offset_lies(struct hostile *h)
{
	const uint64_t unit = EXTENT_UNIT, first = h->inbound + AREA_BYTES;
	const uint64_t end = h->inbound + h->lane;
	const uint64_t lies[] = {
		extent(h->inbound, unit),
		extent(first - unit, 2 * unit),
		extent(first, 0),
		extent(first, h->lane),
		extent(end, unit),
		extent(end - unit, 2 * unit),
		extent(h->inbound - unit, unit),
		extent(h->section, unit),
		extent(first, ~0ULL),
		extent(~0ULL, 2 * unit),
		1ULL << 63 | 1ULL << 31,
		~0ULL,
	};
	unsigned int believed = 0;
	int ret = 0;

	for (unsigned int i = 0; i < ARRAY_SIZE(lies) && !ret; i++)
		ret = believes(h, lies[i], 0, &believed) ?:
		      believes(h, hostile_data_extent(h), lies[i], &believed);
	/* No data through the window without a range for it. */
	if (!ret && h->carried)
		ret = believes(h, 0, 0, &believed);
	printf("%u lies were believed\n", believed);
	return ret ?: believed;
}

/* Answers a connect of the victim; no answer can be right. */
static struct message connected_lie(struct hostile *h, const struct message *m,
				    unsigned int lie)
{
	struct message reply = message(CONNECTED, NUMBER(m), lie, m->words[2],
				       hostile_data_extent(h), 0);

	reply.words[5] = m->words[5];
	if (!m->words[4]) {
		printf("a ring for one that has none\n");
		reply.words[4] = hostile_ring_extent(h);
		return reply;
	}
	switch (lie % 3) {
	case 0:
		reply.words[3] = hostile_random();
		reply.words[4] = hostile_random();
		break;
	case 1:
		/* Another kind, and nothing else is wrong. */
		reply.words[5] ^= 1 << 16;
		break;
	default:
		reply.words[4] = hostile_random();
	}
	return reply;
}

/* 85: whatever is asked is answered, with what cannot be. */
static int answer_lies(struct hostile *h)
{
	unsigned int lies = 0, connects = 0;
	struct message m, reply;
	int ret = 0;

	while (!ret && hostile_goes_on(h)) {
		ret = hostile_remeet(h);
		if (ret || !hostile_take(h, &m)) {
			hostile_pause(h);
			continue;
		}
		lies++;
		switch (KIND(&m)) {
		case LOOKUP_REGION:
			ret = hostile_say(h, REGION, NUMBER(&m),
					  hostile_random() & 0x3fff,
					  hostile_random(), ~0ULL, 3);
			break;
		case LOOKUP_SEGMENT:
			ret = hostile_say(h, SEGMENT, NUMBER(&m),
					  lies % 2 ? hostile_random() :
						     h->inbound + h->lane - 4096,
					  lies % 3 ? 8192 : ~0ULL, 0, 0);
			break;
		case CONNECT:
			reply = connected_lie(h, &m, connects++);
			ret = hostile_put(h, &reply);
			break;
		default:
			lies--;
		}
	}
	printf("%u lies\n", lies);
	return ret;
}

/*
 * 97: answers without a request, while the victim cannot send: each
 * would be an offer for it to give back.
 */
static int answer_flood(struct hostile *h)
{
	unsigned int said = 0;
	int ret = hostile_meet(h);

	/* No node takes the answers, so that the ring is full. */
	for (uint32_t i = 0; i < LINK_SLOTS && !ret; i++)
		ret = hostile_say(h, LOOKUP_REGION, i, 1, 0, 0, 0);
	for (; !ret && hostile_goes_on(h); said++)
		ret = hostile_say(h, SEGMENT, hostile_random(),
				  h->inbound + AREA_BYTES + said % 16 * 4096,
				  4096, 0, 0);
	printf("%u answers; the link is %s\n", said,
	       hostile_is_up(h) ? "up" : "down");
	return ret == -ENOTCONN ? 0 : ret ?: 1;
}

/* 95: what was the victim's to give is written after it was taken back. */
static int stale_ranges(struct hostile *h)
{
	uint64_t ranges[2];
	struct message m;
	uint32_t theirs;
	int ret;

	ret = hostile_meet(h);
	h->connection = hostile_random();
	if (!ret)
		ret = hostile_say(h, CONNECT, h->connection,
				  (uint64_t)h->port << 32 |
				  (h->carried ? CONNECT_WINDOW : 0),
				  hostile_random(), hostile_data_extent(h),
				  hostile_ring_extent(h)) ?:
		      hostile_await(h, CONNECTED, h->connection, &m);
	if (ret || m.words[1] >> 32)
		return ret ?: -(int)(m.words[1] >> 32);
	theirs = m.words[1];
	ranges[0] = m.words[3];
	ranges[1] = m.words[4];
	if (!ranges[1] || !ranges[0] != !h->carried) {
		printf("there are no ranges\n");
		return 1;
	}
	ret = hostile_say(h, DISCONNECT, theirs, h->connection, 0, 0, 0) ?:
	      hostile_await(h, DISCONNECTED, h->connection, &m);
	while (!ret && hostile_goes_on(h)) {
		for (unsigned int i = 0; i < ARRAY_SIZE(ranges); i++) {
			volatile uint64_t *at = hostile_section(h, h->victim,
								extent_offset(ranges[i]));
			uint64_t words = extent_bytes(ranges[i]) / 8;

			for (uint64_t word = 0; word < words; word++)
				at[word] = hostile_random();
		}
		hostile_pause(h);
		ret = hostile_is_up(h) ? 0 : -ENOTCONN;
	}
	return ret;
}

const struct mode message_modes[] = {
	{ "unknown-kind", "84: kinds that there are not", unknown_kind },
	{ "reserved-bits", "84: bits that have no meaning", reserved_bits },
	{ "stale-messages", "86, 92: about no connection", stale_messages },
	{ "bad-stream", "84, 97: what a connection cannot get", bad_stream },
	{ "bad-exports", "84: regions that are not exported", bad_exports },
	{ "disconnect-twice", "96: ends what has ended", disconnect_twice },
	{ "connect-flood", "96: connects and leaves it there", connect_flood },
	{ "offset-lies", "85: ranges that are not there", offset_lies },
	{ "answer-lies", "85: answers that cannot be", answer_lies },
	{ "answer-flood", "97: answers without a request", answer_flood },
	{ "stale-ranges", "95: writes what was taken back", stale_ranges },
	{ }
};
