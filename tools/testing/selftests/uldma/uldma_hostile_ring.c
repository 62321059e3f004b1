// SPDX-License-Identifier: GPL-2.0
/*
 * Handshakes that lie, impossible counters, and a node that is not there when it
 * should be. Numbers are those of the list of hostile peers in the notes on prior
 * art.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>

#include "uldma_hostile_link.h"

/* Delay of a busy victim beyond its limits, in ns. */
#define SLACK 10000000000ULL

/* Sessions in which a lie is tried, so that each mode ends. */
#define ROUNDS 40

/* 87: the words of a handshake beside its session. */
static int lie_in_handshake(struct hostile *h, unsigned int at, uint64_t value)
{
	uint32_t session = (hostile_random() & 0x7fffffff) | 1;
	int refused = 1;

	hostile_handshake(h, 0, 0);
	hostile_write(h, at, value);
	hostile_write(h, SESSION, session);
	hostile_ring(h);
	while (refused && hostile_goes_on(h)) {
		refused = hostile_read(h, ECHO) != session;
		hostile_pause(h);
	}
	printf("%#llx at %#x: %s\n", (unsigned long long)value, at,
	       refused ? "refused" : "met");
	hostile_handshake(h, 0, 0);
	return !refused;
}

static int bad_magic(struct hostile *h)
{
	return lie_in_handshake(h, MAGIC, LINK_MAGIC ^ 1);
}

static int bad_version(struct hostile *h)
{
	return lie_in_handshake(h, VERSIONS, 7ULL << 32 | 9);
}

static int bad_size(struct hostile *h)
{
	return lie_in_handshake(h, SECTION, ~0ULL);
}

static int bad_nodes(struct hostile *h)
{
	return lie_in_handshake(h, SHAPE, (uint64_t)~0U << 32 | LINK_SLOTS);
}

/* 86: of a peer that is in another session with this one, which may be a session of the past. */
static int echo_of_others(struct hostile *h)
{
	return lie_in_handshake(h, ECHO, (hostile_random() & 0x7fffffff) | 1);
}

static int zero_slots(struct hostile *h)
{
	return lie_in_handshake(h, SHAPE, (uint64_t)h->nodes << 32);
}

static int huge_slots(struct hostile *h)
{
	return lie_in_handshake(h, SHAPE, (uint64_t)h->nodes << 32 | UINT32_MAX);
}

/* 88: what a node reads when the other has left the bus. */
static int ones(struct hostile *h)
{
	int ret = hostile_meet(h);

	if (ret)
		return ret;
	for (unsigned int at = 0; at < AREA_BYTES; at += 8)
		hostile_write(h, at, ~0ULL);
	hostile_ring(h);
	while (hostile_goes_on(h) && hostile_is_up(h))
		hostile_pause(h);
	printf("the link is %s\n", hostile_is_up(h) ? "up" : "down");
	return hostile_is_up(h);
}

/* What lies in a session end. */
enum ends { NONE_ENDS, SOME_END, ALL_END };

/* A busy victim ends a session late. */
static bool may_take_longer(const struct hostile *h, enum ends ends)
{
	return ends == ALL_END && hostile_goes_on(h);
}

/* Tells a lie in a new session, and asks something, so that the victim reads it. */
static int lie_in_session(struct hostile *h, void (*lie)(struct hostile *h), enum ends ends)
{
	int ended = 0, rounds = 0;
	uint32_t session;
	struct message m;
	int ret;

	for (; rounds < ROUNDS && hostile_goes_on(h); rounds++) {
		ret = hostile_remeet(h);
		if (ret)
			return ret;
		session = h->session;
		for (int i = 0; hostile_is_up(h) && (i < 20 || may_take_longer(h, ends)); i++) {
			m = message(LOOKUP_REGION, i, 1, 0, 0, 0);
			hostile_place(h, &m);
			lie(h);
			hostile_ring(h);
			hostile_pause(h);
		}
		if (!hostile_is_up(h) || session != h->session)
			ended++;
		else if (!hostile_goes_on(h))
			break;
	}
	printf("%d sessions, %d of which the victim has ended\n", rounds, ended);
	return (ends == NONE_ENDS && ended) || (ends == ALL_END && ended != rounds);
}

static void write_head(struct hostile *h, uint32_t index, uint64_t length)
{
	hostile_write(h, hostile_head(h, h->produced), head(index, length));
}

/* Another length than that of the message, up to more bytes than the ring has. */
static void tell_length(struct hostile *h)
{
	static const uint32_t lengths[] = {
		0, INLINE - 8, INLINE + 1, INLINE + 8, INLINE + 129, 8192 + INLINE + 1, UINT32_MAX,
	};

	write_head(h, h->produced, lengths[hostile_random() % ARRAY_SIZE(lengths)]);
}

/* A message that was valid a lap, or a few messages, before. */
static void tell_old_head(struct hostile *h)
{
	uint32_t before = hostile_random() & 1 ? LINK_SLOTS : 1 + hostile_random() % 8;

	write_head(h, h->produced - before, INLINE);
}

/* One that will be valid later. */
static void tell_later_head(struct hostile *h)
{
	write_head(h, h->produced + 1 + (uint32_t)hostile_random() % (UINT32_MAX / 2), INLINE);
}

static void tell_taken(struct hostile *h)
{
	hostile_write(h, TAKEN, hostile_random() & ~0xffffffULL);
}

static void tell_flags(struct hostile *h)
{
	hostile_write(h, hostile_random() & 1 ? OUT : TAKEN, 1ULL << hostile_random() % 24);
}

/* 82 */
static int length_huge(struct hostile *h)
{
	return lie_in_session(h, tell_length, ALL_END);
}

/* 86 */
static int head_old(struct hostile *h)
{
	return lie_in_session(h, tell_old_head, NONE_ENDS);
}

/* 86 */
static int head_later(struct hostile *h)
{
	return lie_in_session(h, tell_later_head, NONE_ENDS);
}

/* 82 */
static int taken_random(struct hostile *h)
{
	return lie_in_session(h, tell_taken, SOME_END);
}

/* 82 */
static int flags_random(struct hostile *h)
{
	return lie_in_session(h, tell_flags, SOME_END);
}

static volatile bool spinning;

/* Bits of the next message, and of the words in front of the ring. */
static void *spin(void *arg)
{
	struct hostile *h = arg;
	uint64_t at, bits;

	while (spinning) {
		bits = hostile_random();
		at = HEADS + 8 * (bits % (LINE / 8 * LINK_SLOTS * (1 + DATA_LINES)));
		/* One in sixty is not about messages. */
		if (!(bits >> 32 & 63))
			at = 8 * (bits >> 40 & 63);
		*hostile_section(h, h->victim, h->outbound + at) ^= 1ULL << (bits >> 58);
	}
	return NULL;
}

/* 83: what was checked is not what is there when it is used. */
static int spinning_writer(struct hostile *h)
{
	pthread_t thread;
	int sessions = 0;
	int ret = 0;

	while (!ret && hostile_goes_on(h)) {
		ret = hostile_remeet(h);
		sessions++;
		spinning = true;
		if (ret || pthread_create(&thread, NULL, spin, h))
			return ret ?: -EAGAIN;
		for (int i = 0; i < 100 && hostile_is_up(h); i++) {
			struct message m = i % 2 ? message(LOOKUP_REGION, i, 1, 0, 0, 0) :
						   message(CONNECT, i, 1, 1, 0, 0);

			/* Its private data is in data lines. */
			m.words[0] |= i % 2 ? 0 : 128 << PRIVATE_BYTES_SHIFT;
			hostile_place(h, &m);
			hostile_ring(h);
			hostile_pause(h);
		}
		spinning = false;
		pthread_join(thread, NULL);
	}
	printf("%d sessions\n", sessions);
	return ret;
}

/* 98: any word of the own lane, at any time. */
static int scribble(struct hostile *h)
{
	unsigned long stores = 0;
	int ret = hostile_meet(h);

	while (!ret && hostile_goes_on(h)) {
		for (int i = 0; i < 10000; i++, stores++)
			*hostile_section(h, h->victim,
					 h->outbound + (hostile_random() % h->lane & ~7ULL)) =
				hostile_random();
		hostile_ring(h);
		ret = hostile_remeet(h);
	}
	printf("%lu stores\n", stores);
	return ret;
}

/* 90: there, but not alive. */
static int hang(struct hostile *h)
{
	uint64_t began, limit = h->link_timeout + SLACK;
	uint32_t theirs;
	int ret;

	ret = hostile_meet(h);
	if (ret)
		return ret;
	/* Every connection shall be reset. */
	ret = hostile_connect(h, h->port, &theirs);
	printf("connected: %d\n", ret);
	began = hostile_now();
	while (hostile_is_up(h) && hostile_now() - began < limit)
		poll(NULL, 0, 10);
	printf("the link was %s after %llu ms\n",
	       hostile_is_up(h) ? "still up" : "down",
	       (unsigned long long)(hostile_now() - began) / 1000000);
	return hostile_is_up(h);
}

/* The victim's answers are never taken; it has to go on with others. */
static int no_consume(struct hostile *h)
{
	uint64_t beat, beats = 0;
	uint32_t asked = 0;
	int ret;

	ret = hostile_meet(h);
	beat = hostile_read(h, BEAT);
	while (!ret && hostile_goes_on(h)) {
		if (hostile_in_flight(h) < LINK_SLOTS / 2)
			ret = hostile_say(h, LOOKUP_REGION, asked++, 1, 0, 0, 0);
		if (hostile_read(h, BEAT) != beat)
			beats++;
		beat = hostile_read(h, BEAT);
		hostile_pause(h);
		if (!hostile_is_up(h))
			ret = hostile_meet(h);
	}
	printf("%u questions, %llu beats of the victim\n", asked,
	       (unsigned long long)beats);
	return ret ?: !beats;
}

/* 91, 92: as fast as it can, without messages. */
static int doorbell_storm(struct hostile *h)
{
	unsigned long rings = 0;
	int ret = hostile_meet(h);

	while (!ret && hostile_goes_on(h)) {
		for (int i = 0; i < 1000; i++, rings++)
			hostile_ring(h);
		hostile_write(h, BEAT, ++h->beat);
	}
	printf("%lu rings; the link is %s\n", rings,
	       hostile_is_up(h) ? "up" : "down");
	return ret ?: !hostile_is_up(h);
}

/* 91: all bits of segments, as fast as it can; the link goes on. */
static int segment_storm(struct hostile *h)
{
	unsigned long rings = 0;
	struct message m;
	int ret = hostile_meet(h);

	h->doorbell_value |= h->carried ? 0 : ~0U;
	while (!ret && hostile_goes_on(h)) {
		for (int i = 0; i < 1000; i++, rings++)
			hostile_ring(h);
		hostile_write(h, BEAT, ++h->beat);
		ret = hostile_say(h, LOOKUP_REGION, rings, 1, 0, 0, 0) ?:
		      hostile_await(h, REFUSED, rings, &m);
	}
	h->doorbell_value &= h->carried ? ~0U : 1;
	printf("%lu rings; the link is %s\n", rings,
	       hostile_is_up(h) ? "up" : "down");
	return ret ?: !hostile_is_up(h);
}

/* 91: vectors of ivshmem, or bits of the adapter, at random; the link goes on. */
static int vector_storm(struct hostile *h)
{
	uint32_t honest = h->doorbell_value;
	unsigned long rings = 0;
	struct message m;
	int ret = hostile_meet(h);

	while (!ret && hostile_goes_on(h)) {
		for (int i = 0; i < 1000; i++, rings++) {
			uint32_t random = hostile_random() >> 32;

			if (h->carried)
				/* Most often one that is there. */
				random = random & 1 ? honest | 1 :
					 random & 2 ? honest | (random >> 16) :
						      random;
			h->doorbell_value = random;
			hostile_ring(h);
		}
		h->doorbell_value = honest;
		hostile_write(h, BEAT, ++h->beat);
		ret = hostile_say(h, LOOKUP_REGION, rings, 1, 0, 0, 0) ?:
		      hostile_await(h, REFUSED, rings, &m);
	}
	printf("%lu rings; the link is %s\n", rings,
	       hostile_is_up(h) ? "up" : "down");
	return ret ?: !hostile_is_up(h);
}

/* 93: messages without a doorbell are found all the same, ten times a second. */
static int no_doorbell(struct hostile *h)
{
	uint64_t began, longest = 0;
	struct message m;
	int ret = hostile_meet(h);

	for (uint32_t i = 0; i < 20 && !ret && hostile_goes_on(h); i++) {
		m = message(LOOKUP_REGION, i, 1, 0, 0, 0);
		hostile_place(h, &m);
		began = hostile_now();
		ret = hostile_await(h, REFUSED, i, &m);
		if (hostile_now() - began > longest)
			longest = hostile_now() - began;
	}
	printf("the longest wait was %llu ms\n",
	       (unsigned long long)longest / 1000000);
	return ret;
}

/* 89: a new session every 10 ms. */
static int session_churn(struct hostile *h)
{
	int sessions = 0;

	while (hostile_goes_on(h)) {
		h->session = (hostile_random() & 0x7fffffff) | 1;
		hostile_handshake(h, h->session, hostile_read(h, SESSION));
		hostile_ring(h);
		sessions++;
		for (int i = 0; i < 10; i++)
			hostile_pause(h);
	}
	printf("%d sessions\n", sessions);
	return 0;
}

/*
 * 89: ends each session as soon as it is up. The first end costs nothing, each
 * further one twice the time of the last, from 100 ms up to the victim's limit.
 */
static int session_flap(struct hostile *h)
{
	uint64_t began = hostile_now(), took, least = 0, penalty = 100000000;
	int sessions = 0, ret = 0;

	for (; !ret && hostile_goes_on(h); sessions++) {
		ret = hostile_meet(h);
		if (sessions < 2)
			continue;
		least += penalty;
		penalty *= 2;
		if (penalty > h->link_backoff)
			penalty = h->link_backoff;
	}
	took = hostile_now() - began;
	printf("%d sessions in %llu ms, which have to take %llu ms\n", sessions,
	       (unsigned long long)took / 1000000,
	       (unsigned long long)least / 1000000);
	return ret ?: took < least;
}

const struct mode ring_modes[] = {
	{ "bad-magic", "87: a handshake of something else", bad_magic },
	{ "bad-version", "87: a handshake of the future", bad_version },
	{ "bad-size", "87: a handshake with a section of 2^64 bytes", bad_size },
	{ "bad-nodes", "87: a handshake of 2^32 nodes", bad_nodes },
	{ "echo-of-others", "86: a handshake with an echo of another session", echo_of_others },
	{ "zero-slots", "87: a handshake without a ring", zero_slots },
	{ "huge-slots", "87: a handshake with a ring of 2^32 slots", huge_slots },
	{ "ones", "88: all words ones", ones },
	{ "length-huge", "82: records of other lengths than their messages", length_huge },
	{ "head-old", "86: messages once more", head_old },
	{ "head-later", "86: messages before their time", head_later },
	{ "taken-random", "82: took what was never put", taken_random },
	{ "flags-random", "82: flags that do not exist", flags_random },
	{ "spinning-writer", "83: words change while they are read", spinning_writer },
	{ "scribble", "98: stores everywhere", scribble },
	{ "hang", "90: the beat stops", hang },
	{ "no-consume", "97: takes no message", no_consume },
	{ "doorbell-storm", "91, 92: rings for nothing", doorbell_storm },
	{ "segment-storm", "91: rings for all segments", segment_storm },
	{ "vector-storm", "91: rings vectors and bits at random", vector_storm },
	{ "no-doorbell", "93: never rings", no_doorbell },
	{ "session-churn", "89: a new session every 10 ms", session_churn },
	{ "session-flap", "89: each session ends at once", session_flap },
	{ }
};
