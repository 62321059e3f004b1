// SPDX-License-Identifier: GPL-2.0

//! The ledger of a device: how much of each shared resource each user has, and the limits.
//!
//! An address space pays for the resources of its open files: as the user that first opened the
//! device in it, and without limits if that process had `CAP_SYS_RESOURCE`. Each allocation has a
//! [`Share`], which is returned when it is dropped.
//!
//! A peer pays a second time for what it makes this node keep for a user. Of what users may have
//! together, each peer has a part in reserve, which the others leave.
//!
//! The ledger's lock is innermost.

use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        Arc,
        Mutex, //
    }, //
};

use crate::kernel_ext::errno::edquot;

/// A shared resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// Entries of the region table.
    Regions,
    /// Entries of the page table.
    Pages,
    /// Attached contexts.
    Contexts,
    /// Attached contexts that cannot be detached.
    ExclusiveContexts,
    /// Connections, including ended ones that the peer has not confirmed.
    Connections,
    /// Ports that have a listener.
    Listeners,
    /// Bytes of the own section of the window, for segments and for what connections receive.
    Window,
    /// Requests that wait for the answer of a peer.
    Requests,
    /// Entries of the endpoint table, with two pages each.
    Endpoints,
    /// Transfers that the kernel has started and that have not ended.
    Transfers,
    /// Objects of the kernel that the device has no table for: open files, the virtual contexts of
    /// open files, and both sides of segments.
    ///
    /// One resource for all of them, since each costs others the same, memory of the kernel and a
    /// place in trees that are searched under locks of the device, and a program may have any mixture.
    /// A range that can be mapped belongs to one of these objects, to a region or to an endpoint, of
    /// which each has a share, and at most three ranges.
    Objects,
}

/// Number of resources.
const COUNT: usize = 11;

/// An amount of each resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amounts([usize; COUNT]);

impl Amounts {
    /// Returns how much of `resource`.
    pub(crate) fn of(&self, resource: Resource) -> usize {
        self.0.get(resource as usize).copied().unwrap_or(0)
    }

    /// The same with `amount` of `resource`.
    pub(crate) fn with(mut self, resource: Resource, amount: usize) -> Self {
        if let Some(place) = self.0.get_mut(resource as usize) {
            *place = amount;
        }
        self
    }

    fn add(&mut self, resource: Resource, amount: usize) {
        *self = self.with(resource, self.of(resource).saturating_add(amount));
    }

    fn sub(&mut self, resource: Resource, amount: usize) {
        *self = self.with(resource, self.of(resource).saturating_sub(amount));
    }
}

/// Limits of users without `CAP_SYS_RESOURCE`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    /// Limits of each user.
    pub(crate) each: Amounts,
    /// Limits of all users together, so that some is left for privileged users.
    pub(crate) together: Amounts,
    /// What each peer has in reserve.
    reserve: Amounts,
    peers: usize,
}

impl Limits {
    /// Computes the limits of a device with `capacity` and so many peers; `chosen` are the limits of
    /// each user, 0 for the default.
    pub(crate) fn new(capacity: Amounts, chosen: Amounts, peers: usize) -> Self {
        use Resource::*;
        let mut limits = Self {
            peers,
            ..Self::default()
        };
        for (resource, share, rest) in [
            // Four users have to agree to take what all can have, and 1 of 16 is left even then.
            (Regions, 4, 16),
            (Pages, 4, 16),
            (Contexts, 2, usize::MAX),
            // Some contexts that can be detached remain.
            (ExclusiveContexts, 4, 4),
            (Connections, 4, 16),
            (Listeners, 4, 16),
            // Of the part that each peer writes, since a user may need all of its own for one of them.
            (Window, 4 * peers.max(1), 16),
            (Requests, 4, 16),
            (Endpoints, 4, 16),
            (Transfers, 4, 16),
            (Objects, 4, 16),
        ] {
            let all = capacity.of(resource);
            let each = match chosen.of(resource) {
                0 => (all / share).max(1),
                chosen => chosen,
            };
            let left = match rest {
                usize::MAX => 0,
                rest => (all / rest).max(1),
            };
            limits.each = limits.each.with(resource, each.min(all));
            let together = all.saturating_sub(left);
            limits.together = limits.together.with(resource, together);
            // Half of it is for the peers that come first.
            let reserve = together / (2 * peers.max(1));
            limits.reserve = limits.reserve.with(resource, reserve);
        }
        limits
    }
}

/// The owner of an account. Peers come first in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    /// The peer at a node.
    Peer(u32),
    User(u32),
}

/// The account of one user or peer.
#[derive(Default)]
struct Account {
    used: Amounts,
    /// Number of payers that pay by it.
    payers: usize,
}

/// All accounts.
struct Accounts {
    limits: Limits,
    by_owner: RBTree<Owner, Account>,
    /// Sum of all users with limits.
    together: Amounts,
}

impl Accounts {
    fn new(limits: Limits) -> Self {
        Self {
            limits,
            by_owner: RBTree::new(),
            together: Amounts::default(),
        }
    }

    fn join(&mut self, owner: Owner, node: RBTreeNode<Owner, Account>) {
        match self.by_owner.get_mut(&owner) {
            Some(account) => account.payers += 1,
            None => {
                self.by_owner.insert(node);
            }
        }
    }

    fn leave(&mut self, owner: Owner) {
        let Some(account) = self.by_owner.get_mut(&owner) else {
            return;
        };
        account.payers -= 1;
        if account.payers == 0 {
            // Each share has a reference to its payer, so the account is empty.
            self.by_owner.remove(&owner);
        }
    }

    fn take(&mut self, owner: Owner, limited: bool, resource: Resource, amount: usize) -> Result {
        let left = self.left_by_others(owner, resource);
        let account = self.by_owner.get_mut(&owner).ok_or(EINVAL)?;
        let fits = |used: Amounts, limit: Amounts| {
            let total = used.of(resource).checked_add(amount);
            total.is_some_and(|total| total <= limit.of(resource))
        };
        let limits = &self.limits;
        match owner {
            Owner::User(_) if limited => {
                if !fits(account.used, limits.each) || !fits(self.together, limits.together) {
                    return Err(edquot());
                }
                self.together.add(resource, amount);
            }
            Owner::Peer(_) if !fits(account.used, left) => return Err(edquot()),
            Owner::User(_) | Owner::Peer(_) => (),
        }
        account.used.add(resource, amount);
        Ok(())
    }

    /// Returns how much of `resource` the peers other than `owner` leave: neither what they have nor
    /// their reserves.
    fn left_by_others(&self, owner: Owner, resource: Resource) -> Amounts {
        let reserve = self.limits.reserve.of(resource);
        let peers = self.by_owner.iter();
        let peers = peers.take_while(|(owner, _)| matches!(owner, Owner::Peer(_)));
        let (mut others, mut held) = (self.limits.peers.saturating_sub(1), 0_usize);
        for (_, account) in peers.filter(|(other, _)| **other != owner) {
            others = others.saturating_sub(1);
            held = held.saturating_add(account.used.of(resource).max(reserve));
        }
        held = held.saturating_add(others.saturating_mul(reserve));
        let together = self.limits.together.of(resource);
        Amounts::default().with(resource, together.saturating_sub(held))
    }

    fn give_back(&mut self, owner: Owner, limited: bool, resource: Resource, amount: usize) {
        if let Some(account) = self.by_owner.get_mut(&owner) {
            account.used.sub(resource, amount);
        }
        if limited && matches!(owner, Owner::User(_)) {
            self.together.sub(resource, amount);
        }
    }

    fn used(&self, owner: Owner) -> Amounts {
        let account = self.by_owner.get(&owner);
        account.map_or_else(Amounts::default, |account| account.used)
    }
}

/// The ledger of one device.
#[pin_data]
pub(crate) struct Ledger {
    capacity: Amounts,
    #[pin]
    accounts: Mutex<Accounts>,
}

impl Ledger {
    /// Creates a ledger of `capacity` without users.
    pub(crate) fn new(capacity: Amounts, limits: Limits) -> Result<Arc<Self>> {
        let ledger = pin_init!(Self {
            capacity,
            accounts <- new_mutex!(Accounts::new(limits), "uldma::Ledger::accounts"),
        });
        Arc::pin_init(ledger, GFP_KERNEL)
    }
}

/// The payer for an address space, or for a peer.
pub(crate) struct Payer {
    ledger: Arc<Ledger>,
    owner: Owner,
    limited: bool,
}

impl Payer {
    /// Creates a payer that pays as `user`, within limits if `limited`.
    pub(crate) fn new(ledger: Arc<Ledger>, user: u32, limited: bool) -> Result<Arc<Self>> {
        Self::of(ledger, Owner::User(user), limited)
    }

    /// Creates a payer that pays as the peer at `node`.
    pub(crate) fn of_peer(ledger: Arc<Ledger>, node: u32) -> Result<Arc<Self>> {
        Self::of(ledger, Owner::Peer(node), true)
    }

    fn of(ledger: Arc<Ledger>, owner: Owner, limited: bool) -> Result<Arc<Self>> {
        let account = Account {
            payers: 1,
            ..Account::default()
        };
        let node = RBTreeNode::new(owner, account, GFP_KERNEL)?;
        ledger.accounts.lock().join(owner, node);
        let payer = Self {
            ledger,
            owner,
            limited,
        };
        Ok(Arc::new(payer, GFP_KERNEL)?)
    }

    /// Returns true if `other` pays as the same user.
    pub(crate) fn is_same_user(&self, other: &Self) -> bool {
        self.owner == other.owner
    }

    /// Returns the usage of the user.
    pub(crate) fn used(&self) -> Amounts {
        self.ledger.accounts.lock().used(self.owner)
    }

    /// Returns the limits of this payer.
    pub(crate) fn limits(&self) -> Amounts {
        if self.limited {
            self.ledger.accounts.lock().limits.each
        } else {
            self.ledger.capacity
        }
    }
}

impl Drop for Payer {
    fn drop(&mut self) {
        self.ledger.accounts.lock().leave(self.owner);
    }
}

/// An amount of a resource that a payer has; dropping it returns it.
pub(crate) struct Share {
    payer: Arc<Payer>,
    resource: Resource,
    amount: usize,
}

impl Share {
    /// Allocates `amount` of `resource`.
    ///
    /// # Errors
    ///
    /// `EDQUOT` if the user would exceed its limit, or all users with limits together theirs.
    pub(crate) fn new(payer: &Arc<Payer>, resource: Resource, amount: usize) -> Result<Self> {
        let mut share = Self {
            payer: payer.clone(),
            resource,
            amount: 0,
        };
        share.grow(amount)?;
        Ok(share)
    }

    /// Allocates `amount` more.
    ///
    /// # Errors
    ///
    /// `EDQUOT` beyond the limits.
    pub(crate) fn grow(&mut self, amount: usize) -> Result {
        if amount == 0 {
            return Ok(());
        }
        let payer = &self.payer;
        let mut accounts = payer.ledger.accounts.lock();
        accounts.take(payer.owner, payer.limited, self.resource, amount)?;
        self.amount += amount;
        Ok(())
    }

    /// Returns the amount.
    pub(crate) fn amount(&self) -> usize {
        self.amount
    }

    /// Takes over the amount of `other`, which has the same payer and resource.
    pub(crate) fn join(&mut self, mut other: Self) {
        self.amount += core::mem::take(&mut other.amount);
    }

    /// Splits off `amount`, or all if there is less.
    pub(crate) fn split(&mut self, amount: usize) -> Self {
        let amount = amount.min(self.amount);
        self.amount -= amount;
        Self {
            payer: self.payer.clone(),
            resource: self.resource,
            amount,
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.amount > 0 {
            let payer = &self.payer;
            let mut accounts = payer.ledger.accounts.lock();
            accounts.give_back(payer.owner, payer.limited, self.resource, self.amount);
        }
    }
}

#[kunit_tests(uldma_ledger)]
mod tests {
    use super::*;
    use Resource::*;

    fn ledger() -> Result<Arc<Ledger>> {
        let capacity = Amounts::default()
            .with(Regions, 160)
            .with(Pages, 1600)
            .with(Contexts, 6)
            .with(ExclusiveContexts, 6);
        Ledger::new(capacity, Limits::new(capacity, Amounts::default(), 2))
    }

    #[test]
    fn a_user_has_a_part_however_many_processes_there_are() -> Result {
        let ledger = ledger()?;
        let first = Payer::new(ledger.clone(), 1000, true)?;
        let second = Payer::new(ledger.clone(), 1000, true)?;
        let most = Share::new(&first, Regions, 39)?;
        let last = Share::new(&second, Regions, 1)?;
        assert!(Share::new(&first, Regions, 1).is_err());
        assert!(Share::new(&second, Regions, 1).is_err());
        assert_eq!(first.used().of(Regions), 40);
        drop(most);
        drop(first);
        assert_eq!(second.used().of(Regions), 1);
        drop(last);
        assert_eq!(second.used(), Amounts::default());
        Ok(())
    }

    #[test]
    fn another_user_does_not_notice() -> Result {
        let ledger = ledger()?;
        let first = Payer::new(ledger.clone(), 1000, true)?;
        let second = Payer::new(ledger.clone(), 1001, true)?;
        let _all = Share::new(&first, Pages, 400)?;
        assert!(Share::new(&first, Pages, 1).is_err());
        assert!(Share::new(&second, Pages, 400).is_ok());
        Ok(())
    }

    #[test]
    fn all_together_leave_some() -> Result {
        let ledger = ledger()?;
        let mut shares = KVec::new();
        for user in 0..3 {
            let payer = Payer::new(ledger.clone(), user, true)?;
            shares.push(Share::new(&payer, Regions, 40)?, GFP_KERNEL)?;
        }
        let last = Payer::new(ledger.clone(), 3, true)?;
        assert!(Share::new(&last, Regions, 31).is_err());
        let _rest = Share::new(&last, Regions, 30)?;
        let root = Payer::new(ledger.clone(), 0, false)?;
        assert!(Share::new(&root, Regions, 10).is_ok());
        Ok(())
    }

    #[test]
    fn a_peer_leaves_the_others_theirs() -> Result {
        let ledger = ledger()?;
        let first = Payer::of_peer(ledger.clone(), 0)?;
        let second = Payer::of_peer(ledger.clone(), 1)?;
        // Of 150, the other one has 37 in reserve.
        let more = Share::new(&first, Regions, 113)?;
        assert!(Share::new(&first, Regions, 1).is_err());
        let _reserve = Share::new(&second, Regions, 37)?;
        assert!(Share::new(&second, Regions, 1).is_err());
        drop(more);
        let _half = Share::new(&second, Regions, 38)?;
        assert!(Share::new(&first, Regions, 76).is_err());
        assert!(Share::new(&first, Regions, 75).is_ok());
        // What a peer has is a user's, too, so that it takes nothing from users.
        let user = Payer::new(ledger.clone(), 0, true)?;
        assert_eq!(user.used().of(Regions), 0);
        assert!(Share::new(&user, Regions, 40).is_ok());
        Ok(())
    }

    #[test]
    fn who_has_no_limits_takes_none_away() -> Result {
        let ledger = ledger()?;
        let root = Payer::new(ledger.clone(), 0, false)?;
        let _all = Share::new(&root, Regions, 160)?;
        assert_eq!(root.limits().of(Regions), 160);
        let user = Payer::new(ledger.clone(), 1000, true)?;
        assert!(Share::new(&user, Regions, 40).is_ok());
        Ok(())
    }

    #[test]
    fn a_share_is_what_its_parts_are() -> Result {
        let payer = Payer::new(ledger()?, 1000, true)?;
        let mut whole = Share::new(&payer, Pages, 10)?;
        let part = whole.split(4);
        drop(whole);
        assert_eq!(payer.used().of(Pages), 4);
        let mut again = Share::new(&payer, Pages, 1)?;
        again.join(part);
        assert_eq!(payer.used().of(Pages), 5);
        assert!(again.grow(396).is_err());
        assert_eq!(payer.used().of(Pages), 5);
        again.grow(395)?;
        drop(again);
        assert_eq!(payer.used().of(Pages), 0);
        Ok(())
    }

    #[test]
    fn an_account_lasts_as_long_as_its_shares() -> Result {
        let ledger = ledger()?;
        let gone = Payer::new(ledger.clone(), 1000, true)?;
        let left = Share::new(&gone, Regions, 40)?;
        drop(gone);
        let next = Payer::new(ledger.clone(), 1000, true)?;
        assert!(Share::new(&next, Regions, 1).is_err());
        drop(left);
        assert!(Share::new(&next, Regions, 40).is_ok());
        Ok(())
    }

    #[test]
    fn each_has_one_of_what_there_is_little_of() {
        let capacity = Amounts::default()
            .with(Contexts, 1)
            .with(ExclusiveContexts, 1);
        let limits = Limits::new(capacity, Amounts::default(), 2);
        assert_eq!(limits.each.of(Contexts), 1);
        assert_eq!(limits.together.of(Contexts), 1);
        // One that is kept would be the only one.
        assert_eq!(limits.together.of(ExclusiveContexts), 0);
        let chosen = Amounts::default().with(Contexts, 9);
        assert_eq!(Limits::new(capacity, chosen, 2).each.of(Contexts), 1);
        // Without an engine there are none.
        let none = Limits::new(Amounts::default(), Amounts::default(), 2);
        assert_eq!(none.each, Amounts::default());
    }
}
