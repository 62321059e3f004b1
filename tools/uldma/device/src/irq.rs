// SPDX-License-Identifier: MIT OR Apache-2.0

//! MSI-X vectors as a vfio-user server sees them: one eventfd each, handed over by the client,
//! which keeps the MSI-X table and the pending bits itself.

use std::fs::File;
use std::io::{self, Write};

use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE,
};

use crate::layout::MSIX_VECTORS;

/// The vectors of one node.
#[derive(Debug, Default)]
pub struct Vectors {
    events: [Option<File>; MSIX_VECTORS as usize],
    raised: [u64; MSIX_VECTORS as usize],
}

impl Vectors {
    /// The client sets, removes or tests vectors (`VFIO_DEVICE_SET_IRQS`).
    pub fn configure(
        &mut self,
        flags: u32,
        start: u32,
        count: u32,
        files: Vec<File>,
    ) -> io::Result<()> {
        if flags & VFIO_IRQ_SET_ACTION_TRIGGER == 0 {
            // Masking is the client's business.
            return Ok(());
        }
        let whole = self.events.len();
        let first = start as usize;
        let range = first..first.saturating_add(count as usize);
        if range.end > whole {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if flags & VFIO_IRQ_SET_DATA_EVENTFD != 0 {
            // No files at all take the vectors back.
            if !files.is_empty() && files.len() != range.len() {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let mut files = files.into_iter();
            for event in self.events.iter_mut().take(range.end).skip(range.start) {
                *event = files.next();
            }
        } else if flags & VFIO_IRQ_SET_DATA_NONE != 0 {
            if count == 0 {
                self.disconnect();
            }
            for vector in range {
                self.raise(vector as u16);
            }
        }
        Ok(())
    }

    /// Sends an interrupt; the client coalesces those that it has not handled yet.
    pub fn raise(&mut self, vector: u16) {
        let vector = usize::from(vector);
        if let Some(raised) = self.raised.get_mut(vector) {
            *raised += 1;
        }
        if let Some(Some(event)) = self.events.get_mut(vector) {
            if let Err(error) = event.write_all(&1u64.to_ne_bytes()) {
                log::warn!("vector {vector}: {error}");
            }
        }
    }

    /// Forgets all eventfds.
    pub fn disconnect(&mut self) {
        self.events = Default::default();
    }

    /// How often each vector was raised.
    pub fn raised(&self) -> &[u64] {
        &self.raised
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{eventfd, eventfd_count};

    const EVENTFD: u32 = VFIO_IRQ_SET_ACTION_TRIGGER | VFIO_IRQ_SET_DATA_EVENTFD;
    const NONE: u32 = VFIO_IRQ_SET_ACTION_TRIGGER | VFIO_IRQ_SET_DATA_NONE;

    #[test]
    fn raised_vectors_reach_their_eventfd() {
        let (first, second) = (eventfd(), eventfd());
        let mut vectors = Vectors::default();
        vectors.raise(0);
        vectors
            .configure(
                EVENTFD,
                0,
                2,
                vec![first.try_clone().unwrap(), second.try_clone().unwrap()],
            )
            .unwrap();
        vectors.raise(1);
        vectors.configure(NONE, 1, 1, vec![]).unwrap();
        assert_eq!((eventfd_count(&first), eventfd_count(&second)), (0, 2));
        vectors.configure(EVENTFD, 1, 1, vec![]).unwrap();
        vectors.raise(1);
        vectors.configure(NONE, 0, 0, vec![]).unwrap();
        vectors.raise(0);
        assert_eq!((eventfd_count(&first), eventfd_count(&second)), (0, 0));
        assert_eq!(vectors.raised(), [2, 3]);
    }

    #[test]
    fn vectors_out_of_range_are_refused() {
        let mut vectors = Vectors::default();
        assert!(vectors.configure(EVENTFD, 1, 2, vec![]).is_err());
        assert!(vectors.configure(NONE, u32::MAX, u32::MAX, vec![]).is_err());
        assert!(vectors.configure(EVENTFD, 0, 2, vec![eventfd()]).is_err());
        vectors.raise(7);
    }
}
