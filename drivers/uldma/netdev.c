// SPDX-License-Identifier: GPL-2.0
/*
 * Network devices for kernel_ext/net/. Here are the structures and the inline
 * functions that Rust cannot use; what a device does is decided there.
 */

#include <linux/bottom_half.h>
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/hrtimer.h>
#include <linux/io.h>
#include <linux/netdevice.h>
#include <linux/pci.h>
#include <linux/skbuff.h>
#include <linux/virtio_net.h>
#include <net/netdev_queues.h>

#include "netdev.h"
#include "netidle.h"
#include "window.h"

/* Bytes of a large packet that are not in fragments; headers fit. */
#define ULDMA_SKB_LINEAR	256

struct uldma_netdev_queue {
	struct napi_struct napi;
	/* Polls @napi again. It is started by a poll only. */
	struct hrtimer timer;
	u32 number;
};

struct uldma_netdev {
	const struct uldma_netdev_ops *ops;
	void *driver;
	/* Bound while the device is registered. */
	struct device *parent;
	/* Runs while the device is up. */
	struct uldma_netidle idle;
	u32 queues;
	struct uldma_netdev_queue queue[] __counted_by(queues);
};

/* Tells user space which NAPI context serves a queue of both directions. */
static void uldma_netdev_set_napi(struct net_device *dev, u32 queue,
				  struct napi_struct *napi)
{
	netif_queue_set_napi(dev, queue, NETDEV_QUEUE_TYPE_RX, napi);
	netif_queue_set_napi(dev, queue, NETDEV_QUEUE_TYPE_TX, napi);
}

/*
 * Tells user space which interrupt schedules the NAPI contexts. All have the
 * same: the device does not know for which queue a peer rings.
 */
static void uldma_netdev_set_irq(struct net_device *dev)
{
	struct uldma_netdev *priv = netdev_priv(dev);
	int vector = priv->ops->vector(priv->driver);
	int irq = -1;
	u32 i;

	if (vector >= 0 && dev_is_pci(priv->parent))
		irq = pci_irq_vector(to_pci_dev(priv->parent), vector);
	for (i = 0; i < priv->queues; i++)
		netif_napi_set_irq(&priv->queue[i].napi, max(irq, -1));
}

static bool uldma_netdev_poll_idle(struct net_device *dev)
{
	struct uldma_netdev *priv = netdev_priv(dev);
	bool waits;

	local_bh_disable();
	waits = priv->ops->poll_idle(priv->driver, dev, priv->parent);
	/* This polls the queues that are scheduled. */
	local_bh_enable();
	return waits;
}

static void uldma_netdev_quiesce(struct net_device *dev)
{
	struct uldma_netdev *priv = netdev_priv(dev);
	u32 i;

	for (i = 0; i < priv->queues; i++)
		uldma_netdev_set_napi(dev, i, NULL);
	netif_tx_disable(dev);
	for (i = 0; i < priv->queues; i++) {
		napi_disable(&priv->queue[i].napi);
		hrtimer_cancel(&priv->queue[i].timer);
	}
	uldma_netidle_stop(&priv->idle);
}

static int uldma_netdev_open(struct net_device *dev)
{
	struct uldma_netdev *priv = netdev_priv(dev);
	u32 i;
	int ret;

	ret = uldma_netidle_start(&priv->idle, dev, uldma_netdev_poll_idle);
	if (ret)
		return ret;
	uldma_netdev_set_irq(dev);
	for (i = 0; i < priv->queues; i++) {
		napi_enable(&priv->queue[i].napi);
		uldma_netdev_set_napi(dev, i, &priv->queue[i].napi);
	}
	netif_tx_start_all_queues(dev);
	ret = priv->ops->open(priv->driver, dev, priv->parent);
	if (ret)
		uldma_netdev_quiesce(dev);
	return ret;
}

static int uldma_netdev_stop(struct net_device *dev)
{
	struct uldma_netdev *priv = netdev_priv(dev);

	uldma_netdev_quiesce(dev);
	priv->ops->stop(priv->driver, dev, priv->parent);
	return 0;
}

static netdev_tx_t uldma_netdev_xmit(struct sk_buff *skb,
				     struct net_device *dev)
{
	struct uldma_netdev *priv = netdev_priv(dev);

	uldma_netidle_sent(&priv->idle);
	priv->ops->transmit(priv->driver, dev, priv->parent, skb);
	return NETDEV_TX_OK;
}

static u16 uldma_netdev_select_queue(struct net_device *dev,
				     struct sk_buff *skb,
				     struct net_device *sb_dev)
{
	struct uldma_netdev *priv = netdev_priv(dev);
	u8 address[ETH_ALEN];

	if (uldma_skb_destination(skb, address))
		return 0;
	return priv->ops->select_queue(priv->driver, address);
}

static netdev_features_t uldma_netdev_features_check(struct sk_buff *skb,
						     struct net_device *dev,
						     netdev_features_t features)
{
	struct uldma_netdev *priv = netdev_priv(dev);
	u8 address[ETH_ALEN];
	u32 offloads;

	if (uldma_skb_destination(skb, address))
		return features;
	offloads = priv->ops->offloads(priv->driver, address);
	if (!(offloads & ULDMA_NETDEV_CSUM))
		features &= ~(NETIF_F_CSUM_MASK | NETIF_F_GSO_MASK);
	if (!(offloads & ULDMA_NETDEV_GSO))
		features &= ~NETIF_F_GSO_MASK;
	return vlan_features_check(skb, features);
}

static void uldma_netdev_stats(struct net_device *dev,
			       struct rtnl_link_stats64 *to)
{
	struct uldma_netdev *priv = netdev_priv(dev);
	struct uldma_netdev_stats stats = {};

	priv->ops->stats(priv->driver, &stats);
	to->rx_packets = stats.rx_packets;
	to->tx_packets = stats.tx_packets;
	to->rx_bytes = stats.rx_bytes;
	to->tx_bytes = stats.tx_bytes;
	to->rx_errors = stats.rx_errors;
	to->tx_errors = stats.tx_errors;
	to->rx_dropped = stats.rx_dropped;
	to->tx_dropped = stats.tx_dropped;
	to->multicast = stats.multicast;
}

static struct uldma_netdev_queue_stats
uldma_netdev_queue_stats(struct net_device *dev, int queue)
{
	struct uldma_netdev *priv = netdev_priv(dev);
	struct uldma_netdev_queue_stats stats = {};

	priv->ops->queue_stats(priv->driver, queue, &stats);
	return stats;
}

static void uldma_netdev_rx_stats(struct net_device *dev, int queue,
				  struct netdev_queue_stats_rx *to)
{
	struct uldma_netdev_queue_stats stats =
		uldma_netdev_queue_stats(dev, queue);

	to->packets = stats.rx_packets;
	to->bytes = stats.rx_bytes;
}

static void uldma_netdev_tx_stats(struct net_device *dev, int queue,
				  struct netdev_queue_stats_tx *to)
{
	struct uldma_netdev_queue_stats stats =
		uldma_netdev_queue_stats(dev, queue);

	to->packets = stats.tx_packets;
	to->bytes = stats.tx_bytes;
	to->stop = stats.tx_stop;
}

/* All queues are always there. */
static void uldma_netdev_base_stats(struct net_device *dev,
				    struct netdev_queue_stats_rx *rx,
				    struct netdev_queue_stats_tx *tx)
{
	rx->packets = 0;
	rx->bytes = 0;
	tx->packets = 0;
	tx->bytes = 0;
	tx->stop = 0;
}

static const struct netdev_stat_ops uldma_netdev_stat_ops = {
	.get_queue_stats_rx = uldma_netdev_rx_stats,
	.get_queue_stats_tx = uldma_netdev_tx_stats,
	.get_base_stats = uldma_netdev_base_stats,
};

static const struct net_device_ops uldma_netdev_ops = {
	.ndo_open = uldma_netdev_open,
	.ndo_stop = uldma_netdev_stop,
	.ndo_start_xmit = uldma_netdev_xmit,
	.ndo_select_queue = uldma_netdev_select_queue,
	.ndo_features_check = uldma_netdev_features_check,
	.ndo_get_stats64 = uldma_netdev_stats,
	.ndo_validate_addr = eth_validate_addr,
};

static void uldma_ethtool_drvinfo(struct net_device *dev,
				  struct ethtool_drvinfo *info)
{
	struct uldma_netdev *priv = netdev_priv(dev);

	strscpy(info->driver, KBUILD_MODNAME, sizeof(info->driver));
	strscpy(info->bus_info, dev_name(priv->parent), sizeof(info->bus_info));
}

/* The first channel is for groups, each other one for a peer. */
static void uldma_ethtool_channels(struct net_device *dev,
				   struct ethtool_channels *channels)
{
	struct uldma_netdev *priv = netdev_priv(dev);

	channels->max_combined = priv->queues;
	channels->combined_count = priv->queues;
}

/* Their number cannot be changed. */
static int uldma_ethtool_set_channels(struct net_device *dev,
				      struct ethtool_channels *channels)
{
	struct uldma_netdev *priv = netdev_priv(dev);

	return channels->combined_count == priv->queues ? 0 : -EINVAL;
}

static int uldma_ethtool_sset_count(struct net_device *dev, int set)
{
	struct uldma_netdev *priv = netdev_priv(dev);

	return set == ETH_SS_STATS ? priv->ops->counters(priv->driver)
				   : -EOPNOTSUPP;
}

static void uldma_ethtool_strings(struct net_device *dev, u32 set, u8 *data)
{
	struct uldma_netdev *priv = netdev_priv(dev);

	if (set == ETH_SS_STATS)
		priv->ops->counter_names(priv->driver, data);
}

static void uldma_ethtool_stats(struct net_device *dev,
				struct ethtool_stats *stats, u64 *data)
{
	struct uldma_netdev *priv = netdev_priv(dev);

	priv->ops->counter_values(priv->driver, data);
}

static const struct ethtool_ops uldma_ethtool_ops = {
	.get_drvinfo = uldma_ethtool_drvinfo,
	.get_link = ethtool_op_get_link,
	.get_channels = uldma_ethtool_channels,
	.set_channels = uldma_ethtool_set_channels,
	.get_sset_count = uldma_ethtool_sset_count,
	.get_strings = uldma_ethtool_strings,
	.get_ethtool_stats = uldma_ethtool_stats,
};

static enum hrtimer_restart uldma_netdev_timer(struct hrtimer *timer)
{
	struct uldma_netdev_queue *queue =
		container_of(timer, struct uldma_netdev_queue, timer);

	napi_schedule(&queue->napi);
	return HRTIMER_NORESTART;
}

static int uldma_netdev_poll(struct napi_struct *napi, int budget)
{
	struct uldma_netdev_queue *queue =
		container_of(napi, struct uldma_netdev_queue, napi);
	struct uldma_netdev *priv = netdev_priv(napi->dev);

	return priv->ops->poll(priv->driver, napi->dev, priv->parent,
			       queue->number, napi, budget);
}

/*
 * Makes an Ethernet device of @queues queues that is not registered. Packets
 * have up to @max_frame bytes, headers included.
 */
struct net_device *uldma_netdev_new(const struct uldma_netdev_ops *ops,
				    void *driver, u32 queues, u32 max_frame)
{
	struct uldma_netdev *priv;
	struct net_device *dev;
	u32 i;

	dev = alloc_etherdev_mqs(struct_size(priv, queue, queues), queues,
				 queues);
	if (!dev)
		return NULL;
	priv = netdev_priv(dev);
	priv->ops = ops;
	priv->driver = driver;
	priv->queues = queues;

	dev->netdev_ops = &uldma_netdev_ops;
	dev->ethtool_ops = &uldma_ethtool_ops;
	dev->stat_ops = &uldma_netdev_stat_ops;
	/* Packets are sent with bottom halves on their way, not from interrupts. */
	dev->priv_flags |= IFF_DISABLE_NETPOLL;
	dev->hw_features = NETIF_F_SG | NETIF_F_HW_CSUM | NETIF_F_TSO |
			   NETIF_F_TSO6 | NETIF_F_TSO_ECN | NETIF_F_GSO_UDP_L4;
	dev->features = dev->hw_features | NETIF_F_HIGHDMA | NETIF_F_RXCSUM;
	dev->vlan_features = dev->hw_features | NETIF_F_HIGHDMA;
	dev->min_mtu = ETH_MIN_MTU;
	dev->max_mtu = min_t(u32, max_frame - VLAN_ETH_HLEN, ETH_MAX_MTU);
	netif_set_tso_max_size(dev, min_t(u32, max_frame, GSO_LEGACY_MAX_SIZE));
	for (i = 0; i < queues; i++) {
		priv->queue[i].number = i;
		netif_napi_add_config(dev, &priv->queue[i].napi,
				      uldma_netdev_poll, i);
		hrtimer_setup(&priv->queue[i].timer, uldma_netdev_timer,
			      CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED);
	}
	netif_carrier_off(dev);
	return dev;
}

void uldma_netdev_free(struct net_device *dev)
{
	free_netdev(dev);
}

/* Registers @dev as ul@number, or by the next free number if that is taken. */
int uldma_netdev_register(struct net_device *dev, struct device *parent,
			  u32 number, const u8 *address)
{
	struct uldma_netdev *priv = netdev_priv(dev);
	int ret;

	priv->parent = parent;
	SET_NETDEV_DEV(dev, parent);
	eth_hw_addr_set(dev, address);
	snprintf(dev->name, sizeof(dev->name), "ul%u", number);
	ret = register_netdev(dev);
	if (ret == -EEXIST) {
		strscpy(dev->name, "ul%d");
		ret = register_netdev(dev);
	}
	return ret;
}

void uldma_netdev_unregister(struct net_device *dev)
{
	unregister_netdev(dev);
}

void uldma_netdev_set_carrier(struct net_device *dev, u32 on)
{
	if (on)
		netif_carrier_on(dev);
	else
		netif_carrier_off(dev);
}

/*
 * May be called from any context, whether or not the device is open. Returns
 * false if the queue is being polled, or cannot be.
 */
u32 uldma_netdev_schedule(struct net_device *dev, u32 queue)
{
	struct uldma_netdev *priv = netdev_priv(dev);

	return queue < priv->queues && napi_schedule(&priv->queue[queue].napi);
}

void uldma_netdev_stop_queue(struct net_device *dev, u32 queue)
{
	if (queue < dev->num_tx_queues)
		netif_tx_stop_queue(netdev_get_tx_queue(dev, queue));
}

void uldma_netdev_wake_queue(struct net_device *dev, u32 queue)
{
	if (queue < dev->num_tx_queues)
		netif_tx_wake_queue(netdev_get_tx_queue(dev, queue));
}

/*
 * Byte queue limits: @sent bytes are on their way in @queue, and @completed of
 * those before have arrived. Returns true if the stack sends no more until more
 * of them have. Calls for one queue take turns.
 */
u32 uldma_netdev_sent(struct net_device *dev, u32 queue, u32 sent,
		      u32 completed)
{
	struct netdev_queue *txq;

	if (queue >= dev->num_tx_queues)
		return false;
	txq = netdev_get_tx_queue(dev, queue);
	if (sent)
		netdev_tx_sent_queue(txq, sent);
	netdev_tx_completed_queue(txq, 0, completed);
	return test_bit(__QUEUE_STATE_STACK_XOFF, &txq->state);
}

/* Byte queue limits: nothing is on its way any more. */
void uldma_netdev_reset_sent(struct net_device *dev, u32 queue)
{
	struct netdev_queue *txq;
	bool limited;

	if (queue >= dev->num_tx_queues)
		return;
	txq = netdev_get_tx_queue(dev, queue);
	limited = test_bit(__QUEUE_STATE_STACK_XOFF, &txq->state);
	netdev_tx_reset_queue(txq);
	/* A device that was never open has nothing to schedule. */
	if (limited)
		netif_schedule_queue(txq);
}

u32 uldma_napi_complete(struct napi_struct *napi, u32 done)
{
	return napi_complete_done(napi, done);
}

/*
 * Polls again by a timer, and by @idle processors if that is not 0. The timer
 * starts before the poll completes, and napi_disable() waits for that, so that
 * no timer starts after the last one was cancelled; nor does a wait of the
 * thread begin after it has ended.
 */
void uldma_napi_complete_and_poll(struct napi_struct *napi, u32 done, u64 after,
				  u32 idle)
{
	struct uldma_netdev_queue *queue =
		container_of(napi, struct uldma_netdev_queue, napi);
	struct uldma_netdev *priv = netdev_priv(napi->dev);

	hrtimer_start(&queue->timer, ns_to_ktime(after),
		      HRTIMER_MODE_REL_PINNED);
	if (idle)
		uldma_netidle_wait(&priv->idle);
	napi_complete_done(napi, done);
}

u32 uldma_skb_len(const struct sk_buff *skb)
{
	return skb->len;
}

int uldma_skb_destination(const struct sk_buff *skb, u8 *address)
{
	return skb_copy_bits(skb, 0, address, ETH_ALEN);
}

int uldma_skb_offload(const struct sk_buff *skb, struct uldma_offload *offload)
{
	struct virtio_net_hdr hdr;
	int ret;

	ret = virtio_net_hdr_from_skb(skb, &hdr, true, false, 0);
	if (ret)
		return ret;
	*offload = (struct uldma_offload) {
		.flags = hdr.flags,
		.gso_type = hdr.gso_type,
		.hdr_len = __virtio16_to_cpu(true, hdr.hdr_len),
		.gso_size = __virtio16_to_cpu(true, hdr.gso_size),
		.csum_start = __virtio16_to_cpu(true, hdr.csum_start),
		.csum_offset = __virtio16_to_cpu(true, hdr.csum_offset),
	};
	return 0;
}

/*
 * Copies @count bytes of @skb from byte @from on, which it has. The blocks of
 * skb_seq_read() reach beyond its upper offset.
 */
int uldma_skb_copy_toio(struct sk_buff *skb, u32 from, u32 count,
			void __iomem *to)
{
	struct skb_seq_state state;
	u32 done = 0, length;
	const u8 *data;

	skb_prepare_seq_read(skb, from, from + count, &state);
	while ((length = skb_seq_read(done, &data, &state)) != 0) {
		length = min(length, count - done);
		uldma_window_copy_to(to + done, data, length);
		done += length;
	}
	return done == count ? 0 : -EFAULT;
}

/* Copies @count bytes to byte @to of @skb, which uldma_skb_alloc() made. */
int uldma_skb_copy_fromio(struct sk_buff *skb, u32 to, u32 count,
			  const void __iomem *from)
{
	struct skb_seq_state state;
	u32 done = 0, length;
	const u8 *data;

	skb_prepare_seq_read(skb, to, to + count, &state);
	while ((length = skb_seq_read(done, &data, &state)) != 0) {
		length = min(length, count - done);
		/* The packet is ours alone. */
		uldma_window_copy_from((u8 *)data, from + done, length);
		done += length;
	}
	return done == count ? 0 : -EFAULT;
}

/* Makes a packet of @count bytes for the device of @napi. */
struct sk_buff *uldma_skb_alloc(struct napi_struct *napi, u32 count)
{
	unsigned int headroom = NET_SKB_PAD + NET_IP_ALIGN;
	struct sk_buff *skb;
	int error;

	if (count <= SKB_WITH_OVERHEAD(PAGE_SIZE) - headroom) {
		skb = napi_alloc_skb(napi, count);
		if (skb)
			skb_put(skb, count);
		return skb;
	}
	skb = alloc_skb_with_frags(headroom + ULDMA_SKB_LINEAR,
				   count - ULDMA_SKB_LINEAR,
				   PAGE_ALLOC_COSTLY_ORDER, &error,
				   GFP_ATOMIC | __GFP_NOWARN);
	if (!skb)
		return NULL;
	skb_reserve(skb, headroom);
	skb_put(skb, ULDMA_SKB_LINEAR);
	skb->data_len = count - ULDMA_SKB_LINEAR;
	skb->len += skb->data_len;
	skb->dev = napi->dev;
	return skb;
}

/*
 * Passes @skb to the network stack if what @offload says of it can be true;
 * consumes it anyway. A peer wrote both.
 */
int uldma_skb_receive(struct napi_struct *napi, struct sk_buff *skb,
		      const struct uldma_offload *offload)
{
	struct virtio_net_hdr hdr = {
		.flags = offload->flags,
		.gso_type = offload->gso_type,
		.hdr_len = __cpu_to_virtio16(true, offload->hdr_len),
		.gso_size = __cpu_to_virtio16(true, offload->gso_size),
		.csum_start = __cpu_to_virtio16(true, offload->csum_start),
		.csum_offset = __cpu_to_virtio16(true, offload->csum_offset),
	};
	int ret;

	ret = virtio_net_hdr_to_skb(skb, &hdr, true);
	if (ret) {
		uldma_skb_drop(skb);
		return ret;
	}
	skb->protocol = eth_type_trans(skb, napi->dev);
	napi_gro_receive(napi, skb);
	return 0;
}

void uldma_skb_drop(struct sk_buff *skb)
{
	dev_kfree_skb_any(skb);
}

void uldma_skb_consume(struct sk_buff *skb)
{
	dev_consume_skb_any(skb);
}

void uldma_bh_disable(void)
{
	local_bh_disable();
}

void uldma_bh_enable(void)
{
	local_bh_enable();
}
