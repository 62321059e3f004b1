/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * uldma - user-level DMA: the user interface
 *
 * This header is the only definition of the user interface: the kernel
 * module, the user library and the tests all take their constants and
 * structures from it.
 */
#ifndef _UAPI_LINUX_ULDMA_H
#define _UAPI_LINUX_ULDMA_H

#include <linux/ioctl.h>
#include <linux/types.h>

/**
 * DOC: general contract
 *
 * /dev/uldmaN stands for one device. Each open file owns regions, window
 * segments and at most one register context, and belongs to the address space
 * that opened it. Calls that touch memory, map the device, set the eventfd or
 * take events (read()) fail with EPERM from another address space (after fork(),
 * or through a passed descriptor). When that address space ends, by exit or by
 * exec, all that the open file owns ends, even if the file stays open.
 *
 * A file that is open for reading only (O_RDONLY) can ask and wait: NOP, all
 * calls whose name ends with QUERY, REGION_CHARGE, REGION_BLOCKS, LMM without
 * flags, CONTEXT_STATS, EVENTFD, DMA_WAIT and ENDPOINT_WAIT, besides read() and
 * poll(). All other calls change something, and fail with EBADF.
 *
 * All ioctls follow one calling convention. The argument points to a
 * structure whose first field, @size, is set by the caller to the size of the
 * structure that it was compiled with:
 *
 *  - A size smaller than the first published version fails with EINVAL.
 *  - A size larger than the kernel's is accepted if all bytes that the kernel
 *    does not know are zero, and fails with E2BIG otherwise; one that is larger
 *    than a page always does.
 *  - Fields named @reserved must be zero, else EINVAL.
 *  - Unknown bits in @flags fail with EOPNOTSUPP.
 *  - Fields named @out_* are written by the kernel, on success only.
 *  - A call with @timeout_ns waits for that many nanoseconds at most (ETIMEDOUT). If a
 *    signal interrupts it, the kernel writes to @timeout_ns what is left. Unless the
 *    signal has a handler (EINTR), the call goes on, for that time: stopping and
 *    continuing a process does not prolong it. A program that makes the call again after
 *    EINTR with the same structure waits for what is left, too. Where the structure
 *    cannot be written, the call goes on for the whole time.
 *
 * A call that fails changes nothing. The meaning of each error is the same for
 * all calls:
 *
 *  - ENOTTY: no such ioctl.
 *  - EFAULT: the argument, or the memory to be registered, is not mapped with
 *    the rights asked for.
 *  - EINVAL: an argument is outside of its documented range, a transfer leaves
 *    its region, or a descriptor is no eventfd.
 *  - EOVERFLOW: the start plus the length of memory wraps around.
 *  - EOPNOTSUPP: unknown flag, a method that the device lacks, or memory of a
 *    kind that cannot be pinned: device memory, DAX, and shared mappings that
 *    are to be written of files whose file system tracks dirty pages.
 *  - EREMOTEIO: the device cannot reach the memory without a bounce buffer.
 *  - E2BIG: the structure carries data that this kernel does not know, or is
 *    larger than a page.
 *  - EBADF: the call changes something, and the file is open for reading only.
 *  - EPERM: the caller is not of the address space that opened the file, has
 *    RLIMIT_MEMLOCK of zero and no CAP_IPC_LOCK, lacks the capability that the
 *    call needs, asks for an initiation method that is not secure, or accepts
 *    from a listener of another address space.
 *  - EACCES: the region does not give the right that the operation needs, or
 *    the peer has withdrawn it.
 *  - ENOENT: no such handle, or no such name at the peer.
 *  - ENOMEM: no memory, or RLIMIT_MEMLOCK would be exceeded.
 *  - ENOSPC: a table of the device, the window or the open file is full.
 *  - EDQUOT: the user has as many regions, pages of the device's table,
 *    connections, ports, bytes of the window, requests to peers, endpoints, or open files,
 *    contexts and segments, as one without CAP_SYS_RESOURCE can have (DOC: shares of users).
 *  - EEXIST: the name is taken.
 *  - EBUSY: a page is being sent, the open file has a context already, or the device has no context
 *    free that the user can have, or the transfer queue is full, or the open file
 *    waits for as many answers of that peer as it may.
 *  - ENXIO: the operation needs a context and the open file has none.
 *  - ENOTCONN: the link to the peer is down, or the open file has no connection.
 *  - ECONNREFUSED: the peer has no listener at that port, or its backlog is full,
 *    or the listener's user or this node has as many connections there as one can
 *    have.
 *  - ECONNRESET: data of the connection was lost: the link to the peer went down,
 *    a side was closed or killed that had not sent all, or broke the protocol.
 *  - EPIPE: the connection was disconnected, so nothing can be sent any more.
 *  - EISCONN: the open file has a connection, or is a listener, already; or the endpoint is
 *    connected, or the connection has named another one.
 *  - EADDRINUSE: the device has a listener at that port already.
 *  - EAGAIN: the call would wait, and the file is O_NONBLOCK.
 *  - ETIMEDOUT: the peer or the device did not answer in time.
 *  - ESTALE: the link went down and came up again since the object was made.
 *  - EIO: the device gave an answer that its specification does not allow.
 *  - EPROTO: the peer gave an answer that the link protocol does not allow.
 *  - EINTR: a signal with a handler came while waiting, be it for memory that is to be
 *    pinned, also if the handler has SA_RESTART. No call ends when its process is
 *    stopped and continued.
 *  - ENODEV: the device is gone.
 */

/**
 * define ULDMA_ABI_VERSION - version of this interface, see uldma_query
 *
 * From version 3 on the interface only grows: numbers, names and meanings stay,
 * structures get new fields at their ends, and flags new bits, as the calling
 * convention above allows. What cannot be had so raises the version, and a
 * program that finds another version than its own in @out_abi_version stops.
 */
#define ULDMA_ABI_VERSION 3

/** define ULDMA_TYPE - ioctl type of all uldma ioctls */
#define ULDMA_TYPE 0xB9

/**
 * enum uldma_cmd - numbers of the ioctls
 * @ULDMA_CMD_NOP: enter and leave the kernel, nothing else
 * @ULDMA_CMD_QUERY: struct uldma_query
 * @ULDMA_CMD_REGION_REGISTER: struct uldma_region_register
 * @ULDMA_CMD_REGION_UNREGISTER: struct uldma_handle; also ends an import; with
 *	ETIMEDOUT the region is gone all the same, but its memory stays pinned, for
 *	a device that does not answer may still touch it
 * @ULDMA_CMD_REGION_EXPORT: struct uldma_region_export
 * @ULDMA_CMD_REGION_UNEXPORT: struct uldma_handle
 * @ULDMA_CMD_REGION_IMPORT: struct uldma_region_import
 * @ULDMA_CMD_REGION_QUERY: struct uldma_region_query
 * @ULDMA_CMD_REGION_CHARGE: struct uldma_region_charge
 * @ULDMA_CMD_REGION_BLOCKS: struct uldma_region_blocks; needs CAP_SYS_ADMIN
 * @ULDMA_CMD_REGION_CLEANUP: struct uldma_handle with a handle of zero: end all
 *	regions and imports of the open file
 * @ULDMA_CMD_LMM: struct uldma_lmm
 * @ULDMA_CMD_REGION_WINDOW: struct uldma_region_window
 * @ULDMA_CMD_CONTEXT_CREATE: struct uldma_context_create
 * @ULDMA_CMD_CONTEXT_DESTROY: struct uldma_handle with a handle of zero
 * @ULDMA_CMD_CONTEXT_STATS: struct uldma_context_stats
 * @ULDMA_CMD_CONTEXT_MAP_OUT: struct uldma_map_out
 * @ULDMA_CMD_EVENTFD: struct uldma_eventfd
 * @ULDMA_CMD_DMA: struct uldma_dma
 * @ULDMA_CMD_DMA_WAIT: struct uldma_dma_wait
 * @ULDMA_CMD_SEGMENT_CREATE: struct uldma_segment_create
 * @ULDMA_CMD_SEGMENT_ATTACH: struct uldma_segment_attach
 * @ULDMA_CMD_SEGMENT_DESTROY: struct uldma_handle
 * @ULDMA_CMD_DOORBELL: struct uldma_handle of a segment: wake its other side
 * @ULDMA_CMD_PEER_QUERY: struct uldma_peer_query
 * @ULDMA_CMD_CONN_LISTEN: struct uldma_conn_listen
 * @ULDMA_CMD_CONN_ACCEPT: struct uldma_conn_accept
 * @ULDMA_CMD_CONN_CONNECT: struct uldma_conn_connect
 * @ULDMA_CMD_CONN_DISCONNECT: struct uldma_handle with a handle of zero: end the
 *	connection, or stop to listen; waits until nothing is in flight.
 *	ETIMEDOUT: the peer has not released the connection in time; it has
 *	ended all the same, by a reset
 * @ULDMA_CMD_CONN_PREPOST: struct uldma_conn_buffer: memory to receive into
 * @ULDMA_CMD_CONN_SEND: struct uldma_conn_buffer: memory to send
 * @ULDMA_CMD_CONN_RECV: struct uldma_conn_range: get received memory back
 * @ULDMA_CMD_CONN_RECYCLE: struct uldma_conn_range: get sent memory back
 * @ULDMA_CMD_CONN_QUERY: struct uldma_conn_query
 * @ULDMA_CMD_CONN_STREAM: struct uldma_conn_stream
 * @ULDMA_CMD_CONN_RING: struct uldma_conn_ring
 * @ULDMA_CMD_ENDPOINT_CREATE: struct uldma_endpoint_create
 * @ULDMA_CMD_ENDPOINT_CONNECT: struct uldma_endpoint_connect
 * @ULDMA_CMD_ENDPOINT_DESTROY: struct uldma_handle
 * @ULDMA_CMD_ENDPOINT_WAIT: struct uldma_endpoint_wait
 * @ULDMA_CMD_MSG_SLOTS: struct uldma_msg_slots
 * @ULDMA_CMD_MSG_SEND: struct uldma_msg_send
 * @ULDMA_CMD_MSG_RECV: struct uldma_msg_recv
 * @ULDMA_CMD_EXCHANGE_CREATE: struct uldma_exchange_create
 * @ULDMA_CMD_EXCHANGE_PROTECT: struct uldma_exchange_range: a send of it begins
 * @ULDMA_CMD_EXCHANGE_RELEASE: struct uldma_exchange_range: a send of it has ended
 * @ULDMA_CMD_EXCHANGE_SWAP: struct uldma_exchange_swap
 */
enum uldma_cmd {
	ULDMA_CMD_NOP = 0x00,
	ULDMA_CMD_QUERY = 0x01,
	ULDMA_CMD_PEER_QUERY = 0x02,
	ULDMA_CMD_REGION_REGISTER = 0x10,
	ULDMA_CMD_REGION_UNREGISTER = 0x11,
	ULDMA_CMD_REGION_EXPORT = 0x12,
	ULDMA_CMD_REGION_UNEXPORT = 0x13,
	ULDMA_CMD_REGION_IMPORT = 0x14,
	ULDMA_CMD_REGION_QUERY = 0x15,
	ULDMA_CMD_REGION_CHARGE = 0x16,
	ULDMA_CMD_REGION_BLOCKS = 0x17,
	ULDMA_CMD_REGION_CLEANUP = 0x18,
	ULDMA_CMD_LMM = 0x19,
	ULDMA_CMD_REGION_WINDOW = 0x1a,
	ULDMA_CMD_CONTEXT_CREATE = 0x20,
	ULDMA_CMD_CONTEXT_DESTROY = 0x21,
	ULDMA_CMD_CONTEXT_STATS = 0x22,
	ULDMA_CMD_EVENTFD = 0x23,
	ULDMA_CMD_CONTEXT_MAP_OUT = 0x24,
	ULDMA_CMD_DMA = 0x30,
	ULDMA_CMD_DMA_WAIT = 0x31,
	ULDMA_CMD_SEGMENT_CREATE = 0x40,
	ULDMA_CMD_SEGMENT_ATTACH = 0x41,
	ULDMA_CMD_SEGMENT_DESTROY = 0x42,
	ULDMA_CMD_DOORBELL = 0x43,
	ULDMA_CMD_CONN_LISTEN = 0x50,
	ULDMA_CMD_CONN_ACCEPT = 0x51,
	ULDMA_CMD_CONN_CONNECT = 0x52,
	ULDMA_CMD_CONN_DISCONNECT = 0x53,
	ULDMA_CMD_CONN_PREPOST = 0x54,
	ULDMA_CMD_CONN_SEND = 0x55,
	ULDMA_CMD_CONN_RECV = 0x56,
	ULDMA_CMD_CONN_RECYCLE = 0x57,
	ULDMA_CMD_CONN_QUERY = 0x58,
	ULDMA_CMD_CONN_STREAM = 0x59,
	ULDMA_CMD_CONN_RING = 0x5a,
	ULDMA_CMD_ENDPOINT_CREATE = 0x60,
	ULDMA_CMD_ENDPOINT_CONNECT = 0x61,
	ULDMA_CMD_ENDPOINT_DESTROY = 0x62,
	ULDMA_CMD_ENDPOINT_WAIT = 0x63,
	ULDMA_CMD_MSG_SLOTS = 0x64,
	ULDMA_CMD_MSG_SEND = 0x65,
	ULDMA_CMD_MSG_RECV = 0x66,
	ULDMA_CMD_EXCHANGE_CREATE = 0x70,
	ULDMA_CMD_EXCHANGE_PROTECT = 0x71,
	ULDMA_CMD_EXCHANGE_RELEASE = 0x72,
	ULDMA_CMD_EXCHANGE_SWAP = 0x73,
};

#define ULDMA_IOC_NOP			_IO(ULDMA_TYPE, ULDMA_CMD_NOP)
#define ULDMA_IOC_QUERY			_IO(ULDMA_TYPE, ULDMA_CMD_QUERY)
#define ULDMA_IOC_REGION_REGISTER	_IO(ULDMA_TYPE, ULDMA_CMD_REGION_REGISTER)
#define ULDMA_IOC_REGION_UNREGISTER	_IO(ULDMA_TYPE, ULDMA_CMD_REGION_UNREGISTER)
#define ULDMA_IOC_REGION_EXPORT		_IO(ULDMA_TYPE, ULDMA_CMD_REGION_EXPORT)
#define ULDMA_IOC_REGION_UNEXPORT	_IO(ULDMA_TYPE, ULDMA_CMD_REGION_UNEXPORT)
#define ULDMA_IOC_REGION_IMPORT		_IO(ULDMA_TYPE, ULDMA_CMD_REGION_IMPORT)
#define ULDMA_IOC_REGION_QUERY		_IO(ULDMA_TYPE, ULDMA_CMD_REGION_QUERY)
#define ULDMA_IOC_REGION_CHARGE		_IO(ULDMA_TYPE, ULDMA_CMD_REGION_CHARGE)
#define ULDMA_IOC_REGION_BLOCKS		_IO(ULDMA_TYPE, ULDMA_CMD_REGION_BLOCKS)
#define ULDMA_IOC_REGION_CLEANUP	_IO(ULDMA_TYPE, ULDMA_CMD_REGION_CLEANUP)
#define ULDMA_IOC_LMM			_IO(ULDMA_TYPE, ULDMA_CMD_LMM)
#define ULDMA_IOC_REGION_WINDOW		_IO(ULDMA_TYPE, ULDMA_CMD_REGION_WINDOW)
#define ULDMA_IOC_CONTEXT_CREATE	_IO(ULDMA_TYPE, ULDMA_CMD_CONTEXT_CREATE)
#define ULDMA_IOC_CONTEXT_DESTROY	_IO(ULDMA_TYPE, ULDMA_CMD_CONTEXT_DESTROY)
#define ULDMA_IOC_CONTEXT_STATS		_IO(ULDMA_TYPE, ULDMA_CMD_CONTEXT_STATS)
#define ULDMA_IOC_EVENTFD		_IO(ULDMA_TYPE, ULDMA_CMD_EVENTFD)
#define ULDMA_IOC_CONTEXT_MAP_OUT	_IO(ULDMA_TYPE, ULDMA_CMD_CONTEXT_MAP_OUT)
#define ULDMA_IOC_DMA			_IO(ULDMA_TYPE, ULDMA_CMD_DMA)
#define ULDMA_IOC_DMA_WAIT		_IO(ULDMA_TYPE, ULDMA_CMD_DMA_WAIT)
#define ULDMA_IOC_SEGMENT_CREATE	_IO(ULDMA_TYPE, ULDMA_CMD_SEGMENT_CREATE)
#define ULDMA_IOC_SEGMENT_ATTACH	_IO(ULDMA_TYPE, ULDMA_CMD_SEGMENT_ATTACH)
#define ULDMA_IOC_SEGMENT_DESTROY	_IO(ULDMA_TYPE, ULDMA_CMD_SEGMENT_DESTROY)
#define ULDMA_IOC_DOORBELL		_IO(ULDMA_TYPE, ULDMA_CMD_DOORBELL)
#define ULDMA_IOC_PEER_QUERY		_IO(ULDMA_TYPE, ULDMA_CMD_PEER_QUERY)
#define ULDMA_IOC_CONN_LISTEN		_IO(ULDMA_TYPE, ULDMA_CMD_CONN_LISTEN)
#define ULDMA_IOC_CONN_ACCEPT		_IO(ULDMA_TYPE, ULDMA_CMD_CONN_ACCEPT)
#define ULDMA_IOC_CONN_CONNECT		_IO(ULDMA_TYPE, ULDMA_CMD_CONN_CONNECT)
#define ULDMA_IOC_CONN_DISCONNECT	_IO(ULDMA_TYPE, ULDMA_CMD_CONN_DISCONNECT)
#define ULDMA_IOC_CONN_PREPOST		_IO(ULDMA_TYPE, ULDMA_CMD_CONN_PREPOST)
#define ULDMA_IOC_CONN_SEND		_IO(ULDMA_TYPE, ULDMA_CMD_CONN_SEND)
#define ULDMA_IOC_CONN_RECV		_IO(ULDMA_TYPE, ULDMA_CMD_CONN_RECV)
#define ULDMA_IOC_CONN_RECYCLE		_IO(ULDMA_TYPE, ULDMA_CMD_CONN_RECYCLE)
#define ULDMA_IOC_CONN_QUERY		_IO(ULDMA_TYPE, ULDMA_CMD_CONN_QUERY)
#define ULDMA_IOC_CONN_STREAM		_IO(ULDMA_TYPE, ULDMA_CMD_CONN_STREAM)
#define ULDMA_IOC_CONN_RING		_IO(ULDMA_TYPE, ULDMA_CMD_CONN_RING)
#define ULDMA_IOC_ENDPOINT_CREATE	_IO(ULDMA_TYPE, ULDMA_CMD_ENDPOINT_CREATE)
#define ULDMA_IOC_ENDPOINT_CONNECT	_IO(ULDMA_TYPE, ULDMA_CMD_ENDPOINT_CONNECT)
#define ULDMA_IOC_ENDPOINT_DESTROY	_IO(ULDMA_TYPE, ULDMA_CMD_ENDPOINT_DESTROY)
#define ULDMA_IOC_ENDPOINT_WAIT		_IO(ULDMA_TYPE, ULDMA_CMD_ENDPOINT_WAIT)
#define ULDMA_IOC_MSG_SLOTS		_IO(ULDMA_TYPE, ULDMA_CMD_MSG_SLOTS)
#define ULDMA_IOC_MSG_SEND		_IO(ULDMA_TYPE, ULDMA_CMD_MSG_SEND)
#define ULDMA_IOC_MSG_RECV		_IO(ULDMA_TYPE, ULDMA_CMD_MSG_RECV)
#define ULDMA_IOC_EXCHANGE_CREATE	_IO(ULDMA_TYPE, ULDMA_CMD_EXCHANGE_CREATE)
#define ULDMA_IOC_EXCHANGE_PROTECT	_IO(ULDMA_TYPE, ULDMA_CMD_EXCHANGE_PROTECT)
#define ULDMA_IOC_EXCHANGE_RELEASE	_IO(ULDMA_TYPE, ULDMA_CMD_EXCHANGE_RELEASE)
#define ULDMA_IOC_EXCHANGE_SWAP		_IO(ULDMA_TYPE, ULDMA_CMD_EXCHANGE_SWAP)

/**
 * struct uldma_handle - an ioctl that takes nothing but a handle
 * @size: sizeof(struct uldma_handle)
 * @handle: what the call is about; zero where the call says so
 */
struct uldma_handle {
	__u32 size;
	__u32 handle;
};

/** define ULDMA_LINK_UP - bit of @out_link: the link to a peer is up */
#define ULDMA_LINK_UP (1U << 0)

/** define ULDMA_MAX_NODES - nodes that one link can join */
#define ULDMA_MAX_NODES 8

/**
 * enum uldma_backend - what joins the nodes
 * @ULDMA_BACKEND_ADAPTER: the uldma adapter: window, doorbells and an engine
 * @ULDMA_BACKEND_IVSHMEM: ivshmem-doorbell of QEMU: window and doorbells
 * @ULDMA_BACKEND_LOOPBACK: memory of this machine, whose devices are the nodes
 *
 * What needs an engine fails with EOPNOTSUPP where there is none.
 */
enum uldma_backend {
	ULDMA_BACKEND_ADAPTER = 0,
	ULDMA_BACKEND_IVSHMEM = 1,
	ULDMA_BACKEND_LOOPBACK = 2,
};

/**
 * struct uldma_query - what this device is and has
 * @size: sizeof(struct uldma_query)
 * @flags: zero
 * @out_abi_version: ULDMA_ABI_VERSION of the kernel
 * @out_node: number of this node on its link
 * @out_link: ULDMA_LINK_UP if any peer can be reached, or zero
 * @out_link_generation: counts how often a link to a peer came up
 * @out_contexts: register contexts that open files can share
 * @out_contexts_used: of these, how many are taken
 * @out_page_shift: log2 of the page that one shadow page stands for
 * @out_shadow_window_shift: log2 of the bytes of shadow space per context
 * @out_max_transfer: bytes that one initiation can move
 * @out_max_regions: regions that the device can hold
 * @out_regions: regions that the device holds, of all open files
 * @out_max_pages: pages that the device's translation table can hold
 * @out_pages: pages that it holds, of all open files
 * @out_window_size: bytes of each node's section of the window
 * @out_window_used: of these, how many segments, regions and connections take
 * @out_file_regions: regions and imports of this open file
 * @out_methods: mask of enum uldma_method that a context can have here and now
 * @out_mm_pinned: bytes that this open file's address space has pinned here
 * @out_nodes: nodes that the link joins, numbered from zero, with this one
 * @out_peers: mask of the nodes that can be reached now
 * @out_backend: enum uldma_backend
 * @out_connections: connections of all open files
 * @out_user_regions: regions and imports that the open file's user has, and memory
 *	that it gave to connections and that an engine reaches
 * @out_user_max_regions: of these, how many this open file's user can have
 * @out_user_pages: pages of the table that the user has, of registered and
 *	exchangeable memory, of memory given to connections, and of imports
 * @out_user_max_pages: of these, how many the user can have
 * @out_user_contexts: contexts that the user has now
 * @out_user_max_contexts: of these, how many the user can have
 * @out_user_exclusive_contexts: of them, how many the driver cannot take back
 *	for another open file while they are idle
 * @out_user_max_exclusive_contexts: of these, how many the user can have
 * @out_user_connections: connections that the user has: those that it asked for,
 *	those that came to its listeners, and those that have ended here and of
 *	which the peer has not let go
 * @out_user_max_connections: of these, how many the user can have
 * @out_user_listeners: ports at which the user listens
 * @out_user_max_listeners: of these, how many the user can have
 * @out_user_window: bytes of the window that the user has for segments, for
 *	regions, and for what its connections receive, until peers and the device
 *	have released them
 * @out_user_max_window: of these, how many the user can have
 * @out_user_requests: imports and attaches of the user that wait for an answer of
 *	a peer
 * @out_user_max_requests: of these, how many the user can have
 * @out_user_endpoints: endpoints of message connections that the user has
 * @out_user_max_endpoints: of these, how many the user can have
 * @out_completion_ns: nanoseconds that a thread loses by sleeping until a transfer
 *	completes, in place of polling for that; zero without an engine. The driver
 *	measures it, unless the parameter wakeup_us sets it
 * @out_user_transfers: transfers through the kernel (ULDMA_IOC_DMA) that the user has
 *	started and that have not ended
 * @out_user_max_transfers: of these, how many the user can have
 * @out_user_objects: open files that the user has, contexts of open files, whether
 *	they have registers now or not, and segments, created or attached
 * @out_user_max_objects: of these, how many the user can have
 *
 * The user of an open file is the one as whom the process ran that first opened
 * the device in this address space. It has no limits but the device's if that
 * process had CAP_SYS_RESOURCE.
 */
struct uldma_query {
	__u32 size;
	__u32 flags;
	__u32 out_abi_version;
	__u32 out_node;
	__u32 out_link;
	__u32 out_link_generation;
	__u32 out_contexts;
	__u32 out_contexts_used;
	__u32 out_page_shift;
	__u32 out_shadow_window_shift;
	__aligned_u64 out_max_transfer;
	__u32 out_max_regions;
	__u32 out_regions;
	__u32 out_max_pages;
	__u32 out_pages;
	__aligned_u64 out_window_size;
	__aligned_u64 out_window_used;
	__u32 out_file_regions;
	__u32 out_methods;
	__aligned_u64 out_mm_pinned;
	__u32 out_nodes;
	__u32 out_peers;
	__u32 out_backend;
	__u32 out_connections;
	__u32 out_user_regions;
	__u32 out_user_max_regions;
	__u32 out_user_pages;
	__u32 out_user_max_pages;
	__u32 out_user_contexts;
	__u32 out_user_max_contexts;
	__u32 out_user_exclusive_contexts;
	__u32 out_user_max_exclusive_contexts;
	__u32 out_user_connections;
	__u32 out_user_max_connections;
	__u32 out_user_listeners;
	__u32 out_user_max_listeners;
	__aligned_u64 out_user_window;
	__aligned_u64 out_user_max_window;
	__u32 out_user_requests;
	__u32 out_user_max_requests;
	__u32 out_user_endpoints;
	__u32 out_user_max_endpoints;
	__aligned_u64 out_completion_ns;
	__u32 out_user_transfers;
	__u32 out_user_max_transfers;
	__u32 out_user_objects;
	__u32 out_user_max_objects;
};

/**
 * struct uldma_peer_query - the link to one peer
 * @size: sizeof(struct uldma_peer_query)
 * @flags: zero
 * @node: the peer's number; EINVAL for this node's own, and for none
 * @out_link: ULDMA_LINK_UP, or zero
 * @out_generation: counts how often the link to this peer came up
 * @out_version: version of the link protocol that both speak; zero while down
 * @out_features: features that both have, by the bits of the handshake
 *	(Documentation/uldma/link.rst); zero while down
 * @out_slots: messages that can be in flight to the peer
 * @out_sent: messages that were sent to the peer
 * @out_received: messages that came from it
 * @out_doorbells: times that the peer's doorbell was rung for messages
 * @out_interrupts: doorbell interrupts of this device, from all peers
 * @out_polls: times that the driver polled for messages without an interrupt
 * @out_violations: times that the peer with this number broke the protocol
 * @out_doorbell_ns: how long a thread that sleeps takes to run after the peer has rung,
 *	as this node's driver has measured; an estimate before the first measurement
 */
struct uldma_peer_query {
	__u32 size;
	__u32 flags;
	__u32 node;
	__u32 out_link;
	__u32 out_generation;
	__u32 out_version;
	__u32 out_features;
	__u32 out_slots;
	__aligned_u64 out_sent;
	__aligned_u64 out_received;
	__aligned_u64 out_doorbells;
	__aligned_u64 out_interrupts;
	__aligned_u64 out_polls;
	__aligned_u64 out_violations;
	__aligned_u64 out_doorbell_ns;
};

/**
 * DOC: peers
 *
 * Where a structure that asks a peer has a field @peer, it is the number of a node
 * plus one, or zero for the other node of a link of two (EINVAL where there are
 * more). Where a structure names the node that may ask, zero stands for every node.
 */

/**
 * DOC: shares of users
 *
 * What all users share of a device is counted for each of them: regions,
 * imports, and memory given to connections that an engine reaches; pages of
 * registered and exchangeable memory, of memory given to connections and of
 * imports; contexts;
 * connections, and ports that have a listener; bytes of this node's section of
 * the window; requests that wait for an answer of a peer; endpoints; transfers
 * through the kernel that have not ended; and, together, open files, contexts of
 * open files, and segments that were created or attached. One that had no
 * CAP_SYS_RESOURCE when it opened the device can have as much as the module's
 * parameters user_regions, user_pages, user_contexts, user_exclusive_contexts,
 * user_connections, user_listeners, user_window_bytes, user_requests, user_endpoints,
 * user_transfers and user_objects say: unless they are set, half of the contexts, a
 * quarter of them exclusive, which the driver cannot take back for another open file,
 * of the window a quarter of what one peer can write, and a quarter of all else.
 * All such users together leave a quarter of the contexts that the driver can take
 * back, and 1 of 16 of all else.
 *
 * Connections that a peer has made, and window bytes for them, are counted for the
 * peer, too, also at listeners that have no limits: of what all such users can have
 * together, each peer has a part in reserve, which the others leave.
 *
 * A call that needs more fails with EDQUOT, open() too. For one context more, the driver takes
 * back one of the user's own that is idle, or the call fails with EBUSY. A
 * connection that a peer makes counts for the listener's user; where that user
 * can have no more, the peer's call fails with ECONNREFUSED. A connection that has
 * ended here counts until the peer has released it, too; so does what it, or a
 * segment, takes of the window. Where data goes through the window, each connection
 * takes 128 KiB of it. What the device does not release in time counts until the
 * driver is unbound.
 */

/** define ULDMA_ACCESS_READ - the device may read: a source of transfers */
#define ULDMA_ACCESS_READ (1U << 0)
/** define ULDMA_ACCESS_WRITE - the device may write: a destination */
#define ULDMA_ACCESS_WRITE (1U << 1)

/**
 * define ULDMA_REGISTER_OPTIMISTIC - pin nothing: the device accesses what is in
 *	memory, and a transfer ends with ULDMA_DMA_NOT_RESIDENT before the first
 *	page that is not; see Documentation/uldma/optimistic.rst
 */
#define ULDMA_REGISTER_OPTIMISTIC (1U << 16)
/**
 * define ULDMA_REGISTER_LOOK_UP - with ULDMA_REGISTER_OPTIMISTIC: a transfer that
 *	misses a page waits while the driver maps it, if that needs no I/O: it is
 *	in the page cache, or has to be copied for its writer
 */
#define ULDMA_REGISTER_LOOK_UP (1U << 17)
/**
 * define ULDMA_REGISTER_PAGE_IN - the same, whatever it takes: the page is read from
 *	its file or from swap, or made
 */
#define ULDMA_REGISTER_PAGE_IN (1U << 18)
/** define ULDMA_REGISTER_MAX_LIMIT_US - the longest that a transfer waits, in microseconds */
#define ULDMA_REGISTER_MAX_LIMIT_US 8388608

/**
 * struct uldma_region_register - pin a range of memory and name it
 * @size: sizeof(struct uldma_region_register)
 * @flags: ULDMA_ACCESS_READ, ULDMA_ACCESS_WRITE, or both; and
 *	ULDMA_REGISTER_OPTIMISTIC, or not; with that ULDMA_REGISTER_LOOK_UP or
 *	ULDMA_REGISTER_PAGE_IN, or neither
 * @addr: first byte; any alignment
 * @length: bytes; not zero
 * @out_handle: the region; never zero
 * @out_index: the region's index in the device's region table, which a size
 *	word names (ULDMA_SIZE_WORD_SRC_REGION_SHIFT)
 * @out_shadow_offset: mmap offset of the region's shadow pages
 * @out_shadow_length: bytes of shadow pages: the pages that the range touches;
 *	shadow byte (@addr modulo page size) stands for byte @addr
 * @limit_us: with ULDMA_REGISTER_LOOK_UP and ULDMA_REGISTER_PAGE_IN, the microseconds
 *	for which a transfer waits for a page, 1 to ULDMA_REGISTER_MAX_LIMIT_US; the
 *	driver takes the next power of two. Else zero
 * @reserved: zero
 *
 * The pages are charged to RLIMIT_MEMLOCK once per address space and page. The
 * region means the pages that are mapped now, whatever is mapped later: memory
 * that is unmapped, moved, discarded or truncated stays pinned for the region,
 * and the open file gets an event ULDMA_EVENT_STALE. A later registration of the
 * same addresses pins what is mapped there then.
 *
 * An open file can have no more regions than the module's parameter
 * max_file_regions (ENOSPC).
 */
struct uldma_region_register {
	__u32 size;
	__u32 flags;
	__aligned_u64 addr;
	__aligned_u64 length;
	__u32 out_handle;
	__u32 out_index;
	__aligned_u64 out_shadow_offset;
	__aligned_u64 out_shadow_length;
	__u32 limit_us;
	__u32 reserved;
};

/**
 * struct uldma_region_export - offer a region to the peer under a name
 * @size: sizeof(struct uldma_region_export)
 * @flags: ULDMA_ACCESS_READ, ULDMA_ACCESS_WRITE or both: what the peer may do;
 *	not more than the region allows (EACCES)
 * @handle: the region, not an import
 * @peer: the node that may import it, by its number plus one, or zero for all
 * @name: what the peer's import must name; not zero, unique on this node; a
 *	process that does not know it cannot import, so pick it at random where
 *	that matters
 */
struct uldma_region_export {
	__u32 size;
	__u32 flags;
	__u32 handle;
	__u32 peer;
	__aligned_u64 name;
};

/**
 * struct uldma_region_import - gain access to a region that the peer exports
 * @size: sizeof(struct uldma_region_import)
 * @flags: the access that is needed, as ULDMA_ACCESS_*; EACCES if the export
 *	gives less
 * @name: name of the export
 * @timeout_ns: how long to wait for the peer's answer
 * @out_handle: the import, used as a region's handle
 * @out_index: as in struct uldma_region_register
 * @out_length: bytes of the peer's region
 * @out_shadow_offset: mmap offset of the import's shadow pages; the first
 *	shadow byte stands for the first byte of the peer's region
 * @out_shadow_length: bytes of shadow pages
 * @peer: whose region; see DOC: peers
 * @reserved: zero
 */
struct uldma_region_import {
	__u32 size;
	__u32 flags;
	__aligned_u64 name;
	__aligned_u64 timeout_ns;
	__u32 out_handle;
	__u32 out_index;
	__aligned_u64 out_length;
	__aligned_u64 out_shadow_offset;
	__aligned_u64 out_shadow_length;
	__u32 peer;
	__u32 reserved;
};

/** define ULDMA_REGION_IMPORT - the handle is an import */
#define ULDMA_REGION_IMPORT (1U << 8)
/** define ULDMA_REGION_EXPORTED - the region is exported */
#define ULDMA_REGION_EXPORTED (1U << 9)
/** define ULDMA_REGION_STALE - @out_stale is not zero */
#define ULDMA_REGION_STALE (1U << 10)
/** define ULDMA_REGION_OPTIMISTIC - the region pins nothing */
#define ULDMA_REGION_OPTIMISTIC (1U << 11)

/**
 * struct uldma_region_query - what a region is
 * @size: sizeof(struct uldma_region_query)
 * @flags: zero
 * @handle: the region or import
 * @out_flags: ULDMA_ACCESS_* and ULDMA_REGION_*
 * @out_addr: first byte, as registered; zero for an import and for memory of the driver
 * @out_length: bytes
 * @out_pages: pages that the region touches
 * @out_stale: bytes of these pages whose addresses no longer mean them
 * @out_areas: locked memory areas that make up the region; zero where @out_addr is,
 *	and with ULDMA_REGION_OPTIMISTIC
 * @reserved: zero
 */
struct uldma_region_query {
	__u32 size;
	__u32 flags;
	__u32 handle;
	__u32 out_flags;
	__aligned_u64 out_addr;
	__aligned_u64 out_length;
	__aligned_u64 out_pages;
	__aligned_u64 out_stale;
	__u32 out_areas;
	__u32 reserved;
};

/**
 * struct uldma_region_charge - what a registration would charge
 * @size: sizeof(struct uldma_region_charge)
 * @flags: as in struct uldma_region_register
 * @addr: as there
 * @length: as there
 * @out_charge: bytes that registering the range now would charge
 * @out_locked: bytes of the range's pages that are locked already
 * @out_pinned: bytes of the address space that are charged now, for this device
 *	and for all else (VmPin)
 * @out_limit: RLIMIT_MEMLOCK of the caller; all ones if it does not apply
 *
 * Nothing is pinned or faulted in, so this tells neither whether the memory can
 * be pinned, nor the future: addresses that have changed since they were locked
 * count as locked until the driver has revalidated them.
 */
struct uldma_region_charge {
	__u32 size;
	__u32 flags;
	__aligned_u64 addr;
	__aligned_u64 length;
	__aligned_u64 out_charge;
	__aligned_u64 out_locked;
	__aligned_u64 out_pinned;
	__aligned_u64 out_limit;
};

/** define ULDMA_BLOCKS_PAGES - one block per page, also where pages are adjacent */
#define ULDMA_BLOCKS_PAGES (1U << 0)

/**
 * struct uldma_block - memory that is consecutive for the device
 * @address: bus address, as dma_map_page() gave it
 * @length: bytes
 */
struct uldma_block {
	__aligned_u64 address;
	__aligned_u64 length;
};

/**
 * struct uldma_region_blocks - the bus addresses of a region
 * @size: sizeof(struct uldma_region_blocks)
 * @flags: ULDMA_BLOCKS_PAGES, or zero to merge adjacent pages
 * @handle: the region, neither an import nor in the window (EINVAL)
 * @capacity: blocks that there is room for at @blocks
 * @first_page: page of the region to start from
 * @blocks: address of an array of struct uldma_block
 * @out_count: blocks written
 * @reserved: zero
 * @out_next_page: where to go on; the number of the region's pages at the end
 *
 * Blocks cover whole pages. Bus addresses tell the layout of memory, so this
 * needs CAP_SYS_ADMIN (EPERM).
 */
struct uldma_region_blocks {
	__u32 size;
	__u32 flags;
	__u32 handle;
	__u32 capacity;
	__aligned_u64 first_page;
	__aligned_u64 blocks;
	__u32 out_count;
	__u32 reserved;
	__aligned_u64 out_next_page;
};

/** define ULDMA_LMM_CACHE_ON - keep the pins of regions that this open file ends */
#define ULDMA_LMM_CACHE_ON (1U << 0)
/** define ULDMA_LMM_CACHE_OFF - unpin regions that this open file ends */
#define ULDMA_LMM_CACHE_OFF (1U << 1)

/**
 * struct uldma_lmm - the locked memory of the open file's address space
 * @size: sizeof(struct uldma_lmm)
 * @flags: ULDMA_LMM_CACHE_ON, ULDMA_LMM_CACHE_OFF, or zero to only ask
 * @out_areas: locked memory areas
 * @out_max_regions: regions and imports that one open file can have
 * @out_locked: bytes locked, each page counted once
 * @out_cached: bytes of ended regions that the cache holds; what several of
 *	them or a live region share counts for each
 * @out_cached_regions: ended regions that the cache holds
 * @reserved: zero
 * @out_cache_max_regions: most that it holds
 * @out_cache_max_bytes: bytes of ended regions that it holds at most
 * @out_cache_hits: registrations of this address space that had to pin nothing
 * @out_cache_misses: those that had to
 * @out_pins: pages that registrations have pinned
 * @out_revalidations: times that the driver checked whether locked addresses
 *	still mean the pinned pages, after an invalidation by the kernel's mm
 *
 * The cache is off for an open file that did not turn it on. What it holds stays
 * charged; it is emptied when memory is short, when a registration would exceed
 * a limit, and when the address space's last open file is closed.
 */
struct uldma_lmm {
	__u32 size;
	__u32 flags;
	__u32 out_areas;
	__u32 out_max_regions;
	__aligned_u64 out_locked;
	__aligned_u64 out_cached;
	__u32 out_cached_regions;
	__u32 reserved;
	__aligned_u64 out_cache_max_regions;
	__aligned_u64 out_cache_max_bytes;
	__aligned_u64 out_cache_hits;
	__aligned_u64 out_cache_misses;
	__aligned_u64 out_pins;
	__aligned_u64 out_revalidations;
};

/**
 * DOC: extended shadow addressing
 *
 * An open file that has a context and has mapped the shadow pages of its regions
 * starts a transfer with one store and one load, aligned, of eight bytes:
 *
 *  - store the size word to the destination's shadow address,
 *  - load from the source's shadow address.
 *
 * Shadow addresses have their lowest three bits cleared; the size word carries
 * them. The load returns a ticket (greater than zero), or a negative
 * enum uldma_dma_status; zero or all ones if no device answers. A region index
 * of zero in the size word limits the transfer on that side to the page that
 * the shadow address names.
 *
 * Two threads that share a context must not interleave these accesses.
 */

/** define ULDMA_SIZE_WORD_BYTES_MASK - bits 29..0: bytes to move, not zero */
#define ULDMA_SIZE_WORD_BYTES_MASK 0x3fffffff
/** define ULDMA_SIZE_WORD_SRC_LOW_SHIFT - bits 32..30: source address modulo 8 */
#define ULDMA_SIZE_WORD_SRC_LOW_SHIFT 30
/** define ULDMA_SIZE_WORD_DST_LOW_SHIFT - bits 35..33: destination modulo 8 */
#define ULDMA_SIZE_WORD_DST_LOW_SHIFT 33
/** define ULDMA_SIZE_WORD_LOW_MASK - mask of each of these two fields */
#define ULDMA_SIZE_WORD_LOW_MASK 0x7
/** define ULDMA_SIZE_WORD_SRC_REGION_SHIFT - bits 49..36: source's @out_index */
#define ULDMA_SIZE_WORD_SRC_REGION_SHIFT 36
/** define ULDMA_SIZE_WORD_DST_REGION_SHIFT - bits 63..50: destination's */
#define ULDMA_SIZE_WORD_DST_REGION_SHIFT 50
/** define ULDMA_SIZE_WORD_REGION_MASK - mask of each of these two fields */
#define ULDMA_SIZE_WORD_REGION_MASK 0x3fff

/**
 * enum uldma_dma_status - why an initiation was refused or a transfer failed
 * @ULDMA_DMA_OK: the transfer is complete
 * @ULDMA_DMA_NO_ARGS: a load came without a store before it
 * @ULDMA_DMA_BAD_SIZE: zero bytes
 * @ULDMA_DMA_BAD_ACCESS: not an aligned access of eight (or four) bytes
 * @ULDMA_DMA_NOT_VALID: no such page or region
 * @ULDMA_DMA_NOT_OWNER: the page or region belongs to another address space
 * @ULDMA_DMA_NO_RIGHT: source not readable or destination not writable
 * @ULDMA_DMA_BOUNDS: the transfer would leave the region or the page
 * @ULDMA_DMA_QUEUE_FULL: too many transfers of this context are waiting
 * @ULDMA_DMA_DISABLED: the context or the device is off
 * @ULDMA_DMA_LINK_DOWN: the peer is not reachable, or the import is stale
 * @ULDMA_DMA_REMOTE: the peer's table does not allow the access
 * @ULDMA_DMA_ABORTED: stopped by unregistration, reset or close
 * @ULDMA_DMA_BUS_ERROR: a bus address did not answer
 * @ULDMA_DMA_NOT_RUNNING: the method needs scheduler notifications, and the
 *	last one for this CPU did not name this context
 * @ULDMA_DMA_MIXED: the arguments came from different contexts
 * @ULDMA_DMA_BAD_KEY: too many wrong keys
 * @ULDMA_DMA_NOT_ALIGNED: the method cannot carry this address or length
 * @ULDMA_DMA_NOT_READY: the peer has not posted a receive descriptor in time
 * @ULDMA_DMA_TOO_LONG: the message is longer than the posted buffer, or than
 *	the longest message of the endpoint
 * @ULDMA_DMA_NOT_RESIDENT: the next page of memory that is not pinned is not in
 *	memory now; the bytes before it were moved
 * @ULDMA_DMA_NO_MAPPING: the same, and its owner has nothing mapped there
 * @ULDMA_DMA_NOT_LOCKED: the same, and it did not come in time
 * @ULDMA_DMA_PAGE_RIGHT: the same, and its owner may not access it in this way
 * @ULDMA_DMA_REVOKED: the peer has ended the region, or its export; import anew
 *
 * The load that initiates returns the negated value of a refusal; completion
 * records carry the value itself.
 */
enum uldma_dma_status {
	ULDMA_DMA_OK = 0,
	ULDMA_DMA_NO_ARGS = 1,
	ULDMA_DMA_BAD_SIZE = 2,
	ULDMA_DMA_BAD_ACCESS = 3,
	ULDMA_DMA_NOT_VALID = 4,
	ULDMA_DMA_NOT_OWNER = 5,
	ULDMA_DMA_NO_RIGHT = 6,
	ULDMA_DMA_BOUNDS = 7,
	ULDMA_DMA_QUEUE_FULL = 8,
	ULDMA_DMA_DISABLED = 9,
	ULDMA_DMA_LINK_DOWN = 10,
	ULDMA_DMA_REMOTE = 11,
	ULDMA_DMA_ABORTED = 12,
	ULDMA_DMA_BUS_ERROR = 13,
	ULDMA_DMA_NOT_RUNNING = 14,
	ULDMA_DMA_MIXED = 15,
	ULDMA_DMA_BAD_KEY = 16,
	ULDMA_DMA_NOT_ALIGNED = 17,
	ULDMA_DMA_NOT_READY = 18,
	ULDMA_DMA_TOO_LONG = 19,
	ULDMA_DMA_NOT_RESIDENT = 20,
	ULDMA_DMA_NO_MAPPING = 21,
	ULDMA_DMA_NOT_LOCKED = 22,
	ULDMA_DMA_PAGE_RIGHT = 23,
	ULDMA_DMA_REVOKED = 24,
};

/**
 * enum uldma_method - initiation methods, as bit numbers
 * @ULDMA_METHOD_EXTENDED_SHADOW: the shadow address names the context, which
 *	has registers of its own for arguments
 * @ULDMA_METHOD_EXTENDED_SHADOW_SHARED: the same, but all contexts share one set
 *	of registers, and a store and a load of different contexts start nothing
 * @ULDMA_METHOD_KEY: stores of a key, see DOC: key-based initiation
 * @ULDMA_METHOD_SINGLE_STORE: one store, see DOC: single-store initiation
 * @ULDMA_METHOD_QUEUE: descriptors in memory, see struct uldma_descriptor
 * @ULDMA_METHOD_REPEATED_5: arguments passed repeatedly by five accesses, see
 *	DOC: repeated passing of arguments
 * @ULDMA_METHOD_SHRIMP_1: one access to a page that is mapped out, see struct
 *	uldma_map_out
 * @ULDMA_METHOD_SHRIMP_2_ABORT: as extended shadow addressing, with registers
 *	for each CPU that a context switch clears
 * @ULDMA_METHOD_FLASH: the same, where the context switch names the context
 *	that runs next
 * @ULDMA_METHOD_FETCH_ADD: a load from a shadow address adds one to the word of
 *	eight bytes that it stands for, and returns what the word was; all ones
 *	if that is not possible
 * @ULDMA_METHOD_PAL: as ULDMA_METHOD_SHRIMP_2, for programs that restart what was
 *	preempted (rseq); protects no process from others
 * @ULDMA_METHOD_SHRIMP_2: registers that all contexts share, never cleared
 * @ULDMA_METHOD_FLASH_SINGLE: as ULDMA_METHOD_FLASH with one register for all CPUs
 * @ULDMA_METHOD_REPEATED_3: arguments passed repeatedly by three accesses
 * @ULDMA_METHOD_REPEATED_4: arguments passed repeatedly by four accesses
 *
 * Documentation/uldma/initiation-methods.rst describes how each works, and what
 * it protects from.
 */
enum uldma_method {
	ULDMA_METHOD_EXTENDED_SHADOW = 0,
	ULDMA_METHOD_EXTENDED_SHADOW_SHARED = 1,
	ULDMA_METHOD_KEY = 2,
	ULDMA_METHOD_SINGLE_STORE = 3,
	ULDMA_METHOD_QUEUE = 4,
	ULDMA_METHOD_REPEATED_5 = 5,
	ULDMA_METHOD_SHRIMP_1 = 6,
	ULDMA_METHOD_SHRIMP_2_ABORT = 7,
	ULDMA_METHOD_FLASH = 8,
	ULDMA_METHOD_FETCH_ADD = 9,
	ULDMA_METHOD_PAL = 16,
	ULDMA_METHOD_SHRIMP_2 = 17,
	ULDMA_METHOD_FLASH_SINGLE = 18,
	ULDMA_METHOD_REPEATED_3 = 19,
	ULDMA_METHOD_REPEATED_4 = 20,
};

/**
 * define ULDMA_METHODS_INSECURE - methods by which other processes can misuse
 *
 * They exist for comparison. A context can have one only if the module was
 * loaded with insecure_methods=1 (EPERM), and they share nothing with contexts
 * that have other methods.
 */
#define ULDMA_METHODS_INSECURE 0xffff0000U

/**
 * define ULDMA_METHODS_SCHED_NOTIFY - methods that need scheduler notifications
 *
 * The driver writes to the device, at each context switch of each CPU, which
 * context runs there now. Each address space can have one such context (EBUSY).
 */
#define ULDMA_METHODS_SCHED_NOTIFY 0x00040180U

/** define ULDMA_CONTEXT_NO_DATA - transfers end well at once, and move nothing */
#define ULDMA_CONTEXT_NO_DATA (1U << 0)

/**
 * struct uldma_context_create - take a register context for this open file
 * @size: sizeof(struct uldma_context_create)
 * @flags: ULDMA_CONTEXT_NO_DATA, to measure initiation alone, or zero
 * @method: enum uldma_method
 * @out_context: number of the context
 * @out_page_offset: mmap offset of the context page (device registers)
 * @out_status_offset: mmap offset of the status page, struct
 *	uldma_status_page, read-only memory that the device writes
 * @out_page_length: bytes of each of the pages
 * @reserved: zero
 * @out_key: ULDMA_METHOD_KEY: what to store; else zero
 * @out_queue_offset: ULDMA_METHOD_QUEUE: mmap offset of a page of
 *	ULDMA_STATUS_RECORDS struct uldma_descriptor; else zero
 *
 * EBUSY: the open file has one, or all are in use; DMA by ULDMA_IOC_DMA works
 * without a context. The driver may give the registers of an idle context to
 * another open file; the next access of the owner gets registers again, and
 * arguments that were passed in part are lost. EPERM: the method is one of
 * ULDMA_METHODS_INSECURE.
 */
struct uldma_context_create {
	__u32 size;
	__u32 flags;
	__u32 method;
	__u32 out_context;
	__aligned_u64 out_page_offset;
	__aligned_u64 out_status_offset;
	__u32 out_page_length;
	__u32 reserved;
	__aligned_u64 out_key;
	__aligned_u64 out_queue_offset;
};

/**
 * DOC: key-based initiation
 *
 * Four accesses: store the key to the destination's shadow address, store it
 * to the source's, store the size word anywhere in the context page, and load
 * from the context page at offset zero, which starts the transfer and returns
 * the bytes still to go, or a negative enum uldma_dma_status. Each transfer that
 * is started takes the next ticket of the context; refusals take none. A load
 * without any arguments starts nothing, and tells what is to go of the last
 * transfer. The key's lowest four bits are the number of the context and the
 * others are secret. Both regions have to be writable, since both addresses are
 * passed by stores.
 *
 * The device refuses a context whose owner stores wrong keys too often, until the
 * owner takes another one.
 */

/** define ULDMA_KEY_CONTEXT_MASK - bits 3..0 of a key: the context */
#define ULDMA_KEY_CONTEXT_MASK 0xf

/**
 * DOC: single-store initiation
 *
 * One store to the destination's shadow address, of a word that names the
 * source. Nothing is loaded: each store takes the next ticket of the context, and
 * the status page reports how it ended, also when it was refused. Addresses
 * and length are multiples of eight. No more than ULDMA_STATUS_RECORDS
 * transfers may be under way: stores beyond that are lost, and counted by
 * @refused of struct uldma_status_page.
 */

/** define ULDMA_SINGLE_STORE_LENGTH_MASK - bits 17..0: length / 8, not zero */
#define ULDMA_SINGLE_STORE_LENGTH_MASK 0x3ffff
/** define ULDMA_SINGLE_STORE_SRC_OFFSET_SHIFT - bits 35..18: offset / 8 of the
 * first byte in the source region
 */
#define ULDMA_SINGLE_STORE_SRC_OFFSET_SHIFT 18
/** define ULDMA_SINGLE_STORE_SRC_OFFSET_MASK - mask of this field */
#define ULDMA_SINGLE_STORE_SRC_OFFSET_MASK 0x3ffff
/** define ULDMA_SINGLE_STORE_SRC_REGION_SHIFT - bits 49..36: source's @out_index,
 * not zero
 */
#define ULDMA_SINGLE_STORE_SRC_REGION_SHIFT 36
/** define ULDMA_SINGLE_STORE_DST_REGION_SHIFT - bits 63..50: destination's, or
 * zero for what fits in its page
 */
#define ULDMA_SINGLE_STORE_DST_REGION_SHIFT 50

/**
 * DOC: repeated passing of arguments
 *
 * ULDMA_METHOD_REPEATED_5 is five accesses: store the size word to the
 * destination's shadow address, load from the source's, and both again, then
 * load from the destination's. The loads return, in bits 11..0,
 * ULDMA_REPEATED_OK1, _OK2 and _OK3, and the last one the ticket in the bits
 * above. Anything else means to begin anew; a negative value is a negated enum
 * uldma_dma_status. The destination has to be readable as well.
 *
 * ULDMA_METHOD_REPEATED_4 leaves the last load out, and its second load returns
 * ULDMA_REPEATED_OK3. ULDMA_METHOD_REPEATED_3 is a load from the source's
 * address (ULDMA_REPEATED_OK1), a store of the size word to the destination's
 * and a load from the source's again (ULDMA_REPEATED_OK3).
 */

/** define ULDMA_REPEATED_CODE_MASK - bits 11..0 of what a load returns */
#define ULDMA_REPEATED_CODE_MASK 0xfff
/** define ULDMA_REPEATED_TICKET_SHIFT - bits above: with ULDMA_REPEATED_OK3 the ticket */
#define ULDMA_REPEATED_TICKET_SHIFT 12
/** define ULDMA_REPEATED_FAIL - an access came that was not expected */
#define ULDMA_REPEATED_FAIL 0x000
/** define ULDMA_REPEATED_OK1 - the source was passed the first time */
#define ULDMA_REPEATED_OK1 0x001
/** define ULDMA_REPEATED_OK2 - the source was passed the second time */
#define ULDMA_REPEATED_OK2 0x002
/** define ULDMA_REPEATED_OK3 - the transfer was started */
#define ULDMA_REPEATED_OK3 0x003

/**
 * struct uldma_map_out - say where pages go by ULDMA_METHOD_SHRIMP_1
 * @size: sizeof(struct uldma_map_out)
 * @flags: zero
 * @src: region whose pages are mapped out; readable, not an import
 * @dst: region or import that they go to; writable; zero to end it
 * @src_page: first page of @src
 * @dst_page: first page of @dst
 * @pages: how many; not zero
 * @reserved: zero
 *
 * A load from shadow byte N of a page that is mapped out, N a multiple of
 * eight, moves its first N + 8 bytes to the page that it is mapped out to, and
 * returns the ticket or a negative enum uldma_dma_status. EINVAL: a page that a
 * region does not have, or one that it has in part only.
 *
 * A page stays mapped out as long as it is locked. Once the page that it goes to
 * is not locked any more, initiations are refused, or go to a page of the same
 * address space that was registered since; so end it before.
 */
struct uldma_map_out {
	__u32 size;
	__u32 flags;
	__u32 src;
	__u32 dst;
	__u32 src_page;
	__u32 dst_page;
	__u32 pages;
	__u32 reserved;
};

/** define ULDMA_STATUS_RECORDS - completion records of a status page */
#define ULDMA_STATUS_RECORDS 64

/** define ULDMA_COMPLETION_MORE - the message goes on in the next reception */
#define ULDMA_COMPLETION_MORE (1U << 0)
/** define ULDMA_COMPLETION_REDIRECTED - the message is where it was redirected */
#define ULDMA_COMPLETION_REDIRECTED (1U << 1)

/**
 * struct uldma_completion - how one transfer ended
 * @ticket: which one; the record's place is @ticket % ULDMA_STATUS_RECORDS
 * @bytes: how many bytes were moved; for ULDMA_OP_FETCH_ADD and
 *	ULDMA_OP_COMPARE_SWAP what the word was
 * @status: enum uldma_dma_status
 * @flags: of a reception, ULDMA_COMPLETION_MORE and ULDMA_COMPLETION_REDIRECTED;
 *	else zero
 */
struct uldma_completion {
	__aligned_u64 ticket;
	__aligned_u64 bytes;
	__u32 status;
	__u32 flags;
};

/**
 * struct uldma_status_page - what the device writes for one context
 * @completed: highest ticket that has ended; tickets end in order; written
 *	after the record, so load it with acquire ordering
 * @failed: how many of them did not end with ULDMA_DMA_OK
 * @refused: how many initiations got no ticket
 * @wakeup: ULDMA_METHOD_QUEUE: not zero while the device does not poll the
 *	queue: store to the context page to wake it; of receptions: not zero
 *	while a send waits for a receive descriptor that the device does not poll for
 * @notify: of receptions, written by the receiver: not zero: interrupt and store zero
 *	here once @completed, or @received of a stream, is not below this
 * @received: of the receptions of a stream: bytes that were received
 * @sent: of the receptions of a stream: bytes that the same endpoint has sent
 * @torn: of the receptions of a stream: not zero if a send of the same endpoint has
 *	failed
 * @records: the last ULDMA_STATUS_RECORDS completions
 */
struct uldma_status_page {
	__aligned_u64 completed;
	__aligned_u64 failed;
	__aligned_u64 refused;
	__aligned_u64 wakeup;
	__aligned_u64 notify;
	__aligned_u64 received;
	__aligned_u64 sent;
	__aligned_u64 torn;
	struct uldma_completion records[ULDMA_STATUS_RECORDS];
};

/**
 * enum uldma_op - what a descriptor asks for
 * @ULDMA_OP_COPY: move @length bytes
 * @ULDMA_OP_FETCH_ADD: add @operand to the word of eight bytes at the
 *	destination, which is aligned, readable and writable
 * @ULDMA_OP_COMPARE_SWAP: write @operand there if the word is @compare
 * @ULDMA_OP_NOP: nothing; ends after all before it
 * @ULDMA_OP_SEND: a message of @length bytes from @src to the endpoint that
 *	endpoint @dst is connected to; zero bytes are a message, too
 * @ULDMA_OP_RECV: in a receive ring only: room for a message of at most @length
 *	bytes in @dst
 */
enum uldma_op {
	ULDMA_OP_COPY = 0,
	ULDMA_OP_FETCH_ADD = 1,
	ULDMA_OP_COMPARE_SWAP = 2,
	ULDMA_OP_NOP = 3,
	ULDMA_OP_SEND = 4,
	ULDMA_OP_RECV = 5,
};

/** define ULDMA_DESC_FENCE - begin only after all descriptors before have ended */
#define ULDMA_DESC_FENCE (1U << 0)
/** define ULDMA_DESC_LINK - if this ends badly, the next one ends as aborted */
#define ULDMA_DESC_LINK (1U << 1)
/** define ULDMA_DESC_MORE - ULDMA_OP_SEND: the next one continues the message */
#define ULDMA_DESC_MORE (1U << 2)
/** define ULDMA_DESC_REDIRECT - ULDMA_OP_RECV: the message may be redirected */
#define ULDMA_DESC_REDIRECT (1U << 3)

/**
 * enum uldma_redirect - @operand of a descriptor with ULDMA_DESC_REDIRECT
 * @ULDMA_REDIRECT_NONE: the message goes to @dst
 * @ULDMA_REDIRECT_READY: it goes to @src, where there is room for @compare bytes;
 *	a longer one goes to @dst
 * @ULDMA_REDIRECT_TAKEN: the device has taken the descriptor
 */
enum uldma_redirect {
	ULDMA_REDIRECT_NONE = 0,
	ULDMA_REDIRECT_READY = 1,
	ULDMA_REDIRECT_TAKEN = 2,
};

/**
 * struct uldma_descriptor - one operation of ULDMA_METHOD_QUEUE
 * @ticket: the number of this descriptor, counted from one; its place is
 *	@ticket % ULDMA_STATUS_RECORDS; stored last, with release ordering, and
 *	not before the one that had this place has ended
 * @op: enum uldma_op
 * @flags: ULDMA_DESC_FENCE, ULDMA_DESC_LINK
 * @src: source's @out_index; zero where there is none
 * @dst: destination's @out_index
 * @src_offset: first byte, from the start of the region
 * @dst_offset: first byte, from the start of the region
 * @length: bytes
 * @operand: see enum uldma_op
 * @compare: see enum uldma_op
 *
 * The device polls the place of the next ticket. After a while without any it
 * sets @wakeup of the status page, polls once more, and sleeps; so load @wakeup
 * after storing the ticket, with a full barrier between. Each descriptor gets a
 * completion record, and they end in order. What cannot be done ends with
 * a status and moves nothing: an unknown @op or flag with ULDMA_DMA_NOT_VALID.
 * @length is ignored by operations on one word.
 */
struct uldma_descriptor {
	__aligned_u64 ticket;
	__u32 op;
	__u32 flags;
	__u32 src;
	__u32 dst;
	__aligned_u64 src_offset;
	__aligned_u64 dst_offset;
	__aligned_u64 length;
	__aligned_u64 operand;
	__aligned_u64 compare;
};

/**
 * struct uldma_context_stats - the device's counters of this open file's context
 * @size: sizeof(struct uldma_context_stats)
 * @flags: zero
 * @out_shadow_stores: stores to shadow pages
 * @out_shadow_loads: loads from shadow pages
 * @out_page_stores: stores to the context page
 * @out_page_loads: loads from the context page
 * @out_initiations: transfers started
 * @out_refused: initiations refused
 * @out_completed: transfers ended
 * @out_bytes: bytes moved
 * @out_bad_keys: stores of this open file that named a wrong key
 */
struct uldma_context_stats {
	__u32 size;
	__u32 flags;
	__aligned_u64 out_shadow_stores;
	__aligned_u64 out_shadow_loads;
	__aligned_u64 out_page_stores;
	__aligned_u64 out_page_loads;
	__aligned_u64 out_initiations;
	__aligned_u64 out_refused;
	__aligned_u64 out_completed;
	__aligned_u64 out_bytes;
	__aligned_u64 out_bad_keys;
};

/**
 * struct uldma_eventfd - signal an eventfd whenever an event becomes pending
 * @size: sizeof(struct uldma_eventfd)
 * @flags: zero
 * @fd: an eventfd, replaces the one set before; -1 to remove it
 * @reserved: zero
 */
struct uldma_eventfd {
	__u32 size;
	__u32 flags;
	__s32 fd;
	__u32 reserved;
};

/**
 * struct uldma_dma - start a transfer through the kernel
 * @size: sizeof(struct uldma_dma)
 * @flags: zero
 * @src: region or import to read from
 * @dst: region or import to write to
 * @src_offset: first byte, from the start of @src
 * @dst_offset: first byte, from the start of @dst
 * @length: bytes; not zero and not more than @out_max_transfer of the query
 * @out_ticket: names the transfer in struct uldma_dma_wait
 *
 * EINVAL when the range leaves a region, EACCES when @src is not readable or
 * @dst not writable, or when both are imports. EDQUOT when as many transfers of
 * the user have not ended as its share is, EBUSY when all of the device's have not.
 */
struct uldma_dma {
	__u32 size;
	__u32 flags;
	__u32 src;
	__u32 dst;
	__aligned_u64 src_offset;
	__aligned_u64 dst_offset;
	__aligned_u64 length;
	__aligned_u64 out_ticket;
};

/** define ULDMA_WAIT_CONTEXT - @ticket came from this open file's context */
#define ULDMA_WAIT_CONTEXT (1U << 0)

/**
 * struct uldma_dma_wait - sleep until a transfer has ended
 * @size: sizeof(struct uldma_dma_wait)
 * @flags: ULDMA_WAIT_CONTEXT for a transfer started from user level; zero for
 *	one started by ULDMA_IOC_DMA
 * @ticket: the transfer
 * @timeout_ns: how long to wait; zero to only ask
 * @out_bytes: bytes that were moved
 * @out_status: enum uldma_dma_status
 * @reserved: zero
 *
 * ETIMEDOUT when it has not ended in time; ENOENT when the ticket was never
 * given out to this open file, or its record was overwritten since. A program
 * gives out the tickets of ULDMA_METHOD_QUEUE itself, ULDMA_STATUS_RECORDS at
 * most ahead of the device.
 */
struct uldma_dma_wait {
	__u32 size;
	__u32 flags;
	__aligned_u64 ticket;
	__aligned_u64 timeout_ns;
	__aligned_u64 out_bytes;
	__u32 out_status;
	__u32 reserved;
};

/**
 * struct uldma_segment_create - take a part of this node's section
 * @size: sizeof(struct uldma_segment_create)
 * @flags: zero
 * @name: what the peer's attach must name; not zero, unique on this node
 * @length: bytes, rounded up to pages
 * @out_handle: the segment
 * @peer: the node that may attach, the only one that can write; see DOC: peers
 * @out_offset: mmap offset; the mapping can be read and written here, but the
 *	protocol is that the peer writes and this side reads
 * @out_length: bytes that can be mapped, zeroed
 */
struct uldma_segment_create {
	__u32 size;
	__u32 flags;
	__aligned_u64 name;
	__aligned_u64 length;
	__u32 out_handle;
	__u32 peer;
	__aligned_u64 out_offset;
	__aligned_u64 out_length;
};

/**
 * struct uldma_segment_attach - reach a segment that the peer created
 * @size: sizeof(struct uldma_segment_attach)
 * @flags: zero
 * @name: name of the segment
 * @timeout_ns: how long to wait for the peer's answer
 * @out_handle: this side's handle of the segment
 * @reserved: zero
 * @out_offset: mmap offset; stores to the mapping appear at the peer
 * @out_length: bytes that can be mapped
 * @peer: whose segment; see DOC: peers
 * @reserved2: zero
 *
 * When the peer destroys the segment, or the link goes down, a doorbell event
 * comes, and the mapping becomes memory of this process only: stores lead
 * nowhere, but do not fail. ULDMA_IOC_DOORBELL fails with ESTALE then.
 *
 * Both mappings of a segment are write-combining memory: stores become visible
 * in any order, and loads pass each other, unless a fence for such memory stands
 * between them (x86: SFENCE before the store that says that data is there,
 * LFENCE after the load that finds it). ULDMA_IOC_DOORBELL comes after all
 * earlier stores of the thread.
 */
struct uldma_segment_attach {
	__u32 size;
	__u32 flags;
	__aligned_u64 name;
	__aligned_u64 timeout_ns;
	__u32 out_handle;
	__u32 reserved;
	__aligned_u64 out_offset;
	__aligned_u64 out_length;
	__u32 peer;
	__u32 reserved2;
};

/**
 * DOC: connections
 *
 * One open file has one connection, incoming or outgoing, with data both ways, or
 * listens for them. Data is a byte stream that is moved from memory to memory
 * with exactly one copy, or with two where nodes share nothing but the window
 * (ULDMA_CONN_WINDOW): the receiver posts memory (ULDMA_IOC_CONN_PREPOST), the
 * sender gives memory (ULDMA_IOC_CONN_SEND), and whenever there is both, the
 * sender's node fills the receiver's memory. Both get their memory back in the
 * order in which they gave it (ULDMA_IOC_CONN_RECV, ULDMA_IOC_CONN_RECYCLE).
 * Boundaries are not kept: any size and alignment may meet any other.
 *
 * Memory that was given must not be touched until it is given back: the stream
 * has whatever is there when it is moved. It is pinned and charged as a region
 * is, and costs little if it lies in a region of the same address space.
 *
 * Nothing is ever dropped or overwritten: what does not fit waits. Memory that
 * was sent is given back once it is in the peer's memory, so a program that has
 * to know that all has arrived gets it back before disconnecting.
 *
 * Calls that wait are ended by signals (EINTR, nothing is lost), and do not wait
 * on an O_NONBLOCK file (EAGAIN).
 */

/**
 * enum uldma_conn_state - states of an open file's connection
 * @ULDMA_CONN_NONE: the open file has none
 * @ULDMA_CONN_LISTENING: it waits for peers to connect
 * @ULDMA_CONN_CONNECTING: the peer has not answered yet
 * @ULDMA_CONN_CONNECTED: data can be exchanged
 * @ULDMA_CONN_CLOSING: one of the sides has disconnected, or the link went down;
 *	ULDMA_IOC_CONN_RECV still returns what was received
 */
enum uldma_conn_state {
	ULDMA_CONN_NONE = 0,
	ULDMA_CONN_LISTENING = 1,
	ULDMA_CONN_CONNECTING = 2,
	ULDMA_CONN_CONNECTED = 3,
	ULDMA_CONN_CLOSING = 4,
};

/** define ULDMA_CONN_MAX_BACKLOG - most connections that can wait at a listener */
#define ULDMA_CONN_MAX_BACKLOG 64
/** define ULDMA_CONN_MAX_BUFFERS - buffers in each direction that a connection can
 * hold at a time (ENOSPC)
 */
#define ULDMA_CONN_MAX_BUFFERS 64

/** define ULDMA_CONN_PRIVATE - most bytes of private data of an offer */
#define ULDMA_CONN_PRIVATE 128

/**
 * enum uldma_conn_kind - what a connection carries
 * @ULDMA_KIND_BYTES: bytes, as ULDMA_IOC_CONN_SEND and ULDMA_IOC_CONN_RECV move them
 * @ULDMA_KIND_CHANNEL: messages, in rings in the window
 * @ULDMA_KIND_MESSAGE: messages, into memory that the receiver has posted
 * @ULDMA_KIND_PACKETS: IP packets
 * @ULDMA_KIND_PRIVATE: this and all above are for programs that agree about them
 *
 * The kernels compare kinds, and know none of them.
 */
enum uldma_conn_kind {
	ULDMA_KIND_BYTES = 0,
	ULDMA_KIND_CHANNEL = 1,
	ULDMA_KIND_MESSAGE = 2,
	ULDMA_KIND_PACKETS = 3,
	ULDMA_KIND_PRIVATE = 0x8000,
};

/**
 * struct uldma_conn_offer - what one side of a connection says when it is opened
 * @kind: enum uldma_conn_kind; the same on both sides
 * @version: version of what programs of this kind do; the same on both sides
 * @private_length: bytes of @private_data, 0 to ULDMA_CONN_PRIVATE
 * @ring_length: bytes of the ring that this side offers, rounded up to pages; zero for
 *	none. See struct uldma_conn_ring
 * @private_data: for the program of the other side; zero behind @private_length
 *
 * The kernel of the listener refuses what does not fit before either program gets a
 * connection: EPROTOTYPE for another kind, EPROTONOSUPPORT for another version of it.
 */
struct uldma_conn_offer {
	__u16 kind;
	__u16 version;
	__u32 private_length;
	__aligned_u64 ring_length;
	__u8 private_data[ULDMA_CONN_PRIVATE];
};

/** define ULDMA_LISTEN_ONCE - the listener itself becomes the first connection */
#define ULDMA_LISTEN_ONCE (1U << 0)

/**
 * struct uldma_conn_listen - wait for peers to connect
 * @size: sizeof(struct uldma_conn_listen)
 * @flags: ULDMA_LISTEN_ONCE, or zero
 * @port: not zero; one listener of this device can have it (EADDRINUSE), and one
 *	user can have as many as DOC: shares of users says (EDQUOT)
 * @backlog: connections that may wait to be accepted, 1 to
 *	ULDMA_CONN_MAX_BACKLOG; peers beyond are refused. One of several
 *	peers leaves the others what they have in reserve: half of their parts, one
 *	place at least. Zero with ULDMA_LISTEN_ONCE
 * @offer: what each side that connects is told, and has to fit to
 *
 * With ULDMA_LISTEN_ONCE there is nothing to accept: poll() reports EPOLLOUT
 * once the open file is connected, and calls that need a connection wait for that.
 */
struct uldma_conn_listen {
	__u32 size;
	__u32 flags;
	__u32 port;
	__u32 backlog;
	struct uldma_conn_offer offer;
};

/**
 * struct uldma_conn_accept - take the oldest connection that waits at a listener
 * @size: sizeof(struct uldma_conn_accept)
 * @flags: zero
 * @port: port of a listener of this device (ENOENT), opened in the same address
 *	space (EPERM)
 * @out_node: number of the node that connected
 *
 * It becomes the connection of the open file that accepts, which has none before
 * (EISCONN). The listener's file reports EPOLLIN while there is one to accept.
 */
struct uldma_conn_accept {
	__u32 size;
	__u32 flags;
	__u32 port;
	__u32 out_node;
};

/** define ULDMA_CONNECT_PULL - the receiver moves the data, not the sender */
#define ULDMA_CONNECT_PULL (1U << 0)

/**
 * struct uldma_conn_connect - connect to a listener of a peer
 * @size: sizeof(struct uldma_conn_connect)
 * @flags: ULDMA_CONNECT_PULL, or zero; both directions work so
 * @peer: see DOC: peers
 * @port: the listener's
 * @timeout_ns: how long to wait for the peer's answer (ETIMEDOUT); the call
 *	waits also if the file is O_NONBLOCK
 * @offer: what the listener's side is told, and has to fit to
 *
 * Fails with ECONNREFUSED where no process listens, its backlog is full, or a share
 * is used up, EPROTOTYPE and EPROTONOSUPPORT as struct uldma_conn_offer says.
 *
 * What the peer makes after the call has given up is reset. One user can have 16
 * connects that were given up and that the peer has not answered (ENOSPC), and as
 * many connections in all as DOC: shares of users says (EDQUOT).
 *
 * poll() on an open file that has a connection reports EPOLLIN when
 * ULDMA_IOC_CONN_RECV would not wait, EPOLLOUT when ULDMA_IOC_CONN_RECYCLE would
 * not or nothing was given to send, EPOLLRDHUP once nothing more will be
 * received, EPOLLHUP once nothing can be sent either, EPOLLERR if the
 * connection was reset, and EPOLLPRI while there is an event to read(). The
 * eventfd is signalled whenever one of these begins to hold.
 */
struct uldma_conn_connect {
	__u32 size;
	__u32 flags;
	__u32 peer;
	__u32 port;
	__aligned_u64 timeout_ns;
	struct uldma_conn_offer offer;
};

/**
 * struct uldma_conn_buffer - give memory to a connection
 * @size: sizeof(struct uldma_conn_buffer)
 * @flags: zero
 * @addr: first byte; any alignment
 * @length: bytes; not zero
 *
 * Errors are those of struct uldma_region_register, and ENOTCONN, EPIPE,
 * ECONNRESET, ENOSPC. Waits for nothing but for a listener to be connected, and
 * for the memory, as registering does; EINTR when a signal comes meanwhile.
 */
struct uldma_conn_buffer {
	__u32 size;
	__u32 flags;
	__aligned_u64 addr;
	__aligned_u64 length;
};

/**
 * define ULDMA_RANGE_SPIN - bit of @flags: if no memory is ready, poll for it
 * before failing with EAGAIN, as a call that may sleep does before it sleeps. Most
 * often that is quicker than poll(). The module parameter link_spin_us bounds it.
 */
#define ULDMA_RANGE_SPIN (1U << 0)

/**
 * struct uldma_conn_range - get memory back from a connection
 * @size: sizeof(struct uldma_conn_range)
 * @flags: zero, or ULDMA_RANGE_SPIN
 * @length: most bytes to get; not zero
 * @out_addr: first byte
 * @out_length: bytes; fewer than @length where no more are ready, or where
 *	memory is not contiguous; zero at the end of the stream: the peer has
 *	disconnected and all that it sent has been got, or, for
 *	ULDMA_CMD_CONN_RECYCLE, the connection has ended
 *
 * ECONNRESET, for ULDMA_CMD_CONN_RECV after what was received before. Memory that
 * a connection still has when it ends is the program's again, with whatever is in
 * it.
 */
struct uldma_conn_range {
	__u32 size;
	__u32 flags;
	__aligned_u64 length;
	__aligned_u64 out_addr;
	__aligned_u64 out_length;
};

/** define ULDMA_CONN_PULL - bit of @out_flags: receivers move the data */
#define ULDMA_CONN_PULL (1U << 0)
/** define ULDMA_CONN_ENGINE - bit of @out_flags: an engine moves the data */
#define ULDMA_CONN_ENGINE (1U << 1)
/** define ULDMA_CONN_WINDOW - bit of @out_flags: the data takes two copies, into
 * the window and out of it, as the nodes share nothing else
 */
#define ULDMA_CONN_WINDOW (1U << 2)
/** define ULDMA_CONN_RESET - bit of @out_flags: the connection was reset */
#define ULDMA_CONN_RESET (1U << 3)
/** define ULDMA_CONN_MATCHED - bit of @out_flags: its data goes from endpoint to endpoint */
#define ULDMA_CONN_MATCHED (1U << 4)

/**
 * struct uldma_conn_query - the open file's connection
 * @size: sizeof(struct uldma_conn_query)
 * @flags: zero
 * @out_state: enum uldma_conn_state
 * @out_flags: ULDMA_CONN_*
 * @out_node: the peer's number
 * @out_port: the port
 * @out_waiting: LISTENING: connections to accept
 * @out_refused: LISTENING: connections refused since there was no room
 * @out_name: a random number, the same on both sides and known to no other node:
 *	a name for segments and exports that belong to the connection. The kernel
 *	of the side that connected draws it: where it breaks the rules, it is any
 *	number, zero included, which hurts that connection only
 * @out_sent: bytes that are in the peer's memory
 * @out_received: bytes that came
 * @out_posted: bytes that were given to receive into and are not filled
 * @out_unsent: bytes that were given to send and have not been sent
 * @out_copied: bytes that this node has copied for the connection; over both
 *	sides, and over the bytes that they sent, this is the number of copies
 * @out_messages: control messages that this side has sent for it
 * @out_pin_calls: buffers for which pages had to be pinned
 * @out_offer: what the peer's side has said; once CONNECTED. Its @ring_length is zero
 *	unless the connection has rings
 * @out_uid: the user id of the peer's side, as the peer's kernel says it: a number of
 *	that system, for programs that know that both name the same users
 * @reserved: zero
 */
struct uldma_conn_query {
	__u32 size;
	__u32 flags;
	__u32 out_state;
	__u32 out_flags;
	__u32 out_node;
	__u32 out_port;
	__u32 out_waiting;
	__u32 out_refused;
	__aligned_u64 out_name;
	__aligned_u64 out_sent;
	__aligned_u64 out_received;
	__aligned_u64 out_posted;
	__aligned_u64 out_unsent;
	__aligned_u64 out_copied;
	__aligned_u64 out_messages;
	__aligned_u64 out_pin_calls;
	struct uldma_conn_offer out_offer;
	__u32 out_uid;
	__u32 reserved;
};

/** define ULDMA_RING_PEER - the ring of the peer's side, which this program writes */
#define ULDMA_RING_PEER (1U << 0)

/**
 * struct uldma_conn_ring - map a ring of the open file's connection
 * @size: sizeof(struct uldma_conn_ring)
 * @flags: ULDMA_RING_PEER; or zero for the ring of this side, which the peer's program
 *	writes
 * @out_handle: a segment, for ULDMA_IOC_DOORBELL and ULDMA_IOC_SEGMENT_DESTROY
 * @reserved: zero
 * @out_offset: mmap offset
 * @out_length: bytes that can be mapped, zeroed when the connection was opened; not
 *	less than the @ring_length of that side's offer
 *
 * A connection has rings, one in the section of each side, if both offers have a
 * @ring_length and both sections had room, within the shares of those who pay: the user
 * of each side, and at the listener the peer, too. Otherwise ENOENT, and the programs do
 * without. What lies in a ring is theirs to agree about. ENOTCONN without a connection;
 * EBUSY while the open file has a segment of that ring that has not ended. A one-shot
 * listener waits for its connection, unless the file is O_NONBLOCK (EAGAIN).
 *
 * No other process and no other node reaches a ring; each can be mapped by its
 * connection's open file only. Rings end with the connection. When the peer disconnects,
 * or the link goes down, a doorbell event comes for the peer's ring, whose mapping
 * becomes memory of this process only, as that of an attached segment does; the ring of
 * this side keeps what the peer has written. When this side disconnects, both mappings
 * become so.
 */
struct uldma_conn_ring {
	__u32 size;
	__u32 flags;
	__u32 out_handle;
	__u32 reserved;
	__aligned_u64 out_offset;
	__aligned_u64 out_length;
};

/** define ULDMA_STREAM_MATCHED - both sides have named endpoints, which are connected */
#define ULDMA_STREAM_MATCHED (1U << 0)
/** define ULDMA_STREAM_REFUSED - the peer names none: use ULDMA_IOC_CONN_SEND and so on */
#define ULDMA_STREAM_REFUSED (1U << 1)
/** define ULDMA_STREAM_ENDED - the connection has ended, or was reset */
#define ULDMA_STREAM_ENDED (1U << 2)

/**
 * struct uldma_conn_stream - move the data of a connection by endpoints
 * @size: sizeof(struct uldma_conn_stream)
 * @flags: @out_flags of the last call, initially zero
 * @handle: an endpoint of the same open file with ULDMA_ENDPOINT_STREAM, the same in
 *	each call
 * @out_flags: ULDMA_STREAM_*
 * @received: if not zero, return as soon as the endpoint has received so many bytes
 * @ticket: if not zero, return as soon as so many tickets of the open file's context
 *	have ended
 * @timeout_ns: nanoseconds after which the call fails with ETIMEDOUT
 *
 * The first call names the endpoint to the peer. Once the peer has named its own, the
 * endpoints are connected, and data goes from one to the other: ULDMA_IOC_CONN_PREPOST and
 * ULDMA_IOC_CONN_SEND fail with EBUSY from the first call on, unless the peer names none,
 * as it does if its program has used one of these two. Such a program gets EBUSY here.
 *
 * The call waits until @out_flags differ from @flags, or for what @received and @ticket
 * say. If bytes could not be moved (a send of the endpoint, or a reception, has failed),
 * it waits for the end of the connection instead: the peer has ended its endpoint, or has
 * named one that is not connected to this one. If the peer does not end the connection
 * within link_timeout_ms, it is reset. Other transfers of the context may fail without
 * consequences for the connection.
 *
 * To end the connection, first end the context, then the endpoint, so that nothing
 * arrives after the end. If the file is closed while descriptors of the context are not
 * done, or after a send has failed, the connection is reset.
 *
 * Fails with EOPNOTSUPP if one of the devices has no streams, or receivers move the data;
 * EINVAL for an endpoint that is no stream; EISCONN if the connection has named another
 * one; ENOTCONN without a connection; EAGAIN, whatever the file's flags, while a listener
 * with ULDMA_LISTEN_ONCE waits for one. A call that fails with ETIMEDOUT or EINTR has
 * named the endpoint.
 */
struct uldma_conn_stream {
	__u32 size;
	__u32 flags;
	__u32 handle;
	__u32 out_flags;
	__aligned_u64 received;
	__aligned_u64 ticket;
	__aligned_u64 timeout_ns;
};

/**
 * DOC: endpoints
 *
 * An endpoint is one end of a message connection. The device moves messages between
 * two endpoints of two nodes without the kernels: a program sends with ULDMA_OP_SEND
 * from the queue of its context (ULDMA_METHOD_QUEUE), and receives into memory that
 * it has posted before.
 *
 *  - The receive ring is a page of struct uldma_descriptor, at @out_ring_offset of
 *    mmap(). The program writes descriptors with ULDMA_OP_RECV, which name memory by
 *    @dst, @dst_offset and @length, counted and stored as those of a queue. Nothing
 *    else of a descriptor is used without ULDMA_DESC_REDIRECT, the only flag.
 *  - With this flag, a descriptor can be redirected after it was posted: the program
 *    stores @src, @src_offset and @compare, and then exchanges @operand from
 *    ULDMA_REDIRECT_NONE to ULDMA_REDIRECT_READY by one atomic operation; back, to
 *    withdraw it. The device exchanges @operand with ULDMA_REDIRECT_TAKEN when it
 *    takes the descriptor, so that each message goes to one of the two places.
 *  - The receive status, at @out_status_offset, is a struct uldma_status_page. Each
 *    message takes the next descriptor, and ends with its record and its place in
 *    @completed. A record has the bytes of the message, or says why the descriptor
 *    could not be used, or how the message failed.
 *  - After posting, load @wakeup of the receive status with a full barrier between.
 *    If it is not zero, store to the page of a context of the same node with
 *    ULDMA_METHOD_QUEUE, or call ULDMA_IOC_ENDPOINT_WAIT.
 *  - Messages arrive in the order in which one context sends them. A message that
 *    finds no descriptor waits, and those after it in its queue, for @timeout_ms of
 *    its endpoint; then it ends with ULDMA_DMA_NOT_READY.
 *  - Each of two programs creates an endpoint, tells the other one its node, index
 *    and generation, and connects its own to the other's. What is sent to an endpoint
 *    that is not connected yet waits. An endpoint that has ended, or is connected to
 *    another one, refuses messages with ULDMA_DMA_REMOTE.
 *
 * Two endpoints with ULDMA_ENDPOINT_STREAM carry a stream of bytes in each direction
 * instead of messages. The device fills posted buffers one after the other with the
 * bytes of sends, whatever the boundaries of both: a send may fill several buffers, or
 * a part of one, and waits while there is no room for the rest.
 *
 *  - @received of the receive status is the number of bytes that are in the posted
 *    buffers, @sent that of the bytes that this endpoint has sent. Progress of a send is
 *    shown before the send ends. @completed counts buffers that are full.
 *  - A buffer has to stay posted and registered until it is full, or until the endpoint
 *    has ended. If a buffer cannot be used, or bytes of it could not be moved, the stream
 *    is over: its record says why, @failed is not zero, nothing more is counted, and
 *    sends to it end with ULDMA_DMA_REMOTE.
 *  - Sends have at least one byte, and neither ULDMA_DESC_MORE nor ULDMA_DESC_REDIRECT.
 *    Both endpoints have to be streams, or sends end with ULDMA_DMA_REMOTE.
 */

/** define ULDMA_ENDPOINT_STREAM - a stream of bytes instead of messages */
#define ULDMA_ENDPOINT_STREAM (1U << 0)

/**
 * struct uldma_endpoint_create - create an endpoint
 * @size: sizeof(struct uldma_endpoint_create)
 * @flags: zero or ULDMA_ENDPOINT_STREAM
 * @timeout_ms: milliseconds for which a message waits for a receive descriptor of the
 *	peer: zero: it does not wait, all ones: without a limit
 * @reserved: zero
 * @max_message: bytes of the longest message that may be sent, not zero; at most
 *	@out_max_transfer of struct uldma_query
 * @out_handle: names the endpoint in this open file
 * @out_index: names the endpoint in descriptors, and to the peer
 * @out_generation: has to be told to the peer, too; it cannot be guessed
 * @out_ring_offset: of mmap(): the receive ring, one page
 * @out_status_offset: of mmap(): the receive status, one page, read-only
 *
 * Fails with EOPNOTSUPP if the device does not match messages, or has no streams.
 */
struct uldma_endpoint_create {
	__u32 size;
	__u32 flags;
	__u32 timeout_ms;
	__u32 reserved;
	__aligned_u64 max_message;
	__u32 out_handle;
	__u32 out_index;
	__aligned_u64 out_generation;
	__aligned_u64 out_ring_offset;
	__aligned_u64 out_status_offset;
};

/**
 * struct uldma_endpoint_connect - connect an endpoint to that of a peer
 * @size: sizeof(struct uldma_endpoint_connect)
 * @flags: zero
 * @handle: the endpoint's @out_handle; EISCONN if it is connected
 * @node: the peer's number; EINVAL for this node's own, and for none; ENOTCONN while the
 *	link to it is down
 * @peer_generation: @out_generation of the peer's endpoint
 * @peer_index: @out_index of the peer's endpoint
 * @reserved: zero
 */
struct uldma_endpoint_connect {
	__u32 size;
	__u32 flags;
	__u32 handle;
	__u32 node;
	__aligned_u64 peer_generation;
	__u32 peer_index;
	__u32 reserved;
};

/**
 * struct uldma_endpoint_wait - wait for messages
 * @size: sizeof(struct uldma_endpoint_wait)
 * @flags: zero
 * @handle: the endpoint's @out_handle
 * @reserved: zero
 * @count: wait until @completed of the receive status, or @received of a stream, is not
 *	below this, or the stream is over
 * @timeout_ns: nanoseconds after which the call fails with ETIMEDOUT
 * @out_completed: @completed of the receive status, or @received
 *
 * Fails with ENOTCONN if the endpoint is not connected, or if the link to its peer
 * went down.
 */
struct uldma_endpoint_wait {
	__u32 size;
	__u32 flags;
	__u32 handle;
	__u32 reserved;
	__aligned_u64 count;
	__aligned_u64 timeout_ns;
	__aligned_u64 out_completed;
};

/**
 * DOC: message slots
 *
 * Message slots are memory of the driver for the messages of an endpoint in one
 * direction. No process maps them: calls copy messages into them and out of them, so
 * that a program needs no registered memory of its own. They are a region of the open
 * file, which only the device uses; ULDMA_IOC_REGION_UNREGISTER ends it.
 *
 *  - The slots are used in turns, each for one message of the device. A message that is
 *    longer than a slot has to be sent in pieces, with ULDMA_DESC_MORE.
 *  - Their pages stay allocated until the device cannot reach them any more, are charged
 *    to RLIMIT_MEMLOCK, and count as pages of the user. The region counts as the user's.
 *  - Descriptors are in the pages that the program maps, too: the queue of its context,
 *    and the receive ring of the endpoint. A program that writes to the descriptors of
 *    the driver harms its own messages only.
 *  - Calls on the same slots take turns. They wait, within their time, for the slot,
 *    for a context that others use (as accesses to its page do), and for the message.
 *    A wait that ends with an error has changed nothing.
 */

/** define ULDMA_MSG_RECEIVE - the slots are for receiving, else for sending */
#define ULDMA_MSG_RECEIVE (1U << 0)

/** define ULDMA_MSG_MAX_SLOT - bytes of the largest slot */
#define ULDMA_MSG_MAX_SLOT 0x100000

/**
 * struct uldma_msg_slots - create message slots of an endpoint
 * @size: sizeof(struct uldma_msg_slots)
 * @flags: zero, or ULDMA_MSG_RECEIVE
 * @endpoint: the endpoint's @out_handle
 * @count: slots, from 1 to ULDMA_STATUS_RECORDS
 * @slot_bytes: of each slot, a multiple of the page size, at most ULDMA_MSG_MAX_SLOT
 * @out_handle: names the slots in this open file
 * @out_index: names their region in the device's table
 *
 * Slots for receiving are posted at once, as receive descriptors 1 to @count: so the
 * endpoint must be one that no descriptor was posted to. Each call of ULDMA_IOC_MSG_RECV
 * posts one more.
 *
 * Fails with EINVAL for another number or size of slots, with ENOENT without such an
 * endpoint, with EBUSY if the device has used a descriptor of the endpoint, and like
 * ULDMA_IOC_EXCHANGE_CREATE.
 */
struct uldma_msg_slots {
	__u32 size;
	__u32 flags;
	__u32 endpoint;
	__u32 count;
	__aligned_u64 slot_bytes;
	__u32 out_handle;
	__u32 out_index;
};

/**
 * struct uldma_msg_send - copy a message to a slot, and send it
 * @size: sizeof(struct uldma_msg_send)
 * @flags: zero, or ULDMA_DESC_MORE: the next message continues it
 * @slots: @out_handle of struct uldma_msg_slots
 * @reserved: zero
 * @addr: the message; its bytes may be changed when the call returns
 * @length: bytes, at most those of a slot (EMSGSIZE)
 * @ticket: of the descriptor: one more than that of the last one in the queue of the
 *	open file's context, whether the program or the driver has written that
 * @timeout_ns: nanoseconds after which the call fails with ETIMEDOUT if the next slot is
 *	not free, or others use all contexts
 *
 * The open file needs a context (ENXIO) with ULDMA_METHOD_QUEUE (EINVAL). The call
 * returns when the message is in the queue. It ends, with its ticket and record, as
 * those that the program writes to the queue itself.
 *
 * Fails with EINVAL for slots that receive, and for a ticket that has ended, with EBUSY
 * if the queue has no free place for the ticket, with ENOENT without such slots, or if
 * their endpoint has ended, and with EFAULT for memory that cannot be read: nothing is
 * sent then.
 */
struct uldma_msg_send {
	__u32 size;
	__u32 flags;
	__u32 slots;
	__u32 reserved;
	__aligned_u64 addr;
	__aligned_u64 length;
	__aligned_u64 ticket;
	__aligned_u64 timeout_ns;
};

/**
 * struct uldma_msg_recv - copy the next message out of its slot
 * @size: sizeof(struct uldma_msg_recv)
 * @flags: zero
 * @slots: @out_handle of struct uldma_msg_slots with ULDMA_MSG_RECEIVE
 * @reserved: zero
 * @addr: where to copy it to
 * @length: room there; what is longer is cut off, as recv() does
 * @timeout_ns: nanoseconds after which the call fails with ETIMEDOUT
 * @out_bytes: bytes of the message, also if there was less room
 * @out_number: its number, counted from one
 * @out_posted: slots that have been posted so far, with this one
 * @out_status: enum uldma_dma_status of the reception: if not ULDMA_DMA_OK, the message
 *	failed, and its bytes are undefined
 * @out_flags: zero, or ULDMA_COMPLETION_MORE
 *
 * Fails with EINVAL for slots that send, with ENOENT without such slots, or if their
 * endpoint has ended, with ENOTCONN as ULDMA_IOC_ENDPOINT_WAIT does, with EIO if the
 * record of the message is lost, and with EFAULT for memory that cannot be written. The
 * message stays then, for the next call.
 */
struct uldma_msg_recv {
	__u32 size;
	__u32 flags;
	__u32 slots;
	__u32 reserved;
	__aligned_u64 addr;
	__aligned_u64 length;
	__aligned_u64 timeout_ns;
	__aligned_u64 out_bytes;
	__aligned_u64 out_number;
	__aligned_u64 out_posted;
	__u32 out_status;
	__u32 out_flags;
};

/**
 * DOC: exchangeable memory
 *
 * Memory of the driver that a program maps, as often as it likes and in parts, at
 * @out_offset of mmap(). It is a region with all rights from the beginning, so that
 * the device can reach all of it: transfers and messages name it by @out_index or
 * @out_handle. ULDMA_IOC_REGION_UNREGISTER ends it; accesses to mappings raise
 * SIGBUS then.
 *
 *  - Its pages are zero at first. They stay until the region ends, mapped or not, are
 *    charged to RLIMIT_MEMLOCK, and count as pages of the user.
 *  - mmap() needs MAP_SHARED. A mapping can be split, moved, protected and unmapped
 *    in parts, but does not grow, and a child does not get it by fork().
 *  - Nothing in the kernel can pin it: ULDMA_IOC_REGION_REGISTER fails with
 *    EOPNOTSUPP, as for device memory, and O_DIRECT and vmsplice() with EFAULT.
 *    System calls that copy, such as read() and write(), can use it.
 *
 * To send from it and write to it at once, call ULDMA_IOC_EXCHANGE_PROTECT, start
 * the transfer, and call ULDMA_IOC_EXCHANGE_RELEASE when it has completed. A write
 * in between goes to a copy of its page, and the transfer reads the original.
 *
 *  - Whole pages are protected, so an unrelated write to the same page makes a copy,
 *    too.
 *  - Sends may overlap; a page becomes writable with the end of the last one. A page
 *    that was copied cannot be sent before its other sends have ended (EBUSY).
 *  - Each page that is being sent counts once more for RLIMIT_MEMLOCK, for its copy.
 *  - Releasing too early harms only the program: the transfer reads what is there.
 *
 * To receive into it without a copy, post a part of it (a slot), and when a message
 * has arrived there, let ULDMA_IOC_EXCHANGE_SWAP exchange the slot's pages with those
 * where the message is to be. The slot has the program's former pages then, and can
 * be posted again. Slots can be mapped, too, to copy what is no whole page.
 */

/**
 * struct uldma_exchange_create - create exchangeable memory
 * @size: sizeof(struct uldma_exchange_create)
 * @flags: zero
 * @length: bytes, a multiple of the page size, not zero
 * @out_handle: the region; never zero
 * @out_index: the region's index in the device's region table
 * @out_offset: mmap offset of the memory
 * @out_shadow_offset: mmap offset of the region's shadow pages
 * @out_shadow_length: bytes of shadow pages
 *
 * Fails with ENOSPC, as registering does, beyond max_file_regions and where the
 * device's table has no room, and with EINTR if a signal comes before all pages are
 * allocated.
 */
struct uldma_exchange_create {
	__u32 size;
	__u32 flags;
	__aligned_u64 length;
	__u32 out_handle;
	__u32 out_index;
	__aligned_u64 out_offset;
	__aligned_u64 out_shadow_offset;
	__aligned_u64 out_shadow_length;
};

/**
 * struct uldma_exchange_range - begin or end a send from exchangeable memory
 * @size: sizeof(struct uldma_exchange_range)
 * @flags: zero
 * @handle: the memory
 * @reserved: zero
 * @offset: first byte
 * @length: bytes, not zero
 * @out_pages: written by ULDMA_IOC_EXCHANGE_RELEASE only: pages that are not being
 *	sent any more
 * @out_copied: of these, how many were copied, since the program wrote to them
 *
 * ULDMA_IOC_EXCHANGE_PROTECT fails with EBUSY if a page is copied, or is sent 65535
 * times already. ULDMA_IOC_EXCHANGE_RELEASE fails with EINVAL if a page is not being
 * sent, and if there are copies, with ENOMEM, or ETIMEDOUT if the device does not
 * answer. Both fail with ENOENT if the region is no exchangeable memory. Where they
 * wait for other calls on the same memory, they fail with ETIMEDOUT after ten seconds;
 * signals that do not kill the process come after the call. A call that fails has
 * changed nothing and can be repeated.
 */
struct uldma_exchange_range {
	__u32 size;
	__u32 flags;
	__u32 handle;
	__u32 reserved;
	__aligned_u64 offset;
	__aligned_u64 length;
	__u32 out_pages;
	__u32 out_copied;
};

/**
 * struct uldma_exchange_swap - exchange pages of exchangeable memory
 * @size: sizeof(struct uldma_exchange_swap)
 * @flags: zero
 * @handle: one memory
 * @other: another memory, or the same
 * @offset: first byte in @handle
 * @other_offset: first byte in @other
 * @length: bytes in both, not zero; the two ranges do not overlap
 *
 * Offsets and length are multiples of the page size (EINVAL). Each access of a program
 * sees a page's former contents until it sees the new ones; what is written meanwhile
 * goes to one of the pages. A transfer of such a page that is in progress moves one of
 * the two, or fails with ULDMA_DMA_NOT_VALID.
 *
 * Fails with EBUSY if a page is being sent, with ENOENT if a region is no exchangeable
 * memory, and with ETIMEDOUT if the device does not answer. Where it waits for other
 * calls on the same memories, it fails with ETIMEDOUT after ten seconds; signals that do
 * not kill the process come after the call. A call that fails has changed nothing and
 * can be repeated.
 */
struct uldma_exchange_swap {
	__u32 size;
	__u32 flags;
	__u32 handle;
	__u32 other;
	__aligned_u64 offset;
	__aligned_u64 other_offset;
	__aligned_u64 length;
};

/**
 * DOC: regions in the window
 *
 * A region can be a part of this node's own section of the window, in place of pinned
 * memory. The program maps it and writes what the device is to read, or reads what the
 * device has written: messages and transfers name the region by @out_index or
 * @out_handle. ULDMA_IOC_REGION_UNREGISTER ends it; accesses to mappings raise SIGBUS
 * then.
 *
 *  - The driver chooses the part, which nothing else of the node uses until the region
 *    has ended. It is zero at first.
 *  - It is mapped as the rest of the window is: write-combining, or uncached with the
 *    module's parameter window_wc=0. A program that writes to it needs a store fence before
 *    it posts the descriptor, and one that reads from it a load fence after it has seen
 *    the completion.
 *  - It has no shadow pages, cannot be exported, and is not charged to RLIMIT_MEMLOCK. It
 *    counts as a region and as bytes of the window of the user.
 *  - The kernel of every other node can read and write it, as all of the window. So it is
 *    no place for what another node than the receiver of a message must not know or change,
 *    and a program copies what it has received from it before it checks it.
 */

/**
 * struct uldma_region_window - create a region in the window
 * @size: sizeof(struct uldma_region_window)
 * @flags: ULDMA_ACCESS_READ, ULDMA_ACCESS_WRITE, or both: what the device may do
 * @length: bytes, rounded up to pages; not zero
 * @out_handle: the region; never zero
 * @out_index: the region's index in the device's region table
 * @out_offset: mmap offset of the part
 * @out_length: its bytes
 * @peer: the node that can write the part, too, so that data of others has no place
 *	there; see DOC: peers
 * @reserved: zero
 *
 * Fails with EOPNOTSUPP where the device cannot reach the window, with ENOSPC without room
 * in the window, beyond max_file_regions and where the device's table has no room, and
 * with EDQUOT beyond the limits of the user.
 */
struct uldma_region_window {
	__u32 size;
	__u32 flags;
	__aligned_u64 length;
	__u32 out_handle;
	__u32 out_index;
	__aligned_u64 out_offset;
	__aligned_u64 out_length;
	__u32 peer;
	__u32 reserved;
};

/**
 * enum uldma_event_type - what struct uldma_event tells
 * @ULDMA_EVENT_COMPLETION: transfers have ended; @handle is the number of the
 *	context, and @value is @completed of its status page; or @handle is zero,
 *	and @value counts this open file's transfers that were started by
 *	ULDMA_IOC_DMA and have ended
 * @ULDMA_EVENT_DOORBELL: the other side of segment @handle rang, or has ended;
 *	segments share doorbells, so the ring may have been for another one.
 *	@value is zero once segment @handle, which was attached, has ended; only
 *	then does ULDMA_IOC_DOORBELL fail with ESTALE. Otherwise it is one
 * @ULDMA_EVENT_LINK: @value is one when a link to a peer is up, zero when none
 *	is; @handle is zero
 * @ULDMA_EVENT_STALE: addresses of region @handle were unmapped, moved,
 *	discarded or mapped anew; @value is @out_stale of struct
 *	uldma_region_query. The region still means the pages that it meant
 */
enum uldma_event_type {
	ULDMA_EVENT_COMPLETION = 1,
	ULDMA_EVENT_DOORBELL = 2,
	ULDMA_EVENT_LINK = 3,
	ULDMA_EVENT_STALE = 4,
};

/**
 * struct uldma_event - what read() on the file returns, one or more
 * @type: enum uldma_event_type
 * @handle: the object that the event is about, or zero
 * @value: see enum uldma_event_type
 *
 * Events are coalesced: one pending event per type and handle. poll() reports
 * EPOLLIN while one is pending, EPOLLHUP once the device is gone; for an open file
 * that listens or has a connection see struct uldma_conn_connect. read() sleeps
 * unless O_NONBLOCK, and fails with EINVAL for less than one event's room.
 */
struct uldma_event {
	__u32 type;
	__u32 handle;
	__aligned_u64 value;
};

#endif /* _UAPI_LINUX_ULDMA_H */
