// SPDX-License-Identifier: GPL-2.0
/*
 * Announcements, frames and counters of the network interface that no node may
 * write, by Documentation/uldma/network.rst. Each ends the session. The victim's
 * interface has to be up.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "uldma_hostile_link.h"

#define FEATURE_NETWORK 1
#define FEATURE_ENGINE 2
#define RANGE_BYTES 65536
#define MAX_FRAME 1514
#define PATIENCE 10000000000ULL

/* Words of a range, and its ring, by byte offset. */
enum range_word {
	RANGE_PRODUCED = 0x000,
	RANGE_CONSUMED = 0x040,
	RANGE_ASLEEP = 0x048,
	RANGE_RING = 0x100,
};

/* What was agreed with the victim. */
struct network {
	uint32_t key;		/* of the ring in its section */
	uint64_t offset;	/* of the range there */
	uint64_t bytes;
	uint32_t own_key;
	bool has_endpoint;	/* the victim was told of an endpoint */
};

/* The range that the victim writes is at the end of its lane. */
static struct message announcement(const struct hostile *h, uint32_t key)
{
	return message(NETWORK, key, h->inbound + h->lane - RANGE_BYTES, RANGE_BYTES,
		       (uint64_t)MAX_FRAME << 32 | 3, 0);
}

/* An endpoint that is not there. */
static struct message endpoint(uint32_t key)
{
	return message(NETWORK_ENDPOINT, key, 7, hostile_random(), 65536, 0);
}

static int meet(struct hostile *h)
{
	h->features = FEATURE_NETWORK;
	return hostile_meet(h);
}

static int meet_with_engine(struct hostile *h)
{
	h->features = FEATURE_NETWORK | FEATURE_ENGINE;
	return hostile_meet(h);
}

/* Waits until the victim's session has another end than this node's. */
static bool ends(struct hostile *h)
{
	uint64_t limit = hostile_now() + PATIENCE;
	struct message m;

	while (hostile_is_up(h) && hostile_now() < limit) {
		while (hostile_take(h, &m))
			;
		hostile_ring(h);
		hostile_pause(h);
	}
	return !hostile_is_up(h);
}

static void write_range(struct hostile *h, const struct network *n,
			uint64_t at, uint64_t value)
{
	volatile uint64_t *word = hostile_section(h, h->victim, n->offset + at);

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	*word = htole64(value);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* Joins a victim that was met honestly: 0, -ENOTCONN, -ETIMEDOUT. */
static int join_met(struct hostile *h, struct network *n)
{
	uint64_t limit;
	struct message m;
	int ret;

	n->own_key = hostile_random() | 1;
	if (n->has_endpoint) {
		m = endpoint(n->own_key);
		ret = hostile_put(h, &m);
		if (ret)
			return ret;
	}
	m = announcement(h, n->own_key);
	ret = hostile_put(h, &m);
	limit = hostile_now() + PATIENCE;
	while (!ret) {
		if (!hostile_is_up(h))
			return -ENOTCONN;
		if (hostile_now() > limit) {
			printf("the victim's interface is down\n");
			return -ETIMEDOUT;
		}
		if (!hostile_take(h, &m))
			hostile_pause(h);
		else if (KIND(&m) == NETWORK && m.words[2])
			break;
	}
	if (ret)
		return ret;
	n->key = NUMBER(&m);
	n->offset = m.words[1];
	n->bytes = m.words[2];
	write_range(h, n, RANGE_CONSUMED, (uint64_t)n->own_key << 32);
	write_range(h, n, RANGE_ASLEEP, (uint64_t)n->own_key << 32 | 1);
	return 0;
}

static int join(struct hostile *h, struct network *n)
{
	n->has_endpoint = false;
	return meet(h) ?: join_met(h, n);
}

/* With an endpoint, if the victim understands what that is. */
static int join_with_engine(struct hostile *h, struct network *n)
{
	int ret = meet_with_engine(h);

	if (ret)
		return ret;
	n->has_endpoint = hostile_read(h, FEATURES) & FEATURE_ENGINE;
	return join_met(h, n);
}

/* Announcements that are refused, each in a session of its own. */
static int bad_announcements(struct hostile *h)
{
	const uint64_t largest = RANGE_BYTES / 2;
	unsigned int survived = 0, i;
	struct message m[10];
	int ret;

	for (i = 0; i < ARRAY_SIZE(m); i++)
		m[i] = announcement(h, 1);
	m[0].words[0] &= 0xff;				/* no key */
	m[1].words[1] = h->inbound + AREA_BYTES - 4096;	/* of the channel */
	m[2].words[1] += 1;				/* not aligned */
	m[3].words[1] += 4096;				/* beyond the lane */
	m[4].words[1] = ~0ULL << 12;			/* its end wraps */
	m[5].words[2] = 4096;				/* too small */
	m[6].words[2] = 0;				/* neither that nor none */
	m[7].words[3] = (largest + 1) << 32 | 3;	/* two do not fit */
	m[8].words[3] = 13ULL << 32 | 3;		/* no room for the MTU */
	m[9].words[4] = 1;				/* not listed */
	for (i = 0; i < ARRAY_SIZE(m); i++) {
		ret = meet(h) ?: hostile_put(h, &m[i]);
		if (ret)
			return ret;
		if (!ends(h)) {
			printf("announcement %u was taken\n", i);
			survived++;
		}
	}
	/* What the victim has not offered to understand. */
	h->features = 0;
	m[0] = announcement(h, 1);
	ret = hostile_meet(h) ?: hostile_put(h, &m[0]);
	if (ret)
		return ret;
	if (!ends(h)) {
		printf("an announcement without the feature was taken\n");
		survived++;
	}
	printf("%u announcements, %u of which were taken\n", i + 1, survived);
	return survived;
}

/* Frames that are refused. */
static int bad_frames(struct hostile *h)
{
	/* The first two words, and the blocks that are said to be there. */
	static const uint64_t frames[][3] = {
		{ 0, 0, 1 },				/* empty */
		{ 13, 0, 1 },				/* no header */
		{ 1514, 0, 1 },				/* not whole */
		{ 0xffffffff, 0, 1 },			/* wraps */
		{ 60 | 2ULL << 32, 0, 2 },		/* no such flag */
		{ 60, 1ULL << 48, 2 },			/* not listed */
		{ 60, 0, 0x7fffffff },			/* more than the ring */
		{ 60, 0, 0xffffffff },			/* less than nothing */
	};
	unsigned int survived = 0, i;
	struct network n;
	int ret;

	for (i = 0; i < ARRAY_SIZE(frames); i++) {
		ret = join(h, &n);
		if (ret)
			return ret;
		write_range(h, &n, RANGE_RING, frames[i][0]);
		write_range(h, &n, RANGE_RING + 8, frames[i][1]);
		write_range(h, &n, RANGE_PRODUCED,
			    (uint64_t)n.key << 32 | frames[i][2]);
		if (!ends(h)) {
			printf("frame %u was taken\n", i);
			survived++;
		}
	}
	printf("%u frames, %u of which were taken\n", i, survived);
	return survived;
}

/* Endpoints that are refused, each in a session of its own. */
static int bad_endpoints(struct hostile *h, unsigned int *survived)
{
	struct message m[3];
	unsigned int i;
	int ret;

	for (i = 0; i < ARRAY_SIZE(m); i++)
		m[i] = endpoint(1);
	m[0].words[0] &= 0xff;				/* no key */
	m[1].words[1] = 1ULL << 32;			/* no index */
	m[2].words[4] = 1;				/* not listed */
	for (i = 0; i < ARRAY_SIZE(m); i++) {
		ret = meet_with_engine(h) ?: hostile_put(h, &m[i]);
		if (ret)
			return ret;
		if (!ends(h)) {
			printf("endpoint %u was taken\n", i);
			(*survived)++;
		}
	}
	/* Without the feature. */
	m[0] = endpoint(1);
	ret = meet(h) ?: hostile_put(h, &m[0]);
	if (ret)
		return ret;
	if (!ends(h)) {
		printf("an endpoint without the feature was taken\n");
		(*survived)++;
	}
	return 0;
}

/* Packets that the engine is said to have moved. */
static int bad_engine(struct hostile *h)
{
	/* The first two words of frames of four blocks. */
	static const uint64_t frames[][2] = {
		{ 1400, 240ULL << 48 },			/* no message */
		{ 1400, 13ULL << 48 },			/* no header */
		{ 1400, 241ULL << 48 },			/* more than the least */
		{ 240, 240ULL << 48 },			/* nothing is left */
		{ 65554, 240ULL << 48 },		/* too long */
		{ 0xffffffff, 240ULL << 48 },		/* wraps */
		{ 1400 | 3ULL << 32, 240ULL << 48 },	/* not alone */
	};
	unsigned int survived = 0, i;
	struct network n;
	int ret = bad_endpoints(h, &survived);

	if (ret)
		return ret;
	for (i = 0; i < 2 * ARRAY_SIZE(frames); i++) {
		const uint64_t *frame = frames[i / 2];

		/* Whether or not there is an endpoint for it. */
		ret = i & 1 ? join(h, &n) : join_with_engine(h, &n);
		if (ret)
			return ret;
		write_range(h, &n, RANGE_RING, frame[0]);
		write_range(h, &n, RANGE_RING + 8, frame[1]);
		write_range(h, &n, RANGE_PRODUCED, (uint64_t)n.key << 32 | 4);
		if (!ends(h)) {
			printf("frame %u was taken\n", i);
			survived++;
		}
	}
	printf("%u frames, %u of all were taken\n", i, survived);
	return survived;
}

/* Says that it has consumed what was never produced. */
static int consumes_too_much(struct hostile *h)
{
	struct network n;
	int ret = join(h, &n);

	if (ret)
		return ret;
	/* The victim's own packets, such as those of IPv6, find it. */
	write_range(h, &n, RANGE_CONSUMED,
		    (uint64_t)n.own_key << 32 | 0x70000000);
	if (!ends(h)) {
		printf("it goes on\n");
		return 1;
	}
	return 0;
}

/* Frames of the right form, with anything in them: they are dropped, or not. */
static int random_frames(struct hostile *h)
{
	uint32_t produced = 0, blocks, room;
	unsigned int sessions = 0, frames = 0;
	struct network n;
	uint64_t at, i;
	int ret = 0;

	while (!ret && hostile_goes_on(h)) {
		if (!sessions || !hostile_is_up(h)) {
			ret = join_with_engine(h, &n);
			produced = 0;
			sessions++;
			continue;
		}
		room = (n.bytes - RANGE_RING) / 64;
		at = RANGE_RING + (uint64_t)(produced % room) * 64;
		/* Mostly offloads that are accepted and do not fit the packet. */
		write_range(h, &n, at,
			    60 | (hostile_random() & 1) << 32 |
				    (hostile_random() & 0x87) << 40 |
				    hostile_random() << 48);
		write_range(h, &n, at + 8, hostile_random() >> 16);
		/* Frames that say that the engine has failed are passed. */
		if (n.has_endpoint && !(hostile_random() & 3)) {
			write_range(h, &n, at, 60 | 2ULL << 32);
			write_range(h, &n, at + 8, 56ULL << 48);
		}
		for (i = 16; i < 128 && at + i < n.bytes; i += 8)
			write_range(h, &n, at + i, hostile_random());
		blocks = 2;
		produced += blocks;
		write_range(h, &n, RANGE_PRODUCED,
			    (uint64_t)n.key << 32 | produced);
		frames++;
		hostile_ring(h);
		hostile_pause(h);
	}
	printf("%u frames in %u sessions\n", frames, sessions);
	return ret;
}

/* The interface of a node, of its first device, as a source; groups are all nodes. */
static void write_header(struct hostile *h, const struct network *n, uint64_t at, uint8_t node)
{
	const uint8_t header[16] = {
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02, 0x75, 0x6c, 0, 0, node,
		/* For local experiments. */
		0x88, 0xb5,
	};
	uint64_t words[2];

	memcpy(words, header, sizeof(words));
	write_range(h, n, at, le64toh(words[0]));
	write_range(h, n, at + 8, le64toh(words[1]));
}

/* N14: frames whose source is every node but this one, and no node. */
static int foreign_sources(struct hostile *h)
{
	const unsigned int count = 64;
	uint64_t at, word, consumed = 0;
	unsigned int sent = 0;
	struct network n;
	int ret = join(h, &n);

	while (!ret && consumed < 2 * count) {
		if (sent < count) {
			/* Both blocks are in the ring, which begins with them. */
			at = RANGE_RING + (uint64_t)sent * 128;
			write_range(h, &n, at, 60);
			write_range(h, &n, at + 8, 0);
			write_header(h, &n, at + 16, (h->node + 1 + sent % 8) % 9);
			sent++;
			write_range(h, &n, RANGE_PRODUCED, (uint64_t)n.key << 32 | 2 * sent);
		}
		hostile_ring(h);
		hostile_pause(h);
		ret = hostile_is_up(h) ? 0 : -ENOTCONN;
		/* That of an earlier ring may still be there. */
		word = le64toh(*hostile_section(h, h->node, h->inbound + h->lane - RANGE_BYTES +
						RANGE_CONSUMED));
		consumed = word >> 32 == n.key ? (uint32_t)word : 0;
		if (!hostile_goes_on(h))
			ret = -ETIMEDOUT;
	}
	printf("%u frames of others\n", sent);
	return ret;
}

/*
 * Withdraws its range as soon as the victim has announced its own, again and again.
 * The victim may answer the first two times at once, and then with a backoff that
 * doubles from 100 ms to its limit.
 */
static int flaps(struct hostile *h)
{
	const struct message none = message(NETWORK, 0, 0, 0, 0, 0);
	uint64_t began = hostile_now();
	uint64_t backoff = 0, least = 0;
	unsigned int joined = 0;
	struct network n = {};
	int ret = meet_with_engine(h);

	n.has_endpoint = hostile_read(h, FEATURES) & FEATURE_ENGINE;
	while (!ret && hostile_goes_on(h)) {
		ret = join_met(h, &n) ?: hostile_put(h, &none);
		if (++joined > 2) {
			backoff = backoff ? 2 * backoff : 100000000;
			if (backoff > h->link_backoff)
				backoff = h->link_backoff;
			least += backoff;
		}
	}
	printf("%u announcements of the victim\n", joined);
	return ret ?: hostile_now() - began < least;
}

const struct mode network_modes[] = {
	{ "net-announce", "85: ranges that are not there", bad_announcements },
	{ "net-frames", "82, 84: frames that cannot be", bad_frames },
	{ "net-engine", "82, 84: packets that no engine moved", bad_engine },
	{ "net-consumed", "82: takes what was not sent", consumes_too_much },
	{ "net-flap", "89: a range that comes and goes", flaps },
	{ "net-foreign", "N14: frames of other nodes", foreign_sources },
	{ "net-random", "82, 84: any frames", random_frames },
	{ }
};
