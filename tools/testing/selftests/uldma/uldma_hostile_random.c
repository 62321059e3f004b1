// SPDX-License-Identifier: GPL-2.0
/*
 * A peer that writes whatever it likes wherever it can: words of its area, of its
 * ring, of the rest of the victim's section, and messages that are nearly right. The
 * seed is printed, and option -s gives it.
 */
#include <errno.h>
#include <stdio.h>

#include "uldma_hostile_link.h"

static const uint64_t edges[] = {
	0, 1, 2, 63, 64, 65, 4095, 4096, 8192, 65535, 65536, 0x7fffffff, 0xffffffff,
	1ULL << 32, 1ULL << 63, ~0ULL - 4095, ~0ULL - 1, ~0ULL,
};

static uint64_t draw(struct hostile *h)
{
	uint64_t x = h->seed += 0x9e3779b97f4a7c15ULL;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

static uint64_t below(struct hostile *h, uint64_t limit)
{
	return draw(h) % limit;
}

/* A number, most often one that means something to the victim. */
static uint64_t word(struct hostile *h)
{
	uint64_t edge = edges[below(h, ARRAY_SIZE(edges))];

	switch (below(h, 6)) {
	case 0:
		return draw(h);
	case 1:
		return head(h->produced + edge, below(h, 4) ? INLINE : below(h, 1024));
	case 2:
		return (uint64_t)(h->consumed + edge) << 48 | below(h, 8);
	case 3:
		return draw(h) << 32 | edge;
	default:
		return edge;
	}
}

static struct message nearly_right(struct hostile *h)
{
	uint32_t number = below(h, 4) ? below(h, 20) : draw(h);
	struct message m = message(1 + below(h, STREAM), number, word(h), word(h), 0, 0);

	if (below(h, 2))
		m.words[3] = word(h);
	if (below(h, 2))
		m.words[4] = word(h);
	/* Of any length, or one that may be true. */
	m.words[TURNAROUND] = below(h, 2) ? word(h) : below(h, 1000000);
	if (!below(h, 8))
		m.words[below(h, ARRAY_SIZE(m.words))] = word(h);
	return m;
}

/* A word of the area, where it matters, or of one of the messages in it. */
static void write_area(struct hostile *h)
{
	static const unsigned int places[] = {
		MAGIC, VERSIONS, FEATURES, SECTION, SHAPE, SESSION, ECHO, BEAT, TAKEN, OUT,
	};
	unsigned int at = places[below(h, ARRAY_SIZE(places))];

	if (below(h, 2))
		at = below(h, 4) ? HEADS + below(h, LINK_SLOTS * LINE / 8) * 8 :
				   below(h, AREA_BYTES / 8) * 8;
	hostile_write(h, at, word(h));
}

/* A word of what the victim has given to segments and connections. */
static void write_section(struct hostile *h)
{
	uint64_t rest = h->lane - AREA_BYTES;
	uint64_t at = h->outbound + AREA_BYTES + below(h, below(h, 2) ? rest / 8 : 4096) * 8;

	*hostile_section(h, h->victim, at) = word(h);
}

/* Goes on in a session until the victim has had enough of it, again and again. */
static int run_random(struct hostile *h, unsigned int messages, unsigned int areas,
		      unsigned int sections)
{
	unsigned int total = messages + areas + sections, what;
	unsigned long sessions = 0, writes = 0;
	struct message m;
	uint32_t theirs, port;

	printf("seed %llu\n", (unsigned long long)h->seed);
	while (hostile_goes_on(h)) {
		/* If a program asks for streams, every other session has them. */
		if (!hostile_is_up(h))
			h->features = h->stream_port ? below(h, 2) * FEATURE_STREAMS : 0;
		if (hostile_remeet(h))
			return -ETIMEDOUT;
		sessions++;
		/* Something to talk about. */
		if (below(h, 2)) {
			port = h->stream_port && below(h, 2) ? h->stream_port :
							       h->port;
			hostile_connect(h, port, &theirs);
		}
		for (int i = below(h, 200); i && hostile_goes_on(h); i--, writes++) {
			what = below(h, total);
			if (what < messages) {
				m = nearly_right(h);
				if (hostile_put(h, &m))
					break;
			} else if (what < messages + areas) {
				write_area(h);
			} else {
				write_section(h);
			}
			if (!below(h, 4))
				hostile_ring(h);
			while (below(h, 2) && hostile_take(h, &m))
				;
		}
		hostile_ring(h);
		hostile_pause(h);
	}
	printf("%lu sessions, %lu words and messages\n", sessions, writes);
	return 0;
}

static int random_messages(struct hostile *h)
{
	return run_random(h, 20, 0, 1);
}

static int random_area(struct hostile *h)
{
	return run_random(h, 1, 10, 0);
}

static int random_window(struct hostile *h)
{
	return run_random(h, 8, 1, 8);
}

const struct mode random_modes[] = {
	{ "random-messages", "messages that are nearly right", random_messages },
	{ "random-area", "words of the area and the ring at random", random_area },
	{ "random-window", "words of the whole section at random", random_window },
	{ }
};
