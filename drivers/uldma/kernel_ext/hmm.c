// SPDX-License-Identifier: GPL-2.0
/*
 * Pages that are mapped in a process, for kernel_ext/hmm.rs.
 */

#include <linux/hmm.h>
#include <linux/hugetlb.h>
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

/* Returns true if there is a page, which with @write the process can write now. */
bool uldma_hmm_is_usable(unsigned long entry, bool write)
{
	unsigned long needed = HMM_PFN_VALID | (write ? HMM_PFN_WRITE : 0);

	return (entry & needed) == needed && !(entry & HMM_PFN_ERROR);
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

	if (!uldma_hmm_is_usable(entry, false))
		return NULL;
	page = hmm_pfn_to_page(entry);
	if (is_zone_device_page(page) || uldma_is_secret(page_folio(page)))
		return NULL;
	return page;
}

/*
 * Returns the mapping at @address if the process may access it there, for writing with
 * @write. Its pages have to be memory of the machine.
 */
static struct vm_area_struct *uldma_vma_of(struct mm_struct *mm,
					   unsigned long address, bool write)
{
	struct vm_area_struct *vma = vma_lookup(mm, address);

	if (!vma || vma->vm_flags & (VM_IO | VM_PFNMAP))
		return ERR_PTR(-EFAULT);
	if (!(vma->vm_flags & (write ? VM_WRITE : VM_READ)))
		return ERR_PTR(-EPERM);
	return vma;
}

/* Returns true if the page cache has the page of a file that is mapped at @address. */
static bool uldma_is_cached(struct vm_area_struct *vma, unsigned long address)
{
	struct folio *folio;
	bool is_there;

	folio = filemap_get_folio(vma->vm_file->f_mapping,
				  linear_page_index(vma, address));
	if (IS_ERR(folio))
		return false;
	is_there = folio_test_uptodate(folio) && !folio_test_locked(folio);
	folio_put(folio);
	return is_there;
}

/*
 * Returns true if a fault at @address waits for no device: it maps what the page cache
 * has, or copies what is mapped for its writer.
 */
static bool uldma_is_minor(struct vm_area_struct *vma, unsigned long address,
			   bool write, bool is_mapped)
{
	const struct vm_operations_struct *ops = vma->vm_ops;

	if (is_vm_hugetlb_page(vma))
		return false;
	/* The file system may have to make room, or to wait for a transaction. */
	if (write && vma->vm_flags & VM_SHARED && ops &&
	    (ops->page_mkwrite || ops->pfn_mkwrite))
		return false;
	if (is_mapped)
		return true;
	/* Where there are private copies, this one may have been swapped out. */
	return vma->vm_file && !vma->anon_vma && uldma_is_cached(vma, address);
}

/*
 * Has the page at @address mapped, writable with @write, if that needs no I/O; a page
 * that @is_mapped has to be made writable. Returns -EFAULT if nothing is mapped there,
 * -EPERM if the process has no such right, -EAGAIN if the page is not in memory.
 */
int uldma_hmm_fault_minor(struct mmu_interval_notifier *notifier,
			  unsigned long address, bool write, bool is_mapped)
{
	unsigned int flags = FAULT_FLAG_REMOTE | FAULT_FLAG_ALLOW_RETRY |
			     FAULT_FLAG_RETRY_NOWAIT |
			     (write ? FAULT_FLAG_WRITE : 0);
	struct mm_struct *mm = notifier->mm;
	struct vm_area_struct *vma;
	vm_fault_t fault = 0;
	int err = 0;

	if (!mmget_not_zero(mm))
		return -ESRCH;
	mmap_read_lock(mm);
	vma = uldma_vma_of(mm, address, write);
	if (IS_ERR(vma))
		err = PTR_ERR(vma);
	else if (uldma_is_minor(vma, address, write, is_mapped))
		fault = handle_mm_fault(vma, address, flags, NULL);
	else
		err = -EAGAIN;
	if (fault & VM_FAULT_ERROR)
		err = vm_fault_to_errno(fault, 0);
	else if (fault & VM_FAULT_RETRY)
		err = -EAGAIN;
	/* A fault that may not wait keeps the lock. */
	if (!WARN_ON_ONCE(fault & VM_FAULT_COMPLETED))
		mmap_read_unlock(mm);
	mmput_async(mm);
	return err;
}

/*
 * Has the page at @address mapped, writable with @write, and waits for it as long as
 * its device, or the program that serves it, likes. Holds no lock meanwhile. Returns
 * the same.
 */
int uldma_hmm_fault_major(struct mmu_interval_notifier *notifier,
			  unsigned long address, bool write)
{
	unsigned int flags = FAULT_FLAG_REMOTE | (write ? FAULT_FLAG_WRITE : 0);
	struct mm_struct *mm = notifier->mm;
	struct vm_area_struct *vma;
	bool was_unlocked = false;
	int err;

	if (!mmget_not_zero(mm))
		return -ESRCH;
	mmap_read_lock(mm);
	vma = uldma_vma_of(mm, address, write);
	err = PTR_ERR_OR_ZERO(vma);
	if (!err)
		err = fixup_user_fault(mm, address, flags, &was_unlocked);
	mmap_read_unlock(mm);
	mmput_async(mm);
	return err;
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
