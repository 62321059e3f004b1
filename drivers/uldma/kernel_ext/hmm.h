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
struct page *uldma_hmm_page(unsigned long entry);
bool uldma_hmm_is_writable(unsigned long entry);
void uldma_page_accessed(struct page *page, bool written);

#endif
