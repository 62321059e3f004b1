// SPDX-License-Identifier: GPL-2.0
/*
 * Network devices for kernel_ext/net/. Here are the structures and the inline
 * functions that Rust cannot use; what a device does is decided there.
 */

#include <linux/bottom_half.h>
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/hrtimer.h>
#include <linux/if_vlan.h>
#include <linux/netdevice.h>
#include <linux/pci.h>
#include <linux/skbuff.h>
#include <net/netdev_queues.h>

#include "netdev.h"
#include "netidle.h"

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
	/* A packet for a group is sent several times, and stamped once. */
	skb_tx_timestamp(skb);
	priv->ops->transmit(priv->driver, dev, priv->parent, skb);
	return NETDEV_TX_OK;
}

static u16 uldma_netdev_select_queue(struct net_device *dev,
				     struct sk_buff *skb,
				     struct net_device *sb_dev)
{
	struct uldma_netdev *priv = netdev_priv(dev);
	u8 addresses[2 * ETH_ALEN];

	if (uldma_skb_addresses(skb, addresses))
		return 0;
	return priv->ops->select_queue(priv->driver, addresses);
}

static netdev_features_t uldma_netdev_features_check(struct sk_buff *skb,
						     struct net_device *dev,
						     netdev_features_t features)
{
	struct uldma_netdev *priv = netdev_priv(dev);
	u8 addresses[2 * ETH_ALEN];
	u32 offloads;

	if (uldma_skb_addresses(skb, addresses))
		return features;
	offloads = priv->ops->offloads(priv->driver, addresses);
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
	.get_ts_info = ethtool_op_get_ts_info,
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
	/* Peers find the device by its own address, and no station behind it. */
	dev->priv_flags |= IFF_DONT_BRIDGE;
	dev->hw_features = NETIF_F_SG | NETIF_F_HW_CSUM | NETIF_F_TSO |
			   NETIF_F_TSO6 | NETIF_F_TSO_ECN | NETIF_F_GSO_UDP_L4;
	dev->features = dev->hw_features | NETIF_F_HIGHDMA | NETIF_F_RXCSUM;
	dev->vlan_features = dev->hw_features | NETIF_F_HIGHDMA;
	dev->min_mtu = ETH_MIN_MTU;
	/* A VLAN in a VLAN may have the MTU of the device. */
	dev->max_mtu = min_t(u32, max_frame - ETH_HLEN - 2 * VLAN_HLEN,
			     ETH_MAX_MTU);
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

void uldma_bh_disable(void)
{
	local_bh_disable();
}

void uldma_bh_enable(void)
{
	local_bh_enable();
}
