// SPDX-License-Identifier: GPL-2.0
/*
 * The serving half of uldma_peer: exports regions, makes segments and checks
 * what arrives in them, by commands.
 */
#include "uldma_endpoint.h"
#include "uldma_peer.h"

/* Time limit for the next command, in milliseconds. */
#define IDLE 120000

/**
 * struct slot - something that the other side had made here
 * @fd: the file that owns it, or -1
 * @helper: the process that owns it, if it is not this one
 * @memory: whole pages, of which the exported range is a part
 * @size: bytes of @memory
 * @lead: bytes before the range
 * @length: bytes of the range
 * @region: its registration
 * @segment: or the segment, if this is one
 * @context: or the queue of an endpoint
 * @endpoint: and the endpoint
 */
struct slot {
	int fd;
	struct helper helper;
	char *memory;
	size_t size;
	size_t lead;
	size_t length;
	struct region region;
	struct segment segment;
	struct context context;
	struct endpoint endpoint;
};

struct server {
	int fd;
	struct segment control;
	struct segment result;
	struct slot slots[PEER_SLOTS];
	__s64 (*execute_own)(const struct peer_command *command);
};

static char *range(struct slot *slot)
{
	return slot->memory + slot->lead;
}

/* Ends what owns the object; the memory stays, to be checked. */
static void slot_close(struct slot *slot)
{
	/* A mapping keeps its file open. */
	if (slot->segment.map)
		munmap(slot->segment.map, slot->segment.length);
	slot->segment.map = NULL;
	if (slot->context.page)
		context_unmap(&slot->context);
	slot->context.page = NULL;
	if (slot->endpoint.ring) {
		munmap(slot->endpoint.ring, page_size());
		munmap(slot->endpoint.status, page_size());
	}
	slot->endpoint.ring = NULL;
	if (slot->fd >= 0)
		close(slot->fd);
	slot->fd = -1;
	if (slot->helper.pid)
		helper_kill(&slot->helper);
	slot->helper.pid = 0;
}

static void slot_clear(struct slot *slot)
{
	slot_close(slot);
	if (slot->memory)
		munmap(slot->memory, slot->size);
	*slot = (struct slot){ .fd = -1 };
}

static int slot_memory(struct slot *slot, size_t lead, size_t length)
{
	slot->lead = lead;
	slot->length = length;
	slot->size = (lead + length + 2 * page_size() - 1) &
		     ~(page_size() - 1);
	slot->memory = mmap(NULL, slot->size, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (slot->memory == MAP_FAILED) {
		slot->memory = NULL;
		return -errno;
	}
	memset(slot->memory, PEER_GUARD, slot->size);
	return 0;
}

static int slot_open(struct slot *slot)
{
	slot->fd = uldma_open(O_NONBLOCK);
	return slot->fd < 0 ? slot->fd : 0;
}

static int slot_export(struct slot *slot, __u64 name, __u32 access)
{
	__u32 how = access & ~RW;
	int ret = slot_open(slot);

	return ret ?: region_register(slot->fd, range(slot), slot->length,
				      RW | how, &slot->region) ?:
		      region_export(slot->fd, slot->region.handle,
				    access & ~how, name);
}

struct child_export {
	struct slot *slot;
	__u64 name;
	__u32 access;
};

static void child_export(int fd, void *arg)
{
	struct child_export *export = arg;
	int ret = slot_export(export->slot, export->name, export->access);

	if (write(fd, &ret, sizeof(ret)) != sizeof(ret))
		_exit(1);
}

static int slot_export_child(struct slot *slot, __u64 name, __u32 access)
{
	struct child_export export = {
		.slot = slot,
		.name = name,
		.access = access,
	};
	int ret = helper_start(&slot->helper, child_export, &export);

	if (ret)
		return ret;
	if (read(slot->helper.fd, &ret, sizeof(ret)) != sizeof(ret))
		return -EIO;
	return ret;
}

static int check_guard(struct slot *slot)
{
	size_t end = slot->lead + slot->length;

	for (size_t i = 0; i < slot->size; i++)
		if ((i < slot->lead || i >= end) &&
		    slot->memory[i] != PEER_GUARD)
			return 1;
	return 0;
}

static int slot_segment(struct slot *slot, __u64 name, __u64 length)
{
	return slot_open(slot) ?:
	       segment_create(slot->fd, name, length, &slot->segment) ?:
	       segment_map(slot->fd, &slot->segment);
}

static int slot_attach(struct slot *slot, __u64 name)
{
	return slot_open(slot) ?:
	       segment_attach(slot->fd, name, &slot->segment) ?:
	       segment_map(slot->fd, &slot->segment);
}

static __s64 slot_endpoint(struct slot *slot, size_t length)
{
	int ret = slot_memory(slot, 0, length) ?:
		  slot_open(slot) ?:
		  region_register(slot->fd, range(slot), length, RW,
				  &slot->region) ?:
		  context_create_as(slot->fd, ULDMA_METHOD_QUEUE, 0,
				    &slot->context) ?:
		  context_map(slot->fd, &slot->context) ?:
		  endpoint_create(slot->fd, NO_LIMIT, length, &slot->endpoint);

	return ret ?: slot->endpoint.index;
}

static __s64 slot_send(struct slot *slot, __u64 at, __u64 length)
{
	return queue_do(&slot->context,
			message_of(&slot->endpoint, slot->region.index, at,
				   length),
			NULL);
}

static int slot_wait(struct slot *slot)
{
	struct uldma_event event;
	int ret = event_wait(slot->fd, ULDMA_EVENT_DOORBELL, SOON, &event);

	if (ret)
		return ret;
	return event.handle == slot->segment.handle ? 0 : -EPROTO;
}

/* Starts again with any client that connects. */
static int greet(struct server *server, __u64 name)
{
	for (int i = 0; i < PEER_SLOTS; i++)
		slot_clear(&server->slots[i]);
	if (server->result.map) {
		munmap(server->result.map, server->result.length);
		segment_destroy(server->fd, server->result.handle);
		server->result.map = NULL;
	}
	return segment_attach(server->fd, name, &server->result) ?:
	       segment_map(server->fd, &server->result);
}

static __s64 execute(struct server *server, const struct peer_command *command)
{
	const __u64 *args = command->args;
	struct slot *slot = &server->slots[args[0] % PEER_SLOTS];

	switch (command->verb) {
	case PEER_HELLO:
		return greet(server, args[0]);
	case PEER_QUIT:
		return 0;
	case PEER_NODE:
		return query(server->fd).out_node;
	case PEER_EXPORT:
		slot_clear(slot);
		return slot_memory(slot, PEER_LEAD, args[2]) ?:
		       slot_export(slot, args[1], args[3]);
	case PEER_EXPORT_PAGES:
		slot_clear(slot);
		return slot_memory(slot, 0, args[2]) ?:
		       slot_export(slot, args[1], args[3]);
	case PEER_EXPORT_CHILD:
		slot_clear(slot);
		return slot_memory(slot, PEER_LEAD, args[2]) ?:
		       slot_export_child(slot, args[1], args[3]);
	case PEER_UNMAP_PAGES:
		return madvise(range(slot) + args[1], args[2], MADV_DONTNEED) ?
			       -errno :
			       0;
	case PEER_REGISTER:
		return slot_open(slot) ?:
		       region_register(slot->fd, range(slot), slot->length, RW,
				       &slot->region);
	case PEER_EXPORT_AGAIN:
		return region_export(slot->fd, slot->region.handle, args[2],
				     args[1]);
	case PEER_UNEXPORT:
		return region_unexport(slot->fd, slot->region.handle);
	case PEER_UNREGISTER:
		return region_unregister(slot->fd, slot->region.handle);
	case PEER_CLOSE:
		slot_close(slot);
		return 0;
	case PEER_WORD:
		return READ_ONCE(((__u64 *)range(slot))[args[1]]);
	case PEER_FILL:
		pattern_fill(range(slot), slot->length, args[1]);
		return 0;
	case PEER_CHECK:
		return pattern_check(range(slot) + args[1], args[2], args[3]);
	case PEER_CHECK_GUARD:
		return check_guard(slot);
	case PEER_SEGMENT:
		slot_clear(slot);
		return slot_segment(slot, args[1], args[2]);
	case PEER_SEGMENT_ATTACH:
		slot_clear(slot);
		return slot_attach(slot, args[1]);
	case PEER_SEGMENT_FILL:
		pattern_fill(slot->segment.map, slot->segment.length, args[1]);
		return 0;
	case PEER_SEGMENT_CHECK:
		return pattern_check(slot->segment.map, slot->segment.length,
				     args[1]);
	case PEER_SEGMENT_RING:
		return doorbell(slot->fd, slot->segment.handle);
	case PEER_SEGMENT_WAIT:
		return slot_wait(slot);
	case PEER_ENDPOINT:
		slot_clear(slot);
		return slot_endpoint(slot, args[1]);
	case PEER_ENDPOINT_NAME:
		return slot->endpoint.generation;
	case PEER_ENDPOINT_CONNECT:
		return endpoint_connect(slot->fd, &slot->endpoint, args[1],
					args[2], args[3]);
	case PEER_ENDPOINT_POST:
		return endpoint_post(&slot->endpoint, slot->region.index,
				     args[1], args[2]);
	case PEER_ENDPOINT_RING:
		endpoint_ring(&slot->endpoint, &slot->context);
		return 0;
	case PEER_ENDPOINT_WAIT:
		return endpoint_wait(slot->fd, &slot->endpoint, args[1],
				     PATIENCE);
	case PEER_ENDPOINT_BYTES:
		return endpoint_record(&slot->endpoint, args[1]).bytes;
	case PEER_ENDPOINT_STATUS:
		return endpoint_record(&slot->endpoint, args[1]).status |
		       (__u64)endpoint_record(&slot->endpoint, args[1]).flags << 32;
	case PEER_ENDPOINT_SEND:
		return slot_send(slot, args[1], args[2]);
	case PEER_ENDPOINT_DESTROY:
		return endpoint_destroy(slot->fd, &slot->endpoint);
	default:
		return server->execute_own ? server->execute_own(command) :
					     -EINVAL;
	}
}

static void answer(struct server *server, __u64 sequence, __s64 value)
{
	struct peer_result *result = (struct peer_result *)server->result.map;

	if (!result)
		return;
	WRITE_ONCE(result->value, value);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	WRITE_ONCE(result->sequence, sequence);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	doorbell(server->fd, server->result.handle);
}

/* Sleeps for a doorbell: 0, -ETIMEDOUT, or -ENOTCONN for a link that fell. */
static int next_doorbell(int fd)
{
	struct uldma_event event;

	while (poll_for(fd, IDLE) & POLLIN) {
		if (read(fd, &event, sizeof(event)) != sizeof(event))
			return -errno;
		if (event.type == ULDMA_EVENT_DOORBELL)
			return 0;
		if (event.type == ULDMA_EVENT_LINK && !event.value)
			return -ENOTCONN;
	}
	return -ETIMEDOUT;
}

int peer_serve(void)
{
	return peer_serve_with(NULL);
}

int peer_serve_with(__s64 (*execute_own)(const struct peer_command *command))
{
	struct server server = { .execute_own = execute_own };
	struct peer_command command = { };
	struct peer_command *control;
	__u64 seen = 0;
	int ret;

	for (int i = 0; i < PEER_SLOTS; i++)
		server.slots[i].fd = -1;
	server.fd = uldma_open(O_NONBLOCK);
	if (server.fd < 0)
		return server.fd;
	ret = segment_create(server.fd, PEER_CONTROL, page_size(),
			     &server.control) ?:
	      segment_map(server.fd, &server.control);
	if (ret)
		return ret;
	control = (struct peer_command *)server.control.map;
	printf("ready\n");
	fflush(stdout);

	while (command.verb != PEER_QUIT) {
		ret = next_doorbell(server.fd);
		/* The end of the peer is one way to end. */
		if (ret)
			return ret == -ENOTCONN ? 0 : ret;
		command.sequence = __atomic_load_n(&control->sequence,
						   __ATOMIC_ACQUIRE);
		if (command.sequence == seen)
			continue;
		seen = command.sequence;
		command.verb = READ_ONCE(control->verb);
		for (int i = 0; i < ARRAY_SIZE(command.args); i++)
			command.args[i] = READ_ONCE(control->args[i]);
		answer(&server, seen, execute(&server, &command));
	}
	return 0;
}
