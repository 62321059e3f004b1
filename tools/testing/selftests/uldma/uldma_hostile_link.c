// SPDX-License-Identifier: GPL-2.0
/*
 * The link as a hostile node has it: the device, without a driver, and the
 * protocol, honestly spoken.
 */
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "uldma_hostile_link.h"

#define DEVICES "/sys/bus/pci/devices"
#define SECOND 1000000000ULL
/* Time limit for each action of the victim. */
#define PATIENCE (10 * SECOND)

/* The uldma adapter: offsets in BAR0. */
#define ADAPTER_ID 0x00f71b36
#define ADAPTER_NODE 0x00c
#define ADAPTER_CONTROL 0x018
#define ADAPTER_STATUS 0x01c
#define ADAPTER_NODES 0x020
#define ADAPTER_LINKS 0x030
#define ADAPTER_WINDOW_SIZE 0x0c0
#define ADAPTER_PEER_DOORBELL 0x180
#define ADAPTER_ENABLE 1
#define ADAPTER_READY 1

/* ivshmem-doorbell of QEMU. */
#define IVSHMEM_ID 0x11101af4
#define IVSHMEM_POSITION 8
#define IVSHMEM_DOORBELL 12

uint64_t hostile_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * SECOND + now.tv_nsec;
}

uint64_t hostile_random(void)
{
	static uint64_t x;

	if (!x)
		x = hostile_now() | 1;
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return x * 0x2545f4914f6cdd1dULL;
}

static long sysfs_number(const char *device, const char *file)
{
	char path[512], text[32] = { };
	int fd;

	snprintf(path, sizeof(path), DEVICES "/%s/%s", device, file);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		return -errno;
	if (read(fd, text, sizeof(text) - 1) <= 0)
		text[0] = '\0';
	close(fd);
	return strtol(text, NULL, 0);
}

static volatile uint8_t *map_bar(const char *device, const char *bar,
				 uint64_t *size)
{
	char path[512];
	struct stat st;
	void *p;
	int fd;

	snprintf(path, sizeof(path), DEVICES "/%s/%s", device, bar);
	fd = open(path, O_RDWR | O_SYNC);
	if (fd < 0 || fstat(fd, &st))
		return NULL;
	p = mmap(NULL, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	*size = st.st_size;
	return p == MAP_FAILED ? NULL : p;
}

static uint32_t read_register(const struct hostile *h, size_t at)
{
	return *(volatile uint32_t *)(h->registers + at);
}

static void write_register(struct hostile *h, size_t at, uint32_t value)
{
	*(volatile uint32_t *)(h->registers + at) = value;
}

static int open_adapter(struct hostile *h, const char *device)
{
	uint64_t size, limit = hostile_now() + PATIENCE;

	h->registers = map_bar(device, "resource0", &size);
	h->window = map_bar(device, "resource4", &size);
	if (!h->registers || !h->window)
		return -EIO;
	while (!(read_register(h, ADAPTER_STATUS) & ADAPTER_READY))
		if (hostile_now() > limit)
			return -ETIMEDOUT;
	write_register(h, ADAPTER_CONTROL, ADAPTER_ENABLE);
	h->node = read_register(h, ADAPTER_NODE);
	h->nodes = read_register(h, ADAPTER_NODES);
	h->section = *(volatile uint64_t *)(h->registers + ADAPTER_WINDOW_SIZE);
	return h->section * h->nodes <= size ? 0 : -EPROTO;
}

static int open_ivshmem(struct hostile *h, const char *device, uint32_t nodes)
{
	uint64_t size;

	h->registers = map_bar(device, "resource0", &size);
	h->window = map_bar(device, "resource2", &size);
	if (!h->registers || !h->window)
		return -EIO;
	h->node = read_register(h, IVSHMEM_POSITION);
	h->nodes = nodes;
	/* A section's size is that of a power of two of them. */
	for (h->section = size / 2; h->section * nodes > size; h->section /= 2)
		;
	h->section &= ~0xfffULL;
	h->carried = true;
	return h->node < nodes ? 0 : -ENODEV;
}

/* Decoding of the device's memory is off until it is enabled. */
static int turn_on(const char *device)
{
	char path[512];
	int fd, ret = 0;

	snprintf(path, sizeof(path), DEVICES "/%s/enable", device);
	fd = open(path, O_WRONLY);
	if (fd < 0)
		return -errno;
	if (write(fd, "1", 1) != 1)
		ret = -errno;
	close(fd);
	return ret;
}

int hostile_open(struct hostile *h, uint32_t nodes, int victim, bool ivshmem)
{
	struct dirent *entry;
	char device[64];
	uint32_t id = 0;
	DIR *dir;
	int ret;

	dir = opendir(DEVICES);
	if (!dir)
		return -errno;
	while ((entry = readdir(dir))) {
		snprintf(device, sizeof(device), "%.60s", entry->d_name);
		id = sysfs_number(device, "device") << 16 |
		     sysfs_number(device, "vendor");
		if ((id == ADAPTER_ID && !ivshmem) || id == IVSHMEM_ID)
			break;
	}
	closedir(dir);
	if (!entry)
		return -ENODEV;
	ret = turn_on(device);
	if (!ret)
		ret = id == ADAPTER_ID ? open_adapter(h, device) :
					 open_ivshmem(h, device, nodes);
	if (ret)
		return ret;
	h->victim = victim >= 0 ? victim : !h->node;
	if (h->victim >= h->nodes || h->victim == h->node)
		return -EINVAL;
	h->lane = h->section / (h->nodes - 1) / LANE_STEP * LANE_STEP;
	h->outbound = hostile_lane(h, h->victim, h->node);
	h->inbound = hostile_lane(h, h->node, h->victim);
	if (id == ADAPTER_ID) {
		h->doorbell = ADAPTER_PEER_DOORBELL + 4 * h->victim;
		h->doorbell_value = 1;
	} else {
		h->doorbell = IVSHMEM_DOORBELL;
		h->doorbell_value = h->victim << 16;
	}
	return 0;
}

bool hostile_goes_on(const struct hostile *h)
{
	return hostile_now() < h->until;
}

volatile uint64_t *hostile_section(const struct hostile *h, uint32_t node,
				   uint64_t offset)
{
	return (volatile uint64_t *)(h->window + node * h->section + offset);
}

void hostile_write(struct hostile *h, unsigned int at, uint64_t value)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	*hostile_section(h, h->victim, h->outbound + at) = htole64(value);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

uint64_t hostile_read(const struct hostile *h, unsigned int at)
{
	uint64_t value = *hostile_section(h, h->node, h->inbound + at);

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return le64toh(value);
}

void hostile_ring(struct hostile *h)
{
	write_register(h, h->doorbell, h->doorbell_value);
}

void hostile_pause(struct hostile *h)
{
	hostile_write(h, BEAT, ++h->beat);
	poll(NULL, 0, 1);
}

void hostile_handshake(struct hostile *h, uint32_t session, uint32_t echo)
{
	hostile_write(h, SESSION, 0);
	hostile_write(h, MAGIC, LINK_MAGIC);
	hostile_write(h, VERSIONS, LINK_VERSIONS);
	hostile_write(h, FEATURES, h->features);
	hostile_write(h, SECTION, h->section);
	hostile_write(h, SHAPE, (uint64_t)h->nodes << 32 | LINK_SLOTS);
	hostile_write(h, ECHO, echo);
	hostile_write(h, SESSION, session);
}

bool hostile_is_up(const struct hostile *h)
{
	return h->met && hostile_read(h, SESSION) == h->met &&
	       hostile_read(h, ECHO) == h->session;
}

int hostile_meet(struct hostile *h)
{
	uint64_t began = hostile_now(), limit = began + PATIENCE;
	uint64_t session, echo;

	h->session = (hostile_random() & 0x7fffffff) | 1;
	h->met = 0;
	hostile_handshake(h, h->session, 0);
	hostile_ring(h);
	while (hostile_now() < limit) {
		session = hostile_read(h, SESSION);
		echo = hostile_read(h, ECHO);
		/* Else the victim is still in the last session, and reads its ring. */
		if (session && session <= UINT32_MAX && session != h->met &&
		    (!echo || echo == h->session) &&
		    hostile_read(h, MAGIC) == LINK_MAGIC) {
			h->met = session;
			h->produced = 0;
			h->produced_lines = 0;
			h->consumed = 0;
			h->consumed_lines = 0;
			hostile_write(h, TAKEN, 0);
			hostile_write(h, OUT, 0);
			for (unsigned int i = 0; i < LINK_SLOTS; i++)
				hostile_write(h, HEADS + i * LINE + INLINE, 0);
			hostile_handshake(h, h->session, h->met);
			hostile_ring(h);
		}
		if (hostile_is_up(h)) {
			/* Earlier errors may have made the victim back off. */
			if (!h->has_met)
				h->until += hostile_now() - began;
			h->has_met = true;
			return 0;
		}
		hostile_pause(h);
	}
	return -ETIMEDOUT;
}

int hostile_remeet(struct hostile *h)
{
	return hostile_is_up(h) ? 0 : hostile_meet(h);
}

/* Messages that the victim's ring has room for. */
static uint32_t slots_of(const struct hostile *h)
{
	uint32_t slots = hostile_read(h, SHAPE);

	return slots && slots <= LINK_SLOTS ? slots : LINK_SLOTS;
}

/* Where word number @i of a message is, in a ring of @slots messages. */
static unsigned int place_of(uint32_t slots, uint32_t index, uint32_t line, unsigned int i)
{
	if (i < PRIVATE)
		return HEADS + index % slots * LINE + 8 * i;
	i -= PRIVATE;
	line = (line + i / 8) % (DATA_LINES * slots);
	return HEADS + (slots + line) * LINE + i % 8 * 8;
}

/* Words of private data that a message has, or claims. */
static unsigned int private_words(const struct message *m)
{
	unsigned int words = ((m->words[0] >> PRIVATE_BYTES_SHIFT & 0xff) + 7) / 8;

	return words < ARRAY_SIZE(m->words) - PRIVATE ? words : ARRAY_SIZE(m->words) - PRIVATE;
}

unsigned int hostile_head(const struct hostile *h, uint32_t index)
{
	return HEADS + index % slots_of(h) * LINE + INLINE;
}

void hostile_place(struct hostile *h, const struct message *m)
{
	unsigned int private = private_words(m);
	uint32_t slots = slots_of(h);

	for (unsigned int i = 0; i < PRIVATE + private; i++)
		hostile_write(h, place_of(slots, h->produced, h->produced_lines, i),
			      m->words[i]);
	hostile_write(h, hostile_head(h, h->produced),
		      head(h->produced, INLINE + 8 * private));
	h->produced++;
	h->produced_lines += (private + 7) / 8;
}

uint16_t hostile_in_flight(const struct hostile *h)
{
	return h->produced - (hostile_read(h, TAKEN) >> 48);
}

int hostile_put(struct hostile *h, const struct message *m)
{
	uint64_t limit = hostile_now() + PATIENCE;
	bool waited = false;

	while (hostile_in_flight(h) >= slots_of(h)) {
		if (!hostile_is_up(h))
			return -ENOTCONN;
		if (hostile_now() > limit)
			return -ETIMEDOUT;
		hostile_write(h, OUT, WANTS_ROOM);
		waited = true;
		hostile_pause(h);
	}
	if (waited)
		hostile_write(h, OUT, 0);
	hostile_place(h, m);
	if (hostile_read(h, TAKEN) & ASLEEP)
		hostile_ring(h);
	return 0;
}

bool hostile_take(struct hostile *h, struct message *m)
{
	uint32_t index = h->consumed, line = h->consumed_lines;
	uint64_t head, bytes;

	head = hostile_read(h, HEADS + index % LINK_SLOTS * LINE + INLINE);
	if (head >> 32 != index + 1)
		return false;
	bytes = (uint32_t)head;
	for (unsigned int i = 0; i < ARRAY_SIZE(m->words); i++)
		m->words[i] = 8 * i >= bytes ? 0 :
			      hostile_read(h, place_of(LINK_SLOTS, index, line, i));
	h->consumed++;
	h->consumed_lines += bytes > INLINE ? (bytes - INLINE + LINE - 1) / LINE : 0;
	hostile_write(h, TAKEN, (uint64_t)h->consumed << 48 |
				(uint64_t)(h->consumed_lines & 0xffffff) << 24);
	if (hostile_read(h, OUT) & ASLEEP)
		hostile_ring(h);
	return true;
}

/* As a node that exports nothing and listens at no port. */
static int answer(struct hostile *h, const struct message *m)
{
	switch (KIND(m)) {
	case LOOKUP_REGION:
	case LOOKUP_SEGMENT:
		return hostile_say(h, REFUSED, NUMBER(m), 0, 0, 0, 0);
	case CONNECT:
		return hostile_say(h, CONNECTED, NUMBER(m),
				   (uint64_t)ECONNREFUSED << 32, m->words[2],
				   0, 0);
	case DISCONNECT:
		return hostile_say(h, DISCONNECTED, (uint32_t)m->words[1], 0, 0,
				   0, 0);
	default:
		return 0;
	}
}

int hostile_await(struct hostile *h, enum message_kind kind, uint32_t number,
		  struct message *m)
{
	uint64_t limit = hostile_now() + PATIENCE;
	int ret;

	while (hostile_now() < limit) {
		if (!hostile_is_up(h))
			return -ENOTCONN;
		if (!hostile_take(h, m)) {
			hostile_pause(h);
			continue;
		}
		ret = answer(h, m);
		if (KIND(m) == kind && NUMBER(m) == number)
			return 0;
		if (ret)
			return ret;
	}
	return -ETIMEDOUT;
}

bool hostile_victim_is_well(struct hostile *h)
{
	uint32_t number = hostile_random();
	struct message m;

	/* In a session of which nothing was a lie. */
	if (hostile_meet(h))
		return false;
	return !hostile_say(h, LOOKUP_REGION, number, hostile_random(), 0, 0,
			    0) &&
	       !hostile_await(h, REFUSED, number, &m);
}

static int try_connect(struct hostile *h, uint32_t port, uint32_t *theirs)
{
	uint32_t flags = h->carried ? CONNECT_WINDOW : 0;
	struct message m;
	int ret;

	h->connection = hostile_random();
	ret = hostile_say(h, CONNECT, h->connection, (uint64_t)port << 32 | flags,
			  hostile_random(), hostile_data_extent(h),
			  hostile_ring_extent(h));
	if (!ret)
		ret = hostile_await(h, CONNECTED, h->connection, &m);
	if (ret)
		return ret;
	*theirs = m.words[1];
	return -(int)(m.words[1] >> 32);
}

int hostile_connect(struct hostile *h, uint32_t port, uint32_t *theirs)
{
	uint64_t limit = hostile_now() + PATIENCE;
	int ret;

	/* The listener may still be busy with those that were broken before. */
	while ((ret = try_connect(h, port, theirs)) == -ECONNREFUSED &&
	       hostile_now() < limit)
		hostile_pause(h);
	return ret;
}
