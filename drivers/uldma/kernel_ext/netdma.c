// SPDX-License-Identifier: GPL-2.0
/*
 * Memory of packets for DMA, for kernel_ext/net/: packets that are mapped, and
 * pages that packets are received into.
 */

#include <linux/dma-mapping.h>
#include <linux/skbuff.h>
#include <net/page_pool/helpers.h>

#include "netdev.h"

/*
 * Maps what @skb has from byte @from on for @dev to read. Returns the number of
 * pieces, of which there is room for @most.
 */
int uldma_skb_map(struct device *dev, const struct sk_buff *skb, u32 from,
		  struct uldma_piece *pieces, u32 most)
{
	const struct skb_shared_info *shared = skb_shinfo(skb);
	u32 linear = skb_headlen(skb), count = 0, i;
	dma_addr_t address;

	if (skb_has_frag_list(skb))
		return -EINVAL;
	if (from < linear) {
		void *data = skb->data + from;

		if (!most)
			return -EMSGSIZE;
		address = dma_map_page(dev, virt_to_page(data),
				       offset_in_page(data), linear - from,
				       DMA_TO_DEVICE);
		if (dma_mapping_error(dev, address))
			return -ENOMEM;
		pieces[count++] = (struct uldma_piece) {
			.address = address,
			.bytes = linear - from,
		};
		from = linear;
	}
	from -= linear;
	for (i = 0; i < shared->nr_frags; i++) {
		const skb_frag_t *frag = &shared->frags[i];
		u32 bytes = skb_frag_size(frag), skipped = min(from, bytes);

		from -= skipped;
		bytes -= skipped;
		if (!bytes)
			continue;
		if (count == most) {
			uldma_skb_unmap(dev, pieces, count);
			return -EMSGSIZE;
		}
		address = skb_frag_dma_map(dev, frag, skipped, bytes,
					   DMA_TO_DEVICE);
		if (dma_mapping_error(dev, address)) {
			uldma_skb_unmap(dev, pieces, count);
			return -ENOMEM;
		}
		pieces[count++] = (struct uldma_piece) {
			.address = address,
			.bytes = bytes,
		};
	}
	return count;
}

void uldma_skb_unmap(struct device *dev, const struct uldma_piece *pieces,
		     u32 count)
{
	while (count--)
		dma_unmap_page(dev, pieces[count].address, pieces[count].bytes,
			       DMA_TO_DEVICE);
}

/* Makes a pool of single pages that @dev can write, @pages at a time. */
struct page_pool *uldma_page_pool_new(struct device *dev, u32 pages)
{
	struct page_pool_params params = {
		.flags = PP_FLAG_DMA_MAP | PP_FLAG_DMA_SYNC_DEV,
		.pool_size = pages,
		.nid = NUMA_NO_NODE,
		.dev = dev,
		.dma_dir = DMA_FROM_DEVICE,
		.max_len = PAGE_SIZE,
	};
	struct page_pool *pool = page_pool_create(&params);

	return IS_ERR(pool) ? NULL : pool;
}

/* Pages that are in use keep the memory of the pool. May sleep. */
void uldma_page_pool_free(struct page_pool *pool)
{
	page_pool_destroy(pool);
}

/* Calls for one pool take turns, with bottom halves disabled. */
struct page *uldma_page_pool_alloc(struct page_pool *pool, u64 *address)
{
	struct page *page = page_pool_dev_alloc_pages(pool);

	if (page)
		*address = page_pool_get_dma_addr(page);
	return page;
}

void uldma_page_pool_put(struct page_pool *pool, struct page *page)
{
	page_pool_put_full_page(pool, page, false);
}

/* Appends the first @bytes bytes of @page, which the device has written. */
void uldma_skb_add_page(struct sk_buff *skb, struct page_pool *pool,
			struct page *page, u32 bytes)
{
	page_pool_dma_sync_for_cpu(pool, page, 0, bytes);
	skb_add_rx_frag(skb, skb_shinfo(skb)->nr_frags, page, 0, bytes,
			PAGE_SIZE);
	skb_mark_for_recycle(skb);
}

/* The number of pages that uldma_skb_add_page() can append to a packet. */
u32 uldma_skb_max_pages(void)
{
	return MAX_SKB_FRAGS;
}
