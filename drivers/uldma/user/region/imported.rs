// SPDX-License-Identifier: GPL-2.0

//! Imports: regions of peers.

use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

use crate::{
    device::Shared,
    link::{
        message::ExportedRegion,
        peer::Peer, //
    },
    mem::tpt::RegionSetup,
    uapi,
    user_abi::{
        access::Access,
        ledger::{
            Resource,
            Share, //
        }, //
    }, //
};

use super::{
    backing::OwnRun,
    Backing,
    Owner,
    Region,
    Use, //
};

/// Page entries that name the region of a peer.
struct Imported(OwnRun);

impl Backing for Imported {
    /// Fails with `EINVAL`, since the memory is the peer's.
    fn permits(&self, _: Use) -> Result {
        Err(EINVAL)
    }

    fn flags(&self) -> u32 {
        uapi::ULDMA_REGION_IMPORT
    }

    fn own_run(&self) -> Option<&OwnRun> {
        Some(&self.0)
    }
}

impl Region {
    /// Imports a region that `peer` exports.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if a table is full, `ENOTCONN` while the link is down, `ENODEV` if the device is
    /// unbound, `ENOMEM`, `EDQUOT` beyond the limits of the user, which pays for as many page
    /// entries as the peer names.
    pub(crate) fn import(
        shared: &Shared,
        owner: &Owner<'_>,
        peer: &Peer,
        remote: &ExportedRegion,
        access: Access,
    ) -> Result<Self> {
        let (tpt, space) = (&shared.tpt, owner.space);
        let pages = remote.length.div_ceil(u64::try_from(PAGE_SIZE)?);
        let pages = u32::try_from(pages).map_err(|_| ENOSPC)?;
        let (new, share) = owner.admit(0, access, remote.length)?;
        let entries = Share::new(space.payer(), Resource::Pages, usize::try_from(pages)?)?;
        let place = KBox::<Imported>::new_uninit(GFP_KERNEL_ACCOUNT)?;
        let (slot, run, generation) = {
            let guard = shared.gate.try_enter()?;
            let dev = guard.dev();
            let generation = peer.hw_generation()?;
            let slot = tpt.reserve_region(dev, share)?;
            let run = tpt
                .add_remote_pages(dev, entries, pages, space.id(), slot.index, access)
                .inspect_err(|_| tpt.free_region(slot))?;
            (slot, run, generation)
        };
        let remote = Some(remote.remote(peer.node(), generation));
        let backing = place.write(Imported(run.into()));
        let entered = new.enter_by(shared, backing, |dev, setup| {
            tpt.set_region(dev, slot, &RegionSetup { remote, ..setup })?;
            Ok(slot)
        });
        entered.map_err(|(err, released)| {
            // Entries that the device may still use have its number.
            if released.is_ok() {
                tpt.free_region(slot);
            }
            err
        })
    }
}
