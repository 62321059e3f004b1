/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Streams whose bytes differ from each other: one side of a connection posts its
 * buffers in a ring, reaps them, and checks each byte.
 */
#ifndef __SELFTEST_ULDMA_CONN_STREAM_H
#define __SELFTEST_ULDMA_CONN_STREAM_H

#include <endian.h>
#include <pthread.h>

#include "uldma_conn.h"

/* Value of the bytes between buffers. */
#define STREAM_GUARD 0xa5

/* The next bytes of a stream, up to eight of them, and how many. */
static inline size_t stream_next(__u64 seed, __u64 place, size_t limit,
				 __u64 *word)
{
	size_t length = 8 - place % 8;

	*word = htole64(pattern_at(seed, place / 8) >> (place % 8 * 8));
	return length < limit ? length : limit;
}

static inline void stream_fill(void *buf, size_t length, __u64 seed,
			       __u64 place)
{
	size_t at, n;
	__u64 word;

	for (at = 0; at < length; at += n) {
		n = stream_next(seed, place + at, length - at, &word);
		memcpy((char *)buf + at, &word, n);
	}
}

/* Offset of the first byte that is not of the stream, or -1. */
static inline long stream_check(const void *buf, size_t length, __u64 seed,
				__u64 place)
{
	const char *p = buf;
	size_t at, n;
	__u64 word;

	for (at = 0; at < length; at += n) {
		n = stream_next(seed, place + at, length - at, &word);
		if (!memcmp(p + at, &word, n))
			continue;
		for (n = 0; p[at + n] == ((char *)&word)[n]; n++)
			;
		return at + n;
	}
	return -1;
}

/**
 * struct stream - one direction of a connection, seen from one of its sides
 * @fd: the open file
 * @cmd: ULDMA_IOC_CONN_PREPOST or ULDMA_IOC_CONN_SEND
 * @seed: which bytes
 * @total: how many
 * @chunk: bytes of a buffer; the last one may have fewer
 * @lead: bytes in front of each, which must not change
 * @slots: buffers of the ring
 * @memory: the ring
 * @given: bytes that the connection was given
 * @got: bytes that it has given back
 * @wrong: where the first byte is that is not of the stream, or -1
 * @thread: the thread that runs it
 * @result: how it ended
 */
struct stream {
	int fd;
	unsigned long cmd;
	__u64 seed;
	__u64 total;
	size_t chunk;
	size_t lead;
	unsigned int slots;
	char *memory;
	__u64 given;
	__u64 got;
	long long wrong;
	pthread_t thread;
	int result;
};

static inline size_t stream_size(const struct stream *s)
{
	return s->slots * (s->chunk + s->lead) + s->lead;
}

/* Makes the ring, as much of it as the stream can use. */
static inline int stream_start(struct stream *s)
{
	if (!s->slots)
		s->slots = 8;
	s->wrong = -1;
	s->memory = buffer(stream_size(s));
	if (!s->memory)
		return -ENOMEM;
	memset(s->memory, STREAM_GUARD, stream_size(s));
	return 0;
}

static inline void stream_end(struct stream *s)
{
	munmap(s->memory, stream_size(s));
	s->memory = NULL;
}

/* Where a byte of the stream is while it is in the ring. */
static inline char *stream_at(const struct stream *s, __u64 place)
{
	size_t slot = place / s->chunk % s->slots;

	return s->memory + slot * (s->chunk + s->lead) + s->lead +
	       place % s->chunk;
}

static inline __u64 stream_left(const struct stream *s, __u64 place)
{
	__u64 left = s->chunk - place % s->chunk;

	return left < s->total - place ? left : s->total - place;
}

/* Gives all buffers that are free: 0, or what refused one. */
static inline int stream_give(struct stream *s)
{
	__u64 length;
	int ret;

	while (s->given < s->total &&
	       s->given / s->chunk < s->got / s->chunk + s->slots) {
		length = stream_left(s, s->given);
		if (s->cmd == ULDMA_IOC_CONN_SEND)
			stream_fill(stream_at(s, s->given), length, s->seed,
				    s->given);
		ret = conn_give(s->fd, s->cmd, stream_at(s, s->given), length);
		if (ret)
			return ret;
		s->given += length;
	}
	return 0;
}

/*
 * Takes back what there is: 0, -EPIPE at the end of the stream, -EPROTO for
 * memory that is not the next, -EILSEQ for wrong bytes.
 */
static inline int stream_take(struct stream *s)
{
	bool receives = s->cmd == ULDMA_IOC_CONN_PREPOST;
	struct range range;
	__u64 length;
	long wrong;
	int ret;

	ret = conn_take(s->fd,
			receives ? ULDMA_IOC_CONN_RECV : ULDMA_IOC_CONN_RECYCLE,
			s->total, &range);
	if (ret)
		return ret;
	if (!range.length)
		return -EPIPE;
	while (range.length) {
		if (s->got >= s->given || range.addr != stream_at(s, s->got))
			return -EPROTO;
		length = stream_left(s, s->got);
		if (length > range.length)
			length = range.length;
		wrong = receives ? stream_check(range.addr, length, s->seed,
						s->got) : -1;
		if (wrong >= 0) {
			s->wrong = s->got + wrong;
			return -EILSEQ;
		}
		s->got += length;
		range.addr += length;
		range.length -= length;
	}
	return 0;
}

/* Moves all of it: 0, or the first trouble. */
static inline int stream_run(struct stream *s)
{
	int ret = 0;

	while (!ret && s->got < s->total)
		ret = stream_give(s) ?: stream_take(s);
	return ret;
}

/* Returns true if the bytes between the buffers have not changed. */
static inline bool stream_is_tidy(const struct stream *s)
{
	size_t stride = s->chunk + s->lead;

	for (unsigned int slot = 0; slot <= s->slots; slot++)
		for (size_t at = 0; at < s->lead; at++)
			if ((unsigned char)s->memory[slot * stride + at] !=
			    STREAM_GUARD)
				return false;
	return true;
}

static inline void *stream_main(void *arg)
{
	struct stream *s = arg;

	s->result = stream_run(s);
	/* Wakes the peer that waits for this stream. */
	if (s->result)
		conn_disconnect(s->fd);
	return NULL;
}

/* Returns the first error of a stream, unless another stream has caused it. */
static inline int streams_trouble(const struct stream *streams, int count)
{
	int ret = 0;

	for (int i = 0; i < count; i++)
		if (!ret || ret == -EPIPE || ret == -ENOTCONN)
			ret = streams[i].result ?: ret;
	return ret;
}

/* Runs some streams at once, to their end: 0, or the trouble that one had. */
static inline int streams_run(struct stream *streams, int count)
{
	int ret = 0;
	int i;

	for (i = 0; i < count && !ret; i++)
		ret = stream_start(&streams[i]);
	for (i = 0; i < count && !ret; i++)
		ret = -pthread_create(&streams[i].thread, NULL, stream_main,
				      &streams[i]);
	if (ret)
		return ret;
	for (i = 0; i < count; i++)
		pthread_join(streams[i].thread, NULL);
	ret = streams_trouble(streams, count);
	for (i = 0; i < count && !ret; i++)
		if (!stream_is_tidy(&streams[i]))
			ret = -EILSEQ;
	for (i = 0; i < count; i++)
		stream_end(&streams[i]);
	return ret;
}

#endif /* __SELFTEST_ULDMA_CONN_STREAM_H */
