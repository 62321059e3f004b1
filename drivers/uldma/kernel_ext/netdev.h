/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Network devices for kernel_ext/net/, whose structures Rust cannot see.
 */
#ifndef _ULDMA_NETDEV_H
#define _ULDMA_NETDEV_H

#include <linux/types.h>

struct device;
struct napi_struct;
struct net_device;
struct page;
struct page_pool;
struct sk_buff;

/* Offloads of a device, and what a receiver of its packets accepts. */
#define ULDMA_NETDEV_CSUM	1
#define ULDMA_NETDEV_GSO	2

/* The counters of rtnl_link_stats64 that a driver fills in. */
struct uldma_netdev_stats {
	u64 rx_packets, tx_packets;
	u64 rx_bytes, tx_bytes;
	u64 rx_errors, tx_errors;
	u64 rx_dropped, tx_dropped;
	u64 multicast;
};

/* The counters of one queue of each direction. */
struct uldma_netdev_queue_stats {
	u64 rx_packets, tx_packets;
	u64 rx_bytes, tx_bytes;
	u64 tx_stop;
};

/*
 * What kernel_ext/net/ does for a device. @driver is what the device was made
 * with, @dev the device, and @parent the bound device of its registration.
 * Pointers are void so that both languages give the functions one type.
 */
struct uldma_netdev_ops {
	int (*open)(void *driver, void *dev, void *parent);
	void (*stop)(void *driver, void *dev, void *parent);
	/* Takes over @skb. */
	void (*transmit)(void *driver, void *dev, void *parent, void *skb);
	/* Returns the MSI-X vector that schedules NAPI, or a negative number. */
	int (*vector)(void *driver);
	u32 (*select_queue)(void *driver, const u8 *destination);
	u32 (*offloads)(void *driver, const u8 *destination);
	u32 (*poll)(void *driver, void *dev, void *parent, u32 queue,
		    void *napi, u32 budget);
	/* Has queues with packets polled; false if none waits for any. */
	u32 (*poll_idle)(void *driver, void *dev, void *parent);
	void (*stats)(void *driver, void *stats);
	void (*queue_stats)(void *driver, u32 queue, void *stats);
	u32 (*counters)(void *driver);
	void (*counter_names)(void *driver, u8 *names);
	void (*counter_values)(void *driver, u64 *values);
};

struct net_device *uldma_netdev_new(const struct uldma_netdev_ops *ops,
				    void *driver, u32 queues, u32 max_frame);
void uldma_netdev_free(struct net_device *dev);
int uldma_netdev_register(struct net_device *dev, struct device *parent,
			  u32 number, const u8 *address);
void uldma_netdev_unregister(struct net_device *dev);
void uldma_netdev_set_carrier(struct net_device *dev, u32 on);
u32 uldma_netdev_schedule(struct net_device *dev, u32 queue);
void uldma_netdev_stop_queue(struct net_device *dev, u32 queue);
void uldma_netdev_wake_queue(struct net_device *dev, u32 queue);
u32 uldma_netdev_sent(struct net_device *dev, u32 queue, u32 sent,
		      u32 completed);
void uldma_netdev_reset_sent(struct net_device *dev, u32 queue);
u32 uldma_napi_complete(struct napi_struct *napi, u32 done);
void uldma_napi_complete_and_poll(struct napi_struct *napi, u32 done,
				  u64 after, u32 idle);

/* What struct virtio_net_hdr says of a packet, in the order of the CPU. */
struct uldma_offload {
	u8 flags;
	u8 gso_type;
	u16 hdr_len;
	u16 gso_size;
	u16 csum_start;
	u16 csum_offset;
};

u32 uldma_skb_len(const struct sk_buff *skb);
int uldma_skb_addresses(const struct sk_buff *skb, u8 *addresses);
int uldma_skb_offload(const struct sk_buff *skb, struct uldma_offload *offload);
int uldma_skb_copy_toio(struct sk_buff *skb, u32 from, u32 count,
			void __iomem *to);
int uldma_skb_copy_fromio(struct sk_buff *skb, u32 to, u32 count,
			  const void __iomem *from);
struct sk_buff *uldma_skb_alloc(struct napi_struct *napi, u32 count);
int uldma_skb_receive(struct napi_struct *napi, struct sk_buff *skb,
		      const struct uldma_offload *offload);
void uldma_skb_drop(struct sk_buff *skb);
void uldma_skb_consume(struct sk_buff *skb);

/* A piece of a packet, as a device sees it. */
struct uldma_piece {
	u64 address;
	u64 bytes;
};

int uldma_skb_map(struct device *dev, const struct sk_buff *skb, u32 from,
		  struct uldma_piece *pieces, u32 most);
void uldma_skb_unmap(struct device *dev, const struct uldma_piece *pieces,
		     u32 count);

struct page_pool *uldma_page_pool_new(struct device *dev, u32 pages);
void uldma_page_pool_free(struct page_pool *pool);
struct page *uldma_page_pool_alloc(struct page_pool *pool, u64 *address);
void uldma_page_pool_put(struct page_pool *pool, struct page *page);
void uldma_skb_add_page(struct sk_buff *skb, struct page_pool *pool,
			struct page *page, u32 bytes);
u32 uldma_skb_max_pages(void);

void uldma_bh_disable(void);
void uldma_bh_enable(void);

#endif /* _ULDMA_NETDEV_H */
