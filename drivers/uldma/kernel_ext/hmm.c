// SPDX-License-Identifier: GPL-2.0
/*
 * Pages that are mapped in a process, for kernel_ext/hmm.rs.
 */

#include <linux/hmm.h>
#include <linux/magic.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/sched/mm.h>
#include <linux/swap.h>

#include "hmm.h"

/*
 * Finds what is mapped from @start to @end in the address space of @notifier, without
 * a fault: an entry for each page, as hmm_range_fault() returns it.
 */
int uldma_hmm_snapshot(struct mmu_interval_notifier *notifier,
		       unsigned long start, unsigned long end,
		       unsigned long *entries, unsigned long *seq)
{
	struct hmm_range range = {
		.notifier = notifier,
		.start = start,
		.end = end,
		.hmm_pfns = entries,
	};
	struct mm_struct *mm = notifier->mm;
	int err;

	if (!mmget_not_zero(mm))
		return -ESRCH;
	range.notifier_seq = mmu_interval_read_begin(notifier);
	*seq = range.notifier_seq;
	mmap_read_lock(mm);
	err = hmm_range_fault(&range);
	mmap_read_unlock(mm);
	mmput_async(mm);
	return err;
}

/* Returns true if nothing but the process may access a page, which it has mapped. */
static bool uldma_is_secret(struct folio *folio)
{
	struct address_space *mapping = folio_mapping(folio);

	return mapping && mapping->host &&
	       mapping->host->i_sb->s_magic == SECRETMEM_MAGIC;
}

/*
 * Returns the page of @entry; NULL if there is none, or none that is memory of the
 * machine, or one that pinning would refuse.
 */
struct page *uldma_hmm_page(unsigned long entry)
{
	struct page *page;

	if (!(entry & HMM_PFN_VALID) || entry & HMM_PFN_ERROR)
		return NULL;
	page = hmm_pfn_to_page(entry);
	if (is_zone_device_page(page) || uldma_is_secret(page_folio(page)))
		return NULL;
	return page;
}

bool uldma_hmm_is_writable(unsigned long entry)
{
	return entry & HMM_PFN_WRITE;
}

/* Notes accesses to a page that is mapped in a process. */
void uldma_page_accessed(struct page *page, bool written)
{
	struct folio *folio = page_folio(page);

	if (written)
		folio_mark_dirty(folio);
	/* Others, such as the page of zeroes, are never reclaimed. */
	if (folio_test_lru(folio))
		folio_mark_accessed(folio);
}
