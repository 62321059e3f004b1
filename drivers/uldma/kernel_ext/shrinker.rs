// SPDX-License-Identifier: GPL-2.0

//! A shrinker of caches, which releases their pages when memory is short: that of the machine, or what
//! a memory control group may have.
//!
//! C headers: `include/linux/shrinker.h`, `include/linux/list_lru.h`.

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};

use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

unsafe extern "C" {
    fn uldma_shrinker_alloc(name: *const c_char) -> *mut bindings::shrinker;
    fn uldma_memcg_get() -> *mut bindings::mem_cgroup;
    fn uldma_memcg_put(group: *mut bindings::mem_cgroup);
    fn uldma_lru_alloc(
        pool: *mut bindings::kmem_cache,
        lists: *mut bindings::list_lru,
        group: *mut bindings::mem_cgroup,
    ) -> *mut c_void;
    fn uldma_lru_add(
        lists: *mut bindings::list_lru,
        item: *mut bindings::list_head,
        group: *mut bindings::mem_cgroup,
    );
    fn uldma_lru_del(
        lists: *mut bindings::list_lru,
        item: *mut bindings::list_head,
        group: *mut bindings::mem_cgroup,
    );
    fn uldma_may_reclaim(control: *const bindings::shrink_control) -> bool;
}

/// The answer of a shrinker that can release nothing now.
const SHRINK_STOP: c_ulong = c_ulong::MAX;

/// A cache of pages that can be released.
///
/// A thread that allocates memory calls both functions, under any of its locks. It may be dropped by
/// such a thread, too.
pub(crate) trait Shrink: Send + Sync + 'static {
    /// Returns the number of pages that could be released. Called under a spinlock, so this does not
    /// sleep.
    fn count(&self) -> usize;

    /// Releases up to about `pages` pages, and returns how many it has released.
    ///
    /// It allocates nothing. It takes a lock only if no holder of that allocates memory by `GFP_KERNEL`,
    /// or else if the lock is free.
    fn shrink(&self, pages: usize) -> usize;
}

/// An entry in the list of a control group. The lock of the list protects its links.
#[repr(C)]
struct Entry<T> {
    links: bindings::list_head,
    cache: Arc<T>,
}

/// The memory of entries.
///
/// # Invariants
///
/// It was made by `__kmem_cache_create_args()`, and is destroyed by `drop` only.
struct EntryPool(NonNull<bindings::kmem_cache>);

impl EntryPool {
    fn new<T>(name: &'static CStr) -> Result<Self> {
        let mut args = bindings::kmem_cache_args {
            align: u32::try_from(align_of::<Entry<T>>())?,
            ..pin_init::zeroed()
        };
        let size = u32::try_from(size_of::<Entry<T>>())?;
        // SAFETY: Name and arguments are valid, and the name lives as long as the module.
        let pool = unsafe {
            bindings::__kmem_cache_create_args(name.as_char_ptr(), size, &raw mut args, 0)
        };
        // INVARIANT: It was made just now.
        Ok(Self(NonNull::new(pool).ok_or(ENOMEM)?))
    }
}

impl Drop for EntryPool {
    fn drop(&mut self) {
        // SAFETY: By the type invariant it exists; each entry refers to its shrinker, and was freed.
        unsafe { bindings::kmem_cache_destroy(self.0.as_ptr()) };
    }
}

/// A memory control group.
///
/// # Invariants
///
/// This has a reference to it, or is null where the kernel has none.
struct Group(*mut bindings::mem_cgroup);

impl Group {
    /// Returns the group that pays for the memory of the current process.
    fn of_current() -> Self {
        // INVARIANT: The function takes a reference.
        // SAFETY: It has no requirements.
        Self(unsafe { uldma_memcg_get() })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { uldma_memcg_put(self.0) };
    }
}

/// A shrinker, which calls nothing before it is registered, and nothing once it is dropped.
///
/// # Invariants
///
/// It was made by `shrinker_alloc()`, and is freed by `drop` only.
struct Registration(NonNull<bindings::shrinker>);

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: By the type invariant it exists.
        unsafe { bindings::shrinker_free(self.0.as_ptr()) };
    }
}

/// The list of entries of each control group.
///
/// # Invariants
///
/// It was initialized by `__list_lru_init()`.
#[pin_data(PinnedDrop)]
struct Lists {
    #[pin]
    raw: Opaque<bindings::list_lru>,
}

impl Lists {
    fn new(shrinker: NonNull<bindings::shrinker>) -> impl PinInit<Self, Error> {
        // INVARIANT: It is initialized here.
        try_pin_init!(Self {
            raw <- Opaque::try_ffi_init(move |slot: *mut bindings::list_lru| {
                // SAFETY: `slot` is memory for lists that are pinned from now on, and the shrinker exists.
                to_result(unsafe {
                    slot.write(pin_init::zeroed());
                    bindings::__list_lru_init(slot, true, shrinker.as_ptr())
                })
            }),
        })
    }
}

#[pinned_drop]
impl PinnedDrop for Lists {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant they are initialized; each entry refers to its shrinker, and was
        // removed.
        unsafe { bindings::list_lru_destroy(self.raw.get()) };
    }
}

/// A registered shrinker of caches `T`.
///
/// # Invariants
///
/// All entries of `lists` are from `entries`, and have a `T`.
#[pin_data]
pub(crate) struct Shrinker<T: Shrink> {
    // Dropped in this order.
    registration: Registration,
    #[pin]
    lists: Lists,
    entries: EntryPool,
    _caches: PhantomData<fn(T)>,
}

// SAFETY: All that it consists of may be used from any thread, and `T` is `Send` and `Sync`.
unsafe impl<T: Shrink> Send for Shrinker<T> {}
// SAFETY: As above, also from many at once.
unsafe impl<T: Shrink> Sync for Shrinker<T> {}

impl<T: Shrink> Shrinker<T> {
    /// Registers a shrinker as `name`, without caches.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(name: &'static CStr) -> Result<Arc<Self>> {
        // SAFETY: The name is a string.
        let raw = unsafe { uldma_shrinker_alloc(name.as_char_ptr()) };
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        // INVARIANT: It was made just now.
        let registration = Registration(raw);
        // INVARIANT: There are no entries.
        let this = try_pin_init!(Self {
            lists <- Lists::new(raw),
            entries: EntryPool::new::<T>(name)?,
            registration,
            _caches: PhantomData,
        });
        let this = Arc::pin_init(this, GFP_KERNEL)?;
        // SAFETY: The shrinker is not registered yet. What its data points at drops it.
        unsafe {
            (*raw.as_ptr()).count_objects = Some(Self::count);
            (*raw.as_ptr()).scan_objects = Some(Self::scan);
            (*raw.as_ptr()).private_data = Arc::as_ptr(&this).cast_mut().cast();
            bindings::shrinker_register(raw.as_ptr());
        }
        Ok(this)
    }

    /// Passes the first `most` entries of one control group to `visit`, under the lock of their list. Each
    /// becomes the last one.
    fn for_each(
        &self,
        control: &bindings::shrink_control,
        mut most: c_ulong,
        mut visit: &mut dyn FnMut(&Entry<T>),
    ) {
        // SAFETY: The lists are initialized, and their entries have a `T`. `visit` is what the function
        // expects.
        unsafe {
            bindings::list_lru_walk_one(
                self.lists.raw.get(),
                control.nid,
                control.memcg,
                Some(Self::visit),
                (&raw mut visit).cast(),
                &raw mut most,
            );
        }
    }

    /// # Safety
    ///
    /// Called by [`Self::for_each`], by way of the list.
    unsafe extern "C" fn visit(
        item: *mut bindings::list_head,
        _list: *mut bindings::list_lru_one,
        visit: *mut c_void,
    ) -> bindings::lru_status {
        // SAFETY: This is what the caller has passed.
        let visit = unsafe { &mut *visit.cast::<&mut dyn FnMut(&Entry<T>)>() };
        // SAFETY: By the type invariant of the shrinker. The entry is not removed as long as the lock of
        // the list is held, and links are its first field.
        visit(unsafe { &*item.cast::<Entry<T>>() });
        bindings::lru_status::LRU_ROTATE
    }

    /// # Safety
    ///
    /// Called by the memory manager for a shrinker that [`Self::new`] registered.
    unsafe extern "C" fn count(
        shrinker: *mut bindings::shrinker,
        control: *mut bindings::shrink_control,
    ) -> c_ulong {
        // SAFETY: This is what the data points at, as long as the shrinker is registered, and the control
        // block is valid during this call.
        let (this, control) = unsafe { (&*(*shrinker).private_data.cast::<Self>(), &*control) };
        let mut pages = 0;
        // Never `SHRINK_EMPTY`: the kernel would not call again before the list gets its first entry.
        this.for_each(control, c_ulong::MAX, &mut |entry| {
            pages += entry.cache.count()
        });
        pages
    }

    /// # Safety
    ///
    /// As for [`Self::count`].
    unsafe extern "C" fn scan(
        shrinker: *mut bindings::shrinker,
        control: *mut bindings::shrink_control,
    ) -> c_ulong {
        // SAFETY: As in `count`.
        let (this, control) = unsafe { (&*(*shrinker).private_data.cast::<Self>(), &*control) };
        // SAFETY: The control block is valid.
        if !unsafe { uldma_may_reclaim(control) } {
            return SHRINK_STOP;
        }
        let mut entries = 0usize;
        this.for_each(control, c_ulong::MAX, &mut |_| entries += 1);
        let mut released = 0usize;
        for _ in 0..entries {
            let mut first = None;
            this.for_each(control, 1, &mut |entry| first = Some(entry.cache.clone()));
            let Some(cache) = first else {
                break;
            };
            released += cache.shrink(control.nr_to_scan.saturating_sub(released));
            if released >= control.nr_to_scan {
                break;
            }
        }
        match released {
            0 => SHRINK_STOP,
            released => released,
        }
    }
}

/// A cache that the shrinker finds until this is dropped.
///
/// # Invariants
///
/// `entry` is in the list of `group`, of those of `shrinker`.
pub(crate) struct Shrinkable<T: Shrink> {
    entry: NonNull<Entry<T>>,
    group: Group,
    shrinker: Arc<Shrinker<T>>,
}

// SAFETY: An entry may be removed from any thread, and so may a reference to a group; the rest is `Send`.
unsafe impl<T: Shrink> Send for Shrinkable<T> {}
// SAFETY: A shared reference gives access to nothing.
unsafe impl<T: Shrink> Sync for Shrinkable<T> {}

impl<T: Shrink> Shrinkable<T> {
    /// Adds `cache` to the list of the control group that pays for the memory of the current process, which
    /// is charged for the entry, too. A charge may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(shrinker: Arc<Shrinker<T>>, cache: Arc<T>) -> Result<Self> {
        let lists = shrinker.lists.raw.get();
        let group = Group::of_current();
        // SAFETY: Lists and memory are initialized. This makes the list of the group, too.
        let entry = unsafe { uldma_lru_alloc(shrinker.entries.0.as_ptr(), lists, group.0) };
        let entry = NonNull::new(entry.cast::<Entry<T>>()).ok_or(ENOMEM)?;
        let links = entry.as_ptr().cast::<bindings::list_head>();
        // SAFETY: This is memory for an entry, of which links are the first field. It was allocated for
        // the list.
        unsafe {
            entry.write(Entry {
                links: bindings::list_head {
                    next: links,
                    prev: links,
                },
                cache,
            });
            uldma_lru_add(lists, links, group.0);
        }
        // INVARIANT: It was added just now.
        Ok(Self {
            entry,
            group,
            shrinker,
        })
    }
}

impl<T: Shrink> Drop for Shrinkable<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the entry is in the list of the group. Nothing refers to it once it
        // was removed, and it is from this memory.
        unsafe {
            let lists = self.shrinker.lists.raw.get();
            uldma_lru_del(lists, self.entry.as_ptr().cast(), self.group.0);
            self.entry.drop_in_place();
            bindings::kmem_cache_free(self.shrinker.entries.0.as_ptr(), self.entry.as_ptr().cast());
        }
    }
}
