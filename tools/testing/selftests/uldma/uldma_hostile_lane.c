// SPDX-License-Identifier: GPL-2.0
/*
 * What the other nodes write for each other: a third node reads it, and writes over it.
 */
#include <stdio.h>

#include "uldma_hostile_link.h"

/* What a load returns where the device serves none. */
#define ONES (~0ULL)
/* Nothing that a node of the link would write. */
#define FORGED 0x5a5a5a5a5a5a5a5aULL
#define PAGE 4096

/* Calls visit for words of a lane: those of the control channel, and one of each page. */
static unsigned long of_lane(const struct hostile *h, uint32_t owner, uint32_t writer,
			     bool (*visit)(volatile uint64_t *word))
{
	uint64_t lane = hostile_lane(h, owner, writer);
	unsigned long count = 0;

	for (uint64_t at = 0; at < h->lane; at += at < AREA_BYTES ? 8 : PAGE)
		count += visit(hostile_section(h, owner, lane + at));
	return count;
}

/* The same for all lanes of which this node is neither owner nor writer. */
static unsigned long of_others(const struct hostile *h, bool (*visit)(volatile uint64_t *word))
{
	unsigned long count = 0;

	for (uint32_t owner = 0; owner < h->nodes; owner++)
		for (uint32_t writer = 0; writer < h->nodes; writer++)
			if (owner != writer && owner != h->node && writer != h->node)
				count += of_lane(h, owner, writer, visit);
	return count;
}

static bool is_read(volatile uint64_t *word)
{
	return *word != ONES;
}

static bool forge(volatile uint64_t *word)
{
	*word = FORGED;
	return *word == FORGED;
}

/* Ends well if nothing was read. Where something was, nothing is written: the others would end. */
static int trespass(struct hostile *h)
{
	unsigned long read, forged = 0;

	do {
		read = of_others(h, is_read);
		if (!read)
			forged = of_others(h, forge);
	} while (!read && !forged && hostile_goes_on(h));
	printf("%lu words of others were read, %lu written\n", read, forged);
	return read || forged;
}

const struct mode lane_modes[] = {
	{ "trespass", "N2: what two nodes write for each other, by a third one", trespass },
	{ }
};
