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
    user_abi::{
        access::Access,
        ledger::{
            Resource,
            Share, //
        }, //
    }, //
};

use super::{
    Owner,
    Pages,
    Region, //
};

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
        let entered = new.enter_by(shared, Pages::Remote(run), |dev, setup| {
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
