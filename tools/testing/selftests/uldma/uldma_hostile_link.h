/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A node without a driver: it has the window and the doorbells in its hands, and
 * speaks the protocol of Documentation/uldma/link.rst itself, as far as it likes.
 */
#ifndef __SELFTEST_ULDMA_HOSTILE_LINK_H
#define __SELFTEST_ULDMA_HOSTILE_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef ARRAY_SIZE
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#endif

/* Bytes at the start of a lane that are the control channel. */
#define AREA_BYTES 16384
/* Lanes begin and end at multiples of this. */
#define LANE_STEP 65536
/* Bytes of the data of a connection, if it goes through the window. */
#define DATA_BYTES 131072
/* In which messages of connections name ranges. */
#define EXTENT_UNIT 4096ULL

/* Words of an area, by byte offset. */
enum area_word {
	MAGIC = 0x000,
	VERSIONS = 0x008,
	FEATURES = 0x010,
	SECTION = 0x018,
	SHAPE = 0x020,
	SESSION = 0x028,
	ECHO = 0x030,
	BEAT = 0x038,
	TAKEN = 0x100,
	OUT = 0x108,
	HEADS = 0x180,
};

/* Bytes of a line of a ring; of a message in its head line, before the head. */
#define LINE 64
#define INLINE 56
/* Data lines behind the head lines, for each of them. */
#define DATA_LINES 2

/* Flags of TAKEN and OUT: the writer sleeps. Of OUT alone: it waits for room. */
#define ASLEEP 1
#define WANTS_ROOM 4

#define LINK_MAGIC 0x6b6e696c616d6475ULL
#define LINK_VERSIONS 0x300000003ULL
#define LINK_SLOTS 64
/* Feature of the handshake: streams that the device matches. */
#define FEATURE_STREAMS 4ULL

enum message_kind {
	LOOKUP_REGION = 1,
	LOOKUP_SEGMENT = 2,
	REGION = 3,
	SEGMENT = 4,
	REFUSED = 5,
	SEGMENT_GONE = 6,
	SEGMENT_LEFT = 7,
	CONNECT = 8,
	CONNECTED = 9,
	DISCONNECT = 10,
	DISCONNECTED = 11,
	EXPORT = 12,
	DONE = 13,
	NETWORK = 14,
	NETWORK_ENDPOINT = 15,
	STREAM = 16,
};

/* Flag of CONNECT: data goes through the window. */
#define CONNECT_WINDOW 2

/* In the first word, where the bytes of private data are counted. */
#define PRIVATE_BYTES_SHIFT 8
/* The first word of private data. */
#define PRIVATE 7

/* Seven words, and sixteen of private data. */
struct message {
	uint64_t words[23];
};

/* The word with the turnaround of the writer. */
#define TURNAROUND 6

#define KIND(_message) ((_message)->words[0] & 0xff)
#define NUMBER(_message) ((uint32_t)((_message)->words[0] >> 32))

/**
 * struct hostile - this node, and the victim
 * @registers: of the device
 * @doorbell: register that rings the victim
 * @doorbell_value: what to write there
 * @window: all sections
 * @section: bytes of each
 * @lane: bytes of a lane
 * @outbound: where this node's lane is in the victim's section
 * @inbound: where the victim's is in the own section
 * @node: this one's number
 * @nodes: how many there are
 * @victim: whose section is written
 * @features: of its handshake
 * @carried: data of connections goes through the window
 * @session: this side's random number
 * @met: the victim's that was met
 * @has_met: the victim was met before
 * @produced: messages put into the victim's ring
 * @produced_lines: data lines of them
 * @consumed: messages taken from the own ring
 * @consumed_lines: data lines of them
 * @beat: counts up
 * @link_timeout: after which the victim takes a silent peer for dead, in ns
 * @link_backoff: longest backoff of the victim, in ns
 * @port: at which a process of the victim listens
 * @stream_port: at which another listens, which asks for matched streams
 * @connection: this side's number of the connection that was made last
 * @seed: of what is done at random
 * @until: when to stop, in ns
 */
struct hostile {
	volatile uint8_t *registers;
	size_t doorbell;
	uint32_t doorbell_value;
	volatile uint8_t *window;
	uint64_t section;
	uint64_t lane;
	uint64_t outbound;
	uint64_t inbound;
	uint32_t node;
	uint32_t nodes;
	uint32_t victim;
	uint64_t features;
	bool carried;
	uint32_t session;
	uint32_t met;
	bool has_met;
	uint32_t produced;
	uint32_t produced_lines;
	uint32_t consumed;
	uint32_t consumed_lines;
	uint64_t beat;
	uint64_t link_timeout;
	uint64_t link_backoff;
	uint32_t port;
	uint32_t stream_port;
	uint32_t connection;
	uint64_t seed;
	uint64_t until;
};

/*
 * Maps a device that no driver has, one of ivshmem if so asked, else the first: 0 or
 * a negated errno.
 */
int hostile_open(struct hostile *h, uint32_t nodes, int victim, bool ivshmem);

uint64_t hostile_now(void);
uint64_t hostile_random(void);
/* Returns true if there is time left. */
bool hostile_goes_on(const struct hostile *h);
/* Lets the victim run for a moment, and stays alive meanwhile. */
void hostile_pause(struct hostile *h);

/* Where in the section of one node the lane of another is. */
static inline uint64_t hostile_lane(const struct hostile *h, uint32_t owner, uint32_t writer)
{
	return (writer - (writer > owner)) * h->lane;
}

/* What names a range of a section in a message of a connection, and where that is. */
static inline uint64_t extent(uint64_t offset, uint64_t bytes)
{
	return offset / EXTENT_UNIT << 32 | bytes / EXTENT_UNIT;
}

static inline uint64_t extent_offset(uint64_t extent)
{
	return (extent >> 32) * EXTENT_UNIT;
}

static inline uint64_t extent_bytes(uint64_t extent)
{
	return (uint32_t)extent * EXTENT_UNIT;
}

/* Where the victim may write a ring of a connection. */
static inline uint64_t hostile_ring_extent(const struct hostile *h)
{
	return extent(h->inbound + AREA_BYTES, EXTENT_UNIT);
}

/* Where it may write the data of a connection, if that goes through the window. */
static inline uint64_t hostile_data_extent(const struct hostile *h)
{
	return h->carried ? extent(h->inbound + AREA_BYTES + EXTENT_UNIT, DATA_BYTES) : 0;
}

/* A word of the area that the victim reads; of the one that it writes. */
void hostile_write(struct hostile *h, unsigned int at, uint64_t value);
uint64_t hostile_read(const struct hostile *h, unsigned int at);
/* A word of a section, of which the others' lanes are out of reach on the adapter. */
volatile uint64_t *hostile_section(const struct hostile *h, uint32_t node,
				   uint64_t offset);
void hostile_ring(struct hostile *h);

/* An honest handshake; a mode then changes words, and writes the session last. */
void hostile_handshake(struct hostile *h, uint32_t session, uint32_t echo);
/* Returns true if the victim has answered the session of this node. */
bool hostile_is_up(const struct hostile *h);
/* Meets the victim honestly: 0 or -ETIMEDOUT. */
int hostile_meet(struct hostile *h);
/* Meets it anew unless the link is still up. */
int hostile_remeet(struct hostile *h);

/* The word that says that a record is there; where it stands in the victim's ring. */
static inline uint64_t head(uint32_t index, uint64_t length)
{
	return (uint64_t)(index + 1) << 32 | length;
}

unsigned int hostile_head(const struct hostile *h, uint32_t index);
/* Messages in the victim's ring that it is not known to have taken. */
uint16_t hostile_in_flight(const struct hostile *h);
/* Writes a message to the victim's ring, whether there is room or not. */
void hostile_place(struct hostile *h, const struct message *m);
/* Puts a message into the victim's ring: -ENOTCONN when the link is down. */
int hostile_put(struct hostile *h, const struct message *m);
/* Takes one: whether there was any. */
bool hostile_take(struct hostile *h, struct message *m);
/*
 * Waits for a message of a kind with a number, and answers others as a node
 * that has no objects: 0, -ENOTCONN, -ETIMEDOUT.
 */
int hostile_await(struct hostile *h, enum message_kind kind, uint32_t number,
		  struct message *m);
/* Returns true if the victim answers a query, in this or in a new session. */
bool hostile_victim_is_well(struct hostile *h);
/* Connects to the port: 0 and the victim's number, or a negated errno. */
int hostile_connect(struct hostile *h, uint32_t port, uint32_t *theirs);

static inline struct message message(enum message_kind kind, uint32_t number,
				     uint64_t a, uint64_t b, uint64_t c,
				     uint64_t d)
{
	return (struct message){
		{ (uint64_t)number << 32 | kind, a, b, c, d },
	};
}

static inline int hostile_say(struct hostile *h, enum message_kind kind,
			      uint32_t number, uint64_t a, uint64_t b,
			      uint64_t c, uint64_t d)
{
	struct message m = message(kind, number, a, b, c, d);

	return hostile_put(h, &m);
}

/**
 * struct mode - one way to misbehave
 * @name: what it is called
 * @what: in a few words
 * @run: does it until the time is over: 0 if the victim did what it should
 */
struct mode {
	const char *name;
	const char *what;
	int (*run)(struct hostile *h);
};

/*
 * Those of handshakes and rings, of messages, of ends, of matched streams, of the
 * network, those without a plan, and of lanes; a name of NULL ends each.
 */
extern const struct mode ring_modes[];
extern const struct mode message_modes[];
extern const struct mode end_modes[];
extern const struct mode stream_modes[];
extern const struct mode network_modes[];
extern const struct mode random_modes[];
extern const struct mode lane_modes[];

#endif /* __SELFTEST_ULDMA_HOSTILE_LINK_H */
