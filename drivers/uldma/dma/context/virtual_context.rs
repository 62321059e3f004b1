// SPDX-License-Identifier: GPL-2.0

//! Virtual contexts: the contexts of open files, whether or not they are attached to registers.

use kernel::{
    new_mutex,
    prelude::*,
    rbtree::RBTreeNodeReservation,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
    time::Delta, //
};

use crate::{
    dma::method::Method,
    hw::{
        layout::{
            self,
            Key, //
        },
        ContextCounters, //
    },
    kernel_ext::{
        dma::SharedPage,
        random,
        timed_lock::TimedLock, //
    },
    mem::lmm::space::Space,
    uapi,
    user_abi::{
        events::Events,
        ledger::{
            Payer,
            Resource,
            Share, //
        },
        status_page::StatusPage, //
    }, //
};

/// State of the device that is saved when a virtual context is detached.
#[derive(Clone, Copy, Default)]
pub(super) struct Past {
    /// Last issued ticket.
    pub(super) ticket: u64,
    pub(super) counters: ContextCounters,
}

/// Shares that the user pays while the virtual context is attached.
pub(super) struct Shares {
    _context: Share,
    _kept: Option<Share>,
}

/// A virtual context.
#[pin_data]
pub(crate) struct VirtualContext {
    pub(super) open_file: u64,
    /// Space whose pages the context may name.
    pub(super) space: Arc<Space>,
    /// Pays for the context.
    pub(super) payer: Arc<Payer>,
    pub(crate) method: Method,
    /// True if transfers move nothing.
    pub(super) no_data: bool,
    pub(crate) page: Arc<StatusPage>,
    /// The descriptors, if the method needs any.
    pub(crate) queue: Option<Arc<SharedPage>>,
    pub(super) events: Arc<Events>,
    /// The context to which this is attached, or 0; changed under `Contexts::state`.
    pub(super) number: Atomic<u32>,
    #[pin]
    pub(super) past: Mutex<Past>,
    /// Held by the thread that attaches this. Taken without locks of the device, but for `objects` of the
    /// open file, before another thread can find this.
    #[pin]
    pub(super) turns: TimedLock,
    /// How long the waits for a context took that signals have ended since it had one. Accessed by the
    /// holder of the turn.
    waited: Atomic<i64>,
    _share: Share,
}

/// A virtual context before [`Contexts::attach`]: what a process pays for, which may make that
/// process sleep.
///
/// [`Contexts::attach`]: super::Contexts::attach
pub(crate) struct NewContext {
    pub(crate) vctx: Arc<VirtualContext>,
    pub(super) room: RBTreeNodeReservation<u64, Arc<VirtualContext>>,
}

impl NewContext {
    /// Allocates a detached virtual context of an open file.
    ///
    /// # Errors
    ///
    /// `EDQUOT` beyond the limits of the user, `ENOMEM`.
    pub(crate) fn allocate(
        open_file: u64,
        space: &Arc<Space>,
        method: Method,
        no_data: bool,
        events: Arc<Events>,
    ) -> Result<Self> {
        let share = Share::new(space.payer(), Resource::Objects, 1)?;
        let page = Arc::new(StatusPage::new()?, GFP_KERNEL_ACCOUNT)?;
        let queue = if method.needs_queue() {
            Some(Arc::new(SharedPage::new()?, GFP_KERNEL_ACCOUNT)?)
        } else {
            None
        };
        let vctx = pin_init!(VirtualContext {
            open_file,
            payer: space.payer().clone(),
            space: space.clone(),
            method,
            no_data,
            page,
            queue,
            events,
            number: Atomic::new(0),
            past <- new_mutex!(Past::default(), "uldma::VirtualContext::past"),
            turns <- TimedLock::new(),
            waited: Atomic::new(0),
            _share: share,
        });
        Ok(Self {
            vctx: Arc::pin_init(vctx, GFP_KERNEL_ACCOUNT)?,
            room: RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?,
        })
    }
}

impl VirtualContext {
    /// Returns the number of the context, or 0. It may change at any time.
    pub(crate) fn number(&self) -> u32 {
        self.number.load(Relaxed)
    }

    /// Returns how long the waits took that signals have ended. The caller has the turn.
    pub(super) fn waited(&self) -> Delta {
        Delta::from_nanos(self.waited.load(Relaxed))
    }

    /// Has the next wait begin after so much of its time. The caller has the turn.
    pub(super) fn set_waited(&self, waited: Delta) {
        self.waited.store(waited.as_nanos(), Relaxed);
    }

    /// Pays for a context.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the context is exclusive and the limits of exclusive contexts are reached;
    /// `EDQUOT` if another context of the user has to be detached first.
    pub(super) fn pay(&self) -> Result<Shares> {
        let kept = match self.is_movable() {
            true => None,
            false => {
                let share = Share::new(&self.payer, Resource::ExclusiveContexts, 1);
                Some(share.map_err(|_| EBUSY)?)
            }
        };
        Ok(Shares {
            _context: Share::new(&self.payer, Resource::Contexts, 1)?,
            _kept: kept,
        })
    }

    /// Returns true if the context can be detached without the process noticing.
    ///
    /// Not if the process knows its number, by the key, or the scheduler notifies the device of it.
    pub(super) fn is_movable(&self) -> bool {
        !self.method.needs_key() && !self.method.needs_sched_notify()
    }
}

/// Returns a random key for context `number`.
///
/// # Errors
///
/// `EINVAL` if a key cannot name the context.
pub(super) fn new_key(number: u32) -> Result<Key> {
    const _: () = assert!(layout::KEY_CONTEXTS == uapi::ULDMA_KEY_CONTEXT_MASK + 1);
    let key = Key::from_bits(random::u64());
    key.try_with(Key::CONTEXT, number).ok_or(EINVAL)
}
