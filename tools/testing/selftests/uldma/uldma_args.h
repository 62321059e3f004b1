/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The argument of any ioctl.
 */
#ifndef __SELFTEST_ULDMA_ARGS_H
#define __SELFTEST_ULDMA_ARGS_H

#include <linux/uldma.h>

union uldma_args {
	__u32 size;
	struct {
		__u32 size;
		__u32 flags;
	} head;
	struct uldma_handle handle;
	struct uldma_query query;
	struct uldma_region_register region_register;
	struct uldma_region_export region_export;
	struct uldma_region_import region_import;
	struct uldma_region_query region_query;
	struct uldma_region_charge region_charge;
	struct uldma_region_blocks region_blocks;
	struct uldma_region_window region_window;
	struct uldma_lmm lmm;
	struct uldma_context_create context_create;
	struct uldma_context_stats context_stats;
	struct uldma_map_out map_out;
	struct uldma_eventfd eventfd;
	struct uldma_dma dma;
	struct uldma_dma_wait dma_wait;
	struct uldma_segment_create segment_create;
	struct uldma_segment_attach segment_attach;
	struct uldma_peer_query peer_query;
	struct uldma_conn_listen conn_listen;
	struct uldma_conn_accept conn_accept;
	struct uldma_conn_connect conn_connect;
	struct uldma_conn_buffer conn_buffer;
	struct uldma_conn_range conn_range;
	struct uldma_conn_query conn_query;
	struct uldma_conn_stream conn_stream;
	struct uldma_conn_ring conn_ring;
	struct uldma_endpoint_create endpoint_create;
	struct uldma_endpoint_connect endpoint_connect;
	struct uldma_endpoint_wait endpoint_wait;
	struct uldma_msg_slots msg_slots;
	struct uldma_msg_send msg_send;
	struct uldma_msg_recv msg_recv;
	struct uldma_exchange_create exchange_create;
	struct uldma_exchange_range exchange_range;
	struct uldma_exchange_swap exchange_swap;
	__u8 bytes[256];
};

#endif /* __SELFTEST_ULDMA_ARGS_H */
