/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Sizes and offsets of the interface's structures. All compilers agree on them,
 * those of 32 bits included: words of 64 bits are where words of 32 bits leave
 * them aligned, and there are no gaps and no padding at the end.
 */
#ifndef __SELFTEST_ULDMA_LAYOUT_H
#define __SELFTEST_ULDMA_LAYOUT_H

#include <assert.h>
#include <stddef.h>

#include <linux/uldma.h>

#define ULDMA_FIELD(_type, _field, _at) \
	static_assert(offsetof(struct uldma_##_type, _field) == (_at), #_field)
#define ULDMA_SIZE(_type, _bytes) \
	static_assert(sizeof(struct uldma_##_type) == (_bytes), #_type)

ULDMA_SIZE(handle, 8);
ULDMA_FIELD(query, out_max_transfer, 40);
ULDMA_FIELD(query, out_nodes, 96);
ULDMA_FIELD(query, out_connections, 108);
ULDMA_FIELD(query, out_user_endpoints, 184);
ULDMA_FIELD(query, out_user_transfers, 200);
ULDMA_FIELD(query, out_user_objects, 208);
ULDMA_SIZE(query, 216);
ULDMA_FIELD(peer_query, out_sent, 32);
ULDMA_FIELD(peer_query, out_violations, 72);
ULDMA_FIELD(peer_query, out_doorbell_ns, 80);
ULDMA_SIZE(peer_query, 88);
ULDMA_FIELD(region_register, limit_us, 48);
ULDMA_SIZE(region_register, 56);
ULDMA_SIZE(region_export, 24);
ULDMA_FIELD(region_import, peer, 56);
ULDMA_SIZE(region_import, 64);
ULDMA_SIZE(region_query, 56);
ULDMA_SIZE(region_charge, 56);
ULDMA_SIZE(block, 16);
ULDMA_SIZE(region_blocks, 48);
ULDMA_SIZE(lmm, 88);
ULDMA_FIELD(region_window, out_offset, 24);
ULDMA_FIELD(region_window, peer, 40);
ULDMA_SIZE(region_window, 48);
ULDMA_SIZE(context_create, 56);
ULDMA_SIZE(map_out, 32);
ULDMA_SIZE(completion, 24);
ULDMA_SIZE(status_page, 1600);
ULDMA_SIZE(descriptor, 64);
ULDMA_SIZE(context_stats, 80);
ULDMA_SIZE(eventfd, 16);
ULDMA_SIZE(dma, 48);
ULDMA_SIZE(dma_wait, 40);
ULDMA_SIZE(segment_create, 48);
ULDMA_FIELD(segment_attach, peer, 48);
ULDMA_SIZE(segment_attach, 56);
ULDMA_FIELD(conn_offer, ring_length, 8);
ULDMA_FIELD(conn_offer, private_data, 16);
ULDMA_SIZE(conn_offer, 144);
ULDMA_FIELD(conn_listen, offer, 16);
ULDMA_SIZE(conn_listen, 160);
ULDMA_SIZE(conn_accept, 16);
ULDMA_FIELD(conn_connect, timeout_ns, 16);
ULDMA_FIELD(conn_connect, offer, 24);
ULDMA_SIZE(conn_connect, 168);
ULDMA_FIELD(conn_buffer, addr, 8);
ULDMA_FIELD(conn_buffer, length, 16);
ULDMA_SIZE(conn_buffer, 24);
ULDMA_FIELD(conn_range, length, 8);
ULDMA_FIELD(conn_range, out_addr, 16);
ULDMA_FIELD(conn_range, out_length, 24);
ULDMA_SIZE(conn_range, 32);
ULDMA_FIELD(conn_query, out_refused, 28);
ULDMA_FIELD(conn_query, out_name, 32);
ULDMA_FIELD(conn_query, out_pin_calls, 88);
ULDMA_FIELD(conn_query, out_offer, 96);
ULDMA_FIELD(conn_query, out_uid, 240);
ULDMA_SIZE(conn_query, 248);

ULDMA_FIELD(conn_stream, received, 16);
ULDMA_FIELD(conn_stream, ticket, 24);
ULDMA_SIZE(conn_stream, 40);
ULDMA_FIELD(conn_ring, out_offset, 16);
ULDMA_SIZE(conn_ring, 32);
ULDMA_SIZE(event, 16);
ULDMA_FIELD(endpoint_create, max_message, 16);
ULDMA_FIELD(endpoint_create, out_generation, 32);
ULDMA_SIZE(endpoint_create, 56);
ULDMA_FIELD(endpoint_connect, peer_generation, 16);
ULDMA_SIZE(endpoint_connect, 32);
ULDMA_FIELD(endpoint_wait, count, 16);
ULDMA_SIZE(endpoint_wait, 40);
ULDMA_FIELD(msg_slots, slot_bytes, 16);
ULDMA_SIZE(msg_slots, 32);
ULDMA_FIELD(msg_send, addr, 16);
ULDMA_SIZE(msg_send, 48);
ULDMA_FIELD(msg_recv, out_bytes, 40);
ULDMA_FIELD(msg_recv, out_status, 64);
ULDMA_SIZE(msg_recv, 72);
ULDMA_FIELD(exchange_create, out_offset, 24);
ULDMA_SIZE(exchange_create, 48);
ULDMA_FIELD(exchange_range, offset, 16);
ULDMA_SIZE(exchange_range, 40);
ULDMA_FIELD(exchange_swap, other_offset, 24);
ULDMA_SIZE(exchange_swap, 40);

#endif /* __SELFTEST_ULDMA_LAYOUT_H */
