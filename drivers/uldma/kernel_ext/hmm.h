/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Pages that are mapped in a process, for kernel_ext/hmm.rs.
 */

#ifndef ULDMA_KERNEL_EXT_HMM_H
#define ULDMA_KERNEL_EXT_HMM_H

#include <linux/mm_types.h>
#include <linux/mmu_notifier.h>

int uldma_hmm_snapshot(struct mmu_interval_notifier *notifier,
		       unsigned long start, unsigned long end,
		       unsigned long *entries, unsigned long *seq);
bool uldma_hmm_is_usable(unsigned long entry, bool write);
struct page *uldma_hmm_page(unsigned long entry);
int uldma_hmm_fault_minor(struct mmu_interval_notifier *notifier,
			  unsigned long address, bool write, bool is_mapped);
int uldma_hmm_fault_major(struct mmu_interval_notifier *notifier,
			  unsigned long address, bool write);
void uldma_page_accessed(struct page *page, bool written);

#endif
