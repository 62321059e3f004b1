/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A fuzzer of the user interface that knows what each call has to answer.
 *
 * One process makes up steps and keeps a model of what there is: open files,
 * handles, names, ports, mappings. Workers, which are processes of their own,
 * do one step at a time. The result of a call is compared with the errors that
 * the interface documents for the state that the model is in.
 *
 * A step is made from a number and the model alone, so that a list of numbers
 * is a sequence that can be run again, cut and joined.
 */
#ifndef __SELFTEST_ULDMA_FUZZ_MODEL_H
#define __SELFTEST_ULDMA_FUZZ_MODEL_H

#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

#include "uldma_args.h"
#include "uldma_fuzz_meet.h"
#include "uldma_utils.h"

#define PROCESSES 3
/* Has neither capabilities nor much RLIMIT_MEMLOCK. */
#define POOR 2
#define POOR_PAGES 24
#define DEVICES 4
#define OPEN_FILES 7
#define OBJECTS 16
#define ENDED 8
#define CONNECTIONS 64
/* Every field, or none that is a mask of flags. */
#define ANY_FLAGS ~0U
#define GIVEN ULDMA_CONN_MAX_BUFFERS
#define MAPPINGS 12
#define ARENA_PAGES 24
/* Most pages of exchangeable memory: small, as the model knows the state of each. */
#define EXCHANGE_PAGES 4
#define ARENA 0x100000000000UL
#define STEPS 128
/* Bit of a step: it brings messages forward, for which many calls have to come together. */
#define OF_MESSAGES 0x80000000U
#define RACERS 4
#define NAMES 3
#define PORTS 3
/* The port of another node where a program names an endpoint of its own. */
#define STREAM_PORT PORTS
/* Bytes of what another node exports. */
#define REMOTE_LENGTH 8192

/* Descriptors of every process, beside the open files. */
#define FIRST_FD 100
#define EVENT_FD 90
#define OTHER_FD 91

/**
 * struct call - one ioctl
 * @name: for people
 * @number: enum uldma_cmd
 * @size: bytes of its structure; zero for none
 * @first: bytes of its first version
 * @flags: known bits of @flags; all, where another field has that place
 * @reserved: offsets of fields that have to be zero, or zero
 * @writes: whether the kernel writes the structure back
 * @owner: whether it may be called in the address space of the open file only
 * @weight: how often to make it
 * @timeout: offset of timeout_ns; zero, if the call does not wait
 */
struct call {
	const char *name;
	__u32 number;
	__u32 size;
	__u32 first;
	__u32 flags;
	__u32 reserved[2];
	bool writes;
	bool owner;
	int weight;
	__u32 timeout;
};

extern const struct call calls[];
extern const int call_count;

enum op {
	OP_OPEN,
	OP_CLOSE,
	OP_SHARE,
	OP_IOCTL,
	OP_MMAP,
	OP_MUNMAP,
	OP_TOUCH,
	OP_MEMORY,
	OP_READ,
	OP_POLL,
	OP_RESET,
	OP_RACE,
	OP_DIE,
};

/* Where the structure of an ioctl is. */
enum where {
	AT_MEMORY,
	AT_NULL,
	AT_KERNEL,
	AT_EDGE,
	AT_READ_ONLY,
};

/* States of a page of the arena. */
enum memory {
	MEMORY_FRESH,
	MEMORY_GONE,
	MEMORY_READ_ONLY,
	MEMORY_WRITABLE,
	MEMORY_DISCARDED,
};

/**
 * struct order - what a worker is to do
 * @op: what
 * @open_file: with which open file
 * @call: which ioctl: a place in @calls, or a number that is none
 * @cmd: the ioctl
 * @where: where its structure is
 * @in_child: done by a child, after fork()
 * @interrupt: it may wait, until a signal comes
 * @from: process to get a file from
 * @a: first number that the operation needs
 * @b: second
 * @c: third
 * @repeat: how often, in a race
 * @args: the structure
 */
struct order {
	enum op op;
	int open_file;
	int call;
	unsigned long cmd;
	enum where where;
	bool in_child;
	bool interrupt;
	pid_t from;
	__u64 a;
	__u64 b;
	__u64 c;
	int repeat;
	union uldma_args args;
};

/* A negated errno, or what the operation gives; and the structure after it. */
struct reply {
	long ret;
	union uldma_args args;
};

/**
 * struct worker - a process that executes orders
 * @pid: its process
 * @fd: pipe for orders
 */
struct worker {
	pid_t pid;
	int fd;
};

enum kind {
	NONE,
	REGION,
	IMPORT,
	CREATED,
	ATTACHED,
	RING,
	ENDPOINT,
};

/* The memory of a region. */
enum backing {
	PINNED,
	EXCHANGEABLE,
	IN_WINDOW,
	SLOTS,
};

/**
 * struct part - what can be mapped of an object
 * @offset: where
 * @length: bytes, or zero
 * @of_context: only while the open file has a context
 * @read_only: not for writing
 */
struct part {
	__u64 offset;
	__u64 length;
	bool of_context;
	bool read_only;
};

/**
 * struct exchange_page - a page of exchangeable memory
 * @sends: those that have not ended
 * @copied: the program has written to it meanwhile
 */
struct exchange_page {
	int sends;
	bool copied;
};

/**
 * struct slots - message slots, which are used in turns
 * @count: how many
 * @bytes: of each
 * @next: the next one
 * @context: number of the context by which each was sent last, or zero
 * @ticket: of that message
 */
struct slots {
	__u32 count;
	__u64 bytes;
	__u32 next;
	int context[ULDMA_STATUS_RECORDS];
	__u64 ticket[ULDMA_STATUS_RECORDS];
};

/**
 * struct object - what a handle stands for
 * @kind: what it is
 * @backing: the memory of a region
 * @handle: its handle
 * @access: rights
 * @addr: first byte of a region
 * @length: bytes
 * @exported: rights of an export
 * @name: name of an export or a created segment, or zero
 * @peer: node that may use the name, plus one, or zero
 * @parts: what can be mapped
 * @source: serial number of the segment that this one is attached to, or of the
 *	endpoint that the slots are of; ULDMA_RING_* of a ring, or less than zero after
 *	its end
 * @serial: number of a created segment, or of an endpoint
 * @stream: the endpoint is one of a stream
 * @connected: the endpoint is connected
 * @other: the endpoint of the other node that knows this one, if its generation is not zero
 * @met: the endpoint is connected to that
 * @pages: of exchangeable memory
 * @slots: of messages
 * @optimistic: the region pins nothing
 */
struct object {
	enum kind kind;
	enum backing backing;
	__u32 handle;
	__u32 access;
	__u32 exported;
	__u64 addr;
	__u64 length;
	__u64 name;
	__u32 peer;
	struct part parts[2];
	int source;
	int serial;
	bool stream;
	bool connected;
	struct endpoint_name other;
	bool met;
	struct exchange_page pages[EXCHANGE_PAGES];
	struct slots slots;
	bool optimistic;
};

enum attached {
	ALONE,
	LISTENING,
	CONNECTED,
};

/* Memory that a connection has, in the order in which it came. */
struct given {
	int count;
	struct {
		__u64 addr;
		__u64 length;
	} at[GIVEN];
};

enum end {
	OPEN,
	/* The other side knows of it. */
	DISCONNECTED,
	/* The other side will hear of it. */
	CLOSED,
};

/**
 * struct connection - both ends of one
 * @used: whether it is one
 * @open_file: of the side that connected, and of the one that accepted, or -1
 * @end: how each side has ended it
 * @remote: the other side is another node's
 * @offers: what each side has said; that of another node says nothing
 * @rings: it was seen that it has rings
 */
struct connection {
	bool used;
	int open_file[2];
	enum end end[2];
	bool remote;
	struct uldma_conn_offer offers[2];
	bool rings;
};

/**
 * struct open file - an open file
 * @used: whether it is one
 * @device: of which device
 * @owner: process whose address space it belongs to; -1 if the process has ended
 * @holders: mask of processes that have it open
 * @maps: mappings of it
 * @nonblock: it is O_NONBLOCK
 * @objects: what it has
 * @ended: handles that it had
 * @context: whether it has a context
 * @method: of the context
 * @page_offset: where to map the registers of the context
 * @status_offset: where to map the status page
 * @contexts: those that it has had
 * @queue: the last ticket in each place of the context's queue
 * @posted: the last ticket that the device can reach there
 * @ticket: the last one that was given out for ULDMA_IOC_DMA
 * @tickets: how many
 * @state: what it is attached to
 * @port: where it listens
 * @once: ULDMA_LISTEN_ONCE
 * @backlog: connections that may wait
 * @offer: what the listener says
 * @waiting: those that do
 * @count: how many do
 * @connection: its connection
 * @side: which end of it
 * @given: memory that it gave to receive into and to send
 * @pull: ULDMA_CONNECT_PULL
 * @by_calls: it gave memory before it named an endpoint
 * @named: serial number of the endpoint that the connection has named, or zero
 * @stream_flags: ULDMA_STREAM_*, as far as the peer has answered
 */
struct open_file {
	bool used;
	int device;
	int owner;
	unsigned int holders;
	int maps;
	bool nonblock;
	struct object objects[OBJECTS];
	__u32 ended[ENDED];
	int ended_count;
	bool context;
	__u32 method;
	__u64 page_offset;
	__u64 status_offset;
	int contexts;
	__u64 queue[ULDMA_STATUS_RECORDS];
	__u64 posted;
	__u64 ticket;
	int tickets;
	enum attached state;
	__u32 port;
	bool once;
	int backlog;
	struct uldma_conn_offer offer;
	int waiting[CONNECTIONS];
	int count;
	int connection;
	int side;
	struct given given[2];
	bool pull;
	bool by_calls;
	int named;
	__u32 stream_flags;
};

/**
 * struct device - what does not change
 * @path: its file
 * @idle: what it says of itself when nothing is open
 * @engine: it has one
 * @remote: the other node serves the fuzzer
 * @peers: index of the device of each node, or -1
 */
struct device {
	char path[32];
	struct uldma_query idle;
	bool engine;
	bool remote;
	int peers[ULDMA_MAX_NODES];
};

/**
 * struct mapping - what a process has mapped of an open file
 * @open_file: of which, or -1
 * @offset: from where on
 * @length: bytes
 * @prot: rights
 */
struct mapping {
	int open_file;
	__u64 offset;
	__u64 length;
	int prot;
};

struct process {
	enum memory page[ARENA_PAGES];
	struct mapping maps[MAPPINGS];
};

/* What there is. */
struct world {
	struct device devices[DEVICES];
	int device_count;
	struct open_file open_files[OPEN_FILES];
	struct connection connections[CONNECTIONS];
	struct process processes[PROCESSES];
	struct worker workers[PROCESSES];
	int serial;
	/* Most calls are about connections. */
	bool of_connections;
	/* Calls that have found messages. */
	unsigned long found;
};

/* Errors that a call has to fail with one of, and those that it may have. */
struct verdict {
	bool fails;
	bool must[256];
	bool may[256];
};

static inline void must(struct verdict *v, int err, bool condition)
{
	if (!condition)
		return;
	v->must[err] = true;
	v->fails = true;
}

static inline void may(struct verdict *v, int err, bool condition)
{
	if (condition)
		v->may[err] = true;
}

/* A wait that nothing but its time and a signal can end. */
static inline void judge_vain(const struct order *order, __u64 timeout, struct verdict *v)
{
	must(v, EINTR, order->interrupt);
	must(v, ETIMEDOUT, timeout < PATIENCE);
}

/* A number from a seed; the same numbers everywhere. */
struct chance {
	__u64 state;
};

static inline __u64 draw(struct chance *c)
{
	__u64 x = c->state += 0x9e3779b97f4a7c15ULL;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

static inline __u64 below(struct chance *c, __u64 limit)
{
	return draw(c) % limit;
}

/* Returns true in one of @n cases, at random. */
static inline bool one_in(struct chance *c, int cases)
{
	return !below(c, cases);
}

/* uldma_fuzz_worker.c */
int worker_start(struct worker *w, bool poor);
void worker_end(struct worker *w);
int worker_tell(struct worker *w, const struct order *o, int count);
int worker_answer(struct worker *w, struct reply *r, int count);
void coverage_start(void);
unsigned int coverage_new(void);
bool coverage_is_there(void);

/* What a call can be about. */
typedef bool is_it(const struct object *object);

/* uldma_fuzz_values.c */
__u64 edge(struct chance *c);
__u64 length(struct chance *c);
__u32 rights(struct chance *c);
__u64 timeout(struct chance *c);
__u64 address(struct chance *c);
__u32 handle(struct chance *c, struct world *w, struct open_file *o, is_it *fits);
__u64 name_at_peer(struct world *w, const struct open_file *o, enum kind what, __u64 first);
__u32 port_to_use(struct world *w, const struct open_file *o, bool at_peer, __u64 first);

/* uldma_fuzz_fill.c */
void fill(struct chance *c, struct world *w, struct open_file *o, __u32 number,
	  union uldma_args *a);
void mutate(struct chance *c, struct order *o);

/* uldma_fuzz_make.c */
int make_order(struct world *w, __u32 step, struct order *o);
void describe(FILE *to, int process, const struct order *o);

/* uldma_fuzz_world.c */
is_it is_region;
is_it is_segment;
is_it is_exchangeable;
is_it is_endpoint;
is_it is_connected;
is_it is_stream;
is_it is_sender;
is_it is_receiver;
is_it is_sending;
struct object *object_of(struct open_file *o, __u32 handle);
struct object *endpoint_of(struct open_file *o, int serial);
bool is_mapped(const struct world *w, int process, __u64 addr, __u64 length, bool write);
const char *add_object(struct open_file *o, const struct object *new);
void end_object(struct open_file *o, struct object *object);
struct part shadow(__u64 offset, __u64 length, __u32 access);
struct open_file *listener_at(struct world *w, int device, __u32 port);
struct object *named(struct world *w, int device, enum kind kind, __u64 name);
int peer_of(const struct device *d, __u32 peer);
const struct object *remote_object(enum kind kind, __u64 name);
const struct object *of_peer(struct world *w, const struct device *d, int peer, enum kind kind,
			     __u64 name);
union uldma_args known_part(const struct order *o);
void detach(struct world *w, struct open_file *o, enum end end);
void release_if_unused(struct world *w, struct open_file *o);
void forget_process(struct world *w, int process);
void forget_all(struct world *w);

/* uldma_fuzz_judge.c */
void judge(struct world *w, int process, const struct order *o, struct verdict *v);

/* uldma_fuzz_ring.c */
is_it is_ring;
__u64 ring_length(struct chance *c);
void judge_ring(struct world *w, const struct order *order, struct open_file *o,
		const union uldma_args *a, struct verdict *v);
const char *apply_ring(struct world *w, struct open_file *o, const union uldma_args *in,
		       const struct uldma_conn_ring *out);
const char *rings_told(struct connection *c, int side, __u64 length);
void end_rings(struct open_file *o);

/* uldma_fuzz_endpoint.c */
void fill_endpoint(struct chance *c, struct world *w, struct open_file *o, __u32 number,
		   union uldma_args *a);
void judge_endpoint(struct world *w, const struct order *order, struct open_file *o,
		    const union uldma_args *a, struct verdict *v);
const char *apply_endpoint(struct world *w, struct open_file *o, __u32 number,
			   const union uldma_args *in, const union uldma_args *out);
void note_named(struct open_file *o, const union uldma_args *a);

/* uldma_fuzz_message.c */
void fill_message(struct chance *c, struct world *w, struct open_file *o, __u32 number,
		  union uldma_args *a);
void judge_message(struct world *w, int process, const struct order *order, struct open_file *o,
		   const union uldma_args *a, struct verdict *v);
const char *apply_message(struct open_file *o, __u32 number, const union uldma_args *in,
			  const union uldma_args *out);

/* uldma_fuzz_exchange.c */
void fill_exchange(struct chance *c, struct world *w, struct open_file *o, __u32 number,
		   union uldma_args *a);
void limit_exchange(struct world *w, const struct open_file *o, __u32 number, union uldma_args *a);
void judge_exchange(struct world *w, int process, struct open_file *o, __u32 number,
		    const union uldma_args *a, struct verdict *v);
const char *apply_exchange(struct open_file *o, __u32 number, const union uldma_args *in,
			   const union uldma_args *out);
const char *apply_access(struct open_file *o, const struct mapping *m, __u64 offset, bool store,
			 long signal);

/* uldma_fuzz_meet.c */
bool meet(const struct device *d, struct endpoint_name *name);
void part(void);

/* uldma_fuzz_serve.c */
int serve_peer(void);

/* uldma_fuzz_apply.c */
const char *apply(struct world *w, int process, const struct order *o, const struct reply *r);
__u32 state_of(const struct world *w, int process, const struct order *o);

#endif /* __SELFTEST_ULDMA_FUZZ_MODEL_H */
