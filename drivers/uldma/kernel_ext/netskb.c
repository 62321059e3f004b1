// SPDX-License-Identifier: GPL-2.0
/*
 * Packets of network devices for kernel_ext/net/.
 */

#include <linux/etherdevice.h>
#include <linux/io.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <linux/virtio_net.h>
#include <net/sock.h>

#include "netdev.h"
#include "window.h"

/* Bytes of a large packet that are not in fragments; headers fit. */
#define ULDMA_SKB_LINEAR	256

u32 uldma_skb_len(const struct sk_buff *skb)
{
	return skb->len;
}

/* Copies the addresses of the Ethernet header: destination and source. */
int uldma_skb_addresses(const struct sk_buff *skb, u8 *addresses)
{
	return skb_copy_bits(skb, 0, addresses, 2 * ETH_ALEN);
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
	gfp_t gfp = GFP_ATOMIC | __GFP_NOWARN;
	struct sk_buff *skb;
	int error;

	if (count <= SKB_WITH_OVERHEAD(PAGE_SIZE) - headroom) {
		skb = napi_alloc_skb(napi, count);
		if (skb)
			skb_put(skb, count);
		return skb;
	}
	/* As in napi_alloc_skb(): a node may wait for this to free memory. */
	if (sk_memalloc_socks())
		gfp |= __GFP_MEMALLOC;
	skb = alloc_skb_with_frags(headroom + ULDMA_SKB_LINEAR,
				   count - ULDMA_SKB_LINEAR,
				   PAGE_ALLOC_COSTLY_ORDER, &error, gfp);
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
