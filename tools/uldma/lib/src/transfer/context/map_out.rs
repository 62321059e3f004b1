// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pages that are mapped out to others, as [`crate::Method::Shrimp1`] needs (§2.4).

use std::os::fd::AsFd;

use super::Context;
use crate::error::{Error, Result};
use crate::region::Registered;
use crate::sys;
use crate::sys::uapi;

impl Context {
    /// Maps out `pages` pages of `source.0` from page `source.1` on, to as many pages of
    /// `destination`; without a destination, removes the mapping. The mapping lasts as long as both
    /// regions.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EACCES when the source is not readable or the destination not writable,
    /// EINVAL for pages that a region does not have, or has in part only.
    pub fn map_out<S: Registered, D: Registered>(
        &self,
        source: (&S, u32),
        destination: Option<(&D, u32)>,
        pages: u32,
    ) -> Result<()> {
        let handle = |region: (u32, u32)| region.0;
        let from = (source.0.entry().handle, source.1);
        let to = destination.map(|(region, page)| (region.entry().handle, page));
        let argument = uapi::uldma_map_out {
            src: handle(from),
            dst: to.map_or(0, handle),
            src_page: from.1,
            dst_page: to.map_or(0, |to| to.1),
            pages,
            ..Default::default()
        };
        sys::context_map_out(self.device.as_fd(), argument)
            .map_err(|errno| Error::system(format!("map out {pages} pages"), errno))?;
        let page = |(handle, page): (u32, u32)| (handle, u64::from(page));
        let mut map_outs = self.map_outs.borrow_mut();
        map_outs.set(page(from), to.map(page), pages.into());
        Ok(())
    }
}
