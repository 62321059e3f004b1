// SPDX-License-Identifier: GPL-2.0
/*
 * A hostile peer: drives the adapter, or ivshmem, of this node from user space,
 * and misbehaves in one way. No driver may be bound.
 *
 *	uldma_hostile --list
 *	uldma_hostile [-t SECONDS] [-l MS] [-P MS] [-p PORT] [-m PORT] [-n NODES] [-v VICTIM]
 *		[-s SEED] [-i] MODE
 *
 * Exits with 0 if the victim did what it should, as far as that can be seen from
 * here: at the end an honest node has to be met and answered again. What becomes
 * of the victim's programs is for these to say. With -i, the device is that of
 * ivshmem, else the first that is found. The times are the victim's
 * link_timeout_ms and link_backoff_ms, PORT is one that a program of it listens at;
 * uldma_conn_peer does at 7000. At the port of -m another program asks for matched
 * streams.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "uldma_hostile_link.h"

#define SKIPPED 4

static const struct mode *const all_modes[] = {
	ring_modes,
	message_modes,
	random_modes,
	end_modes,
	stream_modes,
	network_modes,
	lane_modes,
};

static void list(void)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(all_modes); i++)
		for (const struct mode *m = all_modes[i]; m->name; m++)
			printf("%s\n", m->name);
}

static const struct mode *find(const char *name)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(all_modes); i++)
		for (const struct mode *m = all_modes[i]; m->name; m++)
			if (!strcmp(m->name, name))
				return m;
	return NULL;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "list", no_argument, NULL, 'L' },
		{ "time", required_argument, NULL, 't' },
		{ "link-timeout", required_argument, NULL, 'l' },
		{ "link-penalty", required_argument, NULL, 'P' },
		{ "port", required_argument, NULL, 'p' },
		{ "stream-port", required_argument, NULL, 'm' },
		{ "nodes", required_argument, NULL, 'n' },
		{ "victim", required_argument, NULL, 'v' },
		{ "seed", required_argument, NULL, 's' },
		{ "ivshmem", no_argument, NULL, 'i' },
		{ }
	};
	struct hostile h = {
		.port = 7000,
		.link_timeout = 3000000000ULL,
		.link_backoff = 4000000000ULL,
		.seed = hostile_random(),
	};
	unsigned long seconds = 3;
	const struct mode *mode;
	uint32_t nodes = 2;
	bool ivshmem = false;
	int victim = -1;
	int option, ret;

	while ((option = getopt_long(argc, argv, "t:l:P:p:m:n:v:s:i", options,
				     NULL)) != -1) {
		switch (option) {
		case 'L':
			list();
			return 0;
		case 'l':
			h.link_timeout = strtoul(optarg, NULL, 10) * 1000000ULL;
			break;
		case 'P':
			h.link_backoff = strtoul(optarg, NULL, 10) * 1000000ULL;
			break;
		case 't':
			seconds = strtoul(optarg, NULL, 10);
			break;
		case 'p':
			h.port = strtoul(optarg, NULL, 10);
			break;
		case 'm':
			h.stream_port = strtoul(optarg, NULL, 10);
			break;
		case 'n':
			nodes = strtoul(optarg, NULL, 10);
			break;
		case 'v':
			victim = strtol(optarg, NULL, 10);
			break;
		case 's':
			h.seed = strtoull(optarg, NULL, 10);
			break;
		case 'i':
			ivshmem = true;
			break;
		default:
			return 2;
		}
	}
	mode = optind + 1 == argc ? find(argv[optind]) : NULL;
	if (!mode || nodes < 2) {
		fprintf(stderr, "usage: %s --list | [option]... mode\n",
			argv[0]);
		return 2;
	}
	setlinebuf(stdout);
	ret = hostile_open(&h, nodes, victim, ivshmem);
	if (ret) {
		fprintf(stderr, "no device in our hands: %s\n", strerror(-ret));
		return ret == -ENODEV ? SKIPPED : 1;
	}
	h.until = hostile_now() + seconds * 1000000000ULL;
	printf("%s: %s\n", mode->name, mode->what);
	ret = mode->run(&h);
	if (ret < 0)
		printf("%s: %s\n", mode->name, strerror(-ret));
	if (!hostile_victim_is_well(&h)) {
		printf("the victim does not answer any more\n");
		ret = 1;
	}
	/* This node has no session any more. */
	hostile_handshake(&h, 0, 0);
	hostile_ring(&h);
	printf("%s: %s\n", mode->name, ret ? "not as it should be" : "done");
	return !!ret;
}
