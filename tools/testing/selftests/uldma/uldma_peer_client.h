/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The half of uldma_peer that sends commands. A program includes this once,
 * after the harness.
 */
#ifndef __SELFTEST_ULDMA_PEER_CLIENT_H
#define __SELFTEST_ULDMA_PEER_CLIENT_H

#include "uldma_peer.h"

#define NAME 0x70656572ULL

/**
 * struct peer - the other half, as this one sees it
 * @fd: the file for commands alone, so that its events are of no other use
 * @control: where commands go
 * @result: where results come
 * @sequence: of the last command; no other process uses the same
 */
struct peer {
	int fd;
	struct segment control;
	struct segment result;
	__u64 sequence;
};

#define peer_call(_peer, ...) \
	_peer_call(_peer, &(struct peer_command){ __VA_ARGS__ })

/* Has a command executed; -ETIMEDOUT if no answer comes. */
static inline __s64 _peer_call(struct peer *peer, const struct peer_command *command)
{
	struct peer_command *to = (struct peer_command *)peer->control.map;
	struct peer_result *from = (struct peer_result *)peer->result.map;
	struct uldma_event event;
	int ret = 0;

	WRITE_ONCE(to->verb, command->verb);
	for (int i = 0; i < ARRAY_SIZE(command->args); i++)
		WRITE_ONCE(to->args[i], command->args[i]);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	WRITE_ONCE(to->sequence, ++peer->sequence);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	ret = doorbell(peer->fd, peer->control.handle);
	while (!ret && __atomic_load_n(&from->sequence, __ATOMIC_ACQUIRE) !=
			       peer->sequence)
		ret = event_wait(peer->fd, ULDMA_EVENT_DOORBELL, 2 * SOON,
				 &event);
	return ret ?: READ_ONCE(from->value);
}

static inline int peer_connect(struct peer *peer)
{
	__u64 name = (__u64)getpid() << 32 | NAME;
	int ret;

	peer->fd = uldma_open(O_NONBLOCK);
	if (peer->fd < 0)
		return peer->fd;
	peer->sequence = (__u64)getpid() << 32;
	ret = segment_create(peer->fd, name, page_size(), &peer->result) ?:
	      segment_map(peer->fd, &peer->result) ?:
	      segment_attach(peer->fd, PEER_CONTROL, &peer->control) ?:
	      segment_map(peer->fd, &peer->control);
	return ret ?: peer_call(peer, PEER_HELLO, { name });
}

/* Ends the serving side, unless the link to it is down. */
static inline void peer_quit(void)
{
	struct peer peer = { };
	int ret = peer_connect(&peer) ?: peer_call(&peer, PEER_QUIT);

	if (ret)
		fprintf(stderr, "# cannot end the serving side: %s\n", strerror(-ret));
}

#endif /* __SELFTEST_ULDMA_PEER_CLIENT_H */
