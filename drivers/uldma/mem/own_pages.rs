// SPDX-License-Identifier: GPL-2.0

//! Pages of the driver that a process asks for and pays for.

use kernel::{
    mm::MmWithUser,
    prelude::*,
    sync::Arc, //
};

use crate::{
    kernel_ext::dma::SharedPage,
    mem::{
        charge::Charge,
        lmm::space::Space, //
    }, //
};

/// Allocates `count` zeroed pages, and passes each to `keep`. Returns what
/// [`add_own_pages`](crate::mem::tpt::Tpt::add_own_pages) takes: the pages, and the charge for them.
///
/// # Errors
///
/// `EPERM` if `RLIMIT_MEMLOCK` is 0; `EDQUOT` beyond the limits of the user; `ENOMEM` beyond
/// `RLIMIT_MEMLOCK` or without memory; `EINTR` if a signal with a handler comes, and others restart the
/// call; the errors of `keep`.
pub(super) fn allocate(
    (space, mm): (&Space, &MmWithUser),
    count: usize,
    mut keep: impl FnMut(Arc<SharedPage>) -> Result,
) -> Result<(KVVec<Arc<SharedPage>>, Arc<Charge>)> {
    let charge = Charge::new(mm, space.payer(), count, 0)?;
    let charge = Arc::new(charge, GFP_KERNEL_ACCOUNT)?;
    let mut entered = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
    for _ in 0..count {
        if kernel::current!().signal_pending() {
            return Err(ERESTARTNOHAND);
        }
        let page = Arc::new(SharedPage::new()?, GFP_KERNEL_ACCOUNT)?;
        entered.push(page.clone(), GFP_KERNEL_ACCOUNT)?;
        keep(page)?;
    }
    Ok((entered, charge))
}
