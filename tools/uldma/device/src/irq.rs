// SPDX-License-Identifier: MIT OR Apache-2.0

//! MSI-X vectors of a vfio-user server: one eventfd each, passed by the client, which keeps the
//! MSI-X table and the pending bits itself.
//!
//! Raising an interrupt only records it here. A thread of the node sends it, because a client can
//! make its eventfd block at any time: the file that it passed shares its flags as well as its
//! counter.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use rustix::fs::OFlags;
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE,
};

use crate::layout::MSIX_VECTORS;

/// The eventfd that receives a vector's interrupts.
#[derive(Clone, Debug)]
pub struct Event(Arc<File>);

impl Event {
    /// Wraps an eventfd that a client passed.
    ///
    /// # Errors
    ///
    /// `InvalidInput` unless it is an eventfd.
    pub fn new(file: File) -> io::Result<Self> {
        let name = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        if name.as_os_str() != "anon_inode:[eventfd]" {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let event = Self(Arc::new(file));
        event.unblock()?;
        Ok(event)
    }

    fn unblock(&self) -> io::Result<()> {
        let flags = rustix::fs::fcntl_getfl(&*self.0)?;
        Ok(rustix::fs::fcntl_setfl(&*self.0, flags | OFlags::NONBLOCK)?)
    }

    /// Sends an interrupt. Whether that waits is up to the client.
    ///
    /// # Errors
    ///
    /// Errors of the file; success if an interrupt is pending already and the counter is full.
    pub fn ring(&self) -> io::Result<()> {
        match (&*self.0).write_all(&1u64.to_ne_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            other => other,
        }
    }

    /// Empties the counter, so that a thread that waits in [`Event::ring`] continues. For a client
    /// that has left.
    pub fn drain(&self) {
        // If the client makes the file block again at this moment, the wait is for the count that
        // it took itself.
        let drained = self.unblock().and_then(|()| (&*self.0).read(&mut [0; 8]));
        if let Err(error) = drained {
            log::debug!("eventfd of a client that has left: {error}");
        }
    }
}

/// The vectors of one node.
#[derive(Debug, Default)]
pub struct Vectors {
    events: [Option<Event>; MSIX_VECTORS as usize],
    /// Vectors that were raised and not sent yet.
    due: [bool; MSIX_VECTORS as usize],
    raised: [u64; MSIX_VECTORS as usize],
    /// Eventfds to which the node's thread is sending interrupts.
    ringing: Vec<Event>,
}

impl Vectors {
    /// Sets, removes or tests vectors for the client (`VFIO_DEVICE_SET_IRQS`).
    pub fn configure(
        &mut self,
        flags: u32,
        start: u32,
        count: u32,
        events: Vec<Event>,
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
            if !events.is_empty() && events.len() != range.len() {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let mut events = events.into_iter();
            for event in self.events.iter_mut().take(range.end).skip(range.start) {
                *event = events.next();
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

    /// Records an interrupt; interrupts of one vector that were not sent yet are merged.
    pub fn raise(&mut self, vector: u16) {
        let vector = usize::from(vector);
        if let Some(raised) = self.raised.get_mut(vector) {
            *raised = raised.wrapping_add(1);
        }
        let is_set = self.events.get(vector).is_some_and(Option::is_some);
        if let Some(due) = self.due.get_mut(vector).filter(|_| is_set) {
            *due = true;
        }
    }

    /// Returns true if there are interrupts to send.
    pub fn is_due(&self) -> bool {
        self.due.contains(&true)
    }

    /// Takes the interrupts that are to be sent now. The caller reports the end by
    /// [`Vectors::sent`].
    pub fn take_due(&mut self) -> Vec<Event> {
        let due = std::mem::take(&mut self.due);
        let events = self.events.iter().zip(due);
        let events = events.filter_map(|(event, due)| event.clone().filter(|_| due));
        self.ringing = events.collect();
        self.ringing.clone()
    }

    /// Notes that all interrupts that were taken have been sent.
    pub fn sent(&mut self) {
        self.ringing.clear();
    }

    /// Returns the eventfds to which interrupts are being sent.
    pub fn ringing(&self) -> Vec<Event> {
        self.ringing.clone()
    }

    /// Drops all eventfds, and the interrupts that were to be sent to them.
    pub fn disconnect(&mut self) {
        self.events = Default::default();
        self.due = Default::default();
    }

    /// Returns how often each vector was raised.
    pub fn raised(&self) -> &[u64] {
        &self.raised
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{eventfd, eventfd_count, memfd};

    const EVENTFD: u32 = VFIO_IRQ_SET_ACTION_TRIGGER | VFIO_IRQ_SET_DATA_EVENTFD;
    const NONE: u32 = VFIO_IRQ_SET_ACTION_TRIGGER | VFIO_IRQ_SET_DATA_NONE;

    fn event(file: &File) -> Event {
        Event::new(file.try_clone().unwrap()).unwrap()
    }

    fn send(vectors: &mut Vectors) {
        for event in vectors.take_due() {
            event.ring().unwrap();
        }
        vectors.sent();
    }

    #[test]
    fn raised_vectors_reach_their_eventfd() {
        let (first, second) = (eventfd(), eventfd());
        let mut vectors = Vectors::default();
        vectors.raise(0);
        vectors
            .configure(EVENTFD, 0, 2, vec![event(&first), event(&second)])
            .unwrap();
        assert!(!vectors.is_due(), "there was nothing to send it to");
        for _ in 0..2 {
            vectors.raise(1);
            vectors.configure(NONE, 1, 1, vec![]).unwrap();
            send(&mut vectors);
        }
        // Two that were not sent yet are one.
        assert_eq!((eventfd_count(&first), eventfd_count(&second)), (0, 2));
        vectors.configure(EVENTFD, 1, 1, vec![]).unwrap();
        vectors.raise(1);
        vectors.configure(NONE, 0, 0, vec![]).unwrap();
        vectors.raise(0);
        send(&mut vectors);
        assert_eq!((eventfd_count(&first), eventfd_count(&second)), (0, 0));
        assert_eq!(vectors.raised(), [2, 5, 0]);
    }

    #[test]
    fn vectors_out_of_range_are_refused() {
        let mut vectors = Vectors::default();
        assert!(vectors.configure(EVENTFD, 2, 2, vec![]).is_err());
        assert!(vectors.configure(NONE, u32::MAX, u32::MAX, vec![]).is_err());
        let one = vec![event(&eventfd())];
        assert!(vectors.configure(EVENTFD, 0, 2, one).is_err());
        vectors.raise(7);
    }

    #[test]
    fn a_full_counter_is_no_error() {
        assert!(Event::new(memfd(64)).is_err());
        let file = eventfd();
        let event = event(&file);
        (&file).write_all(&(u64::MAX - 1).to_ne_bytes()).unwrap();
        event.ring().unwrap();
        event.drain();
        event.ring().unwrap();
        assert_eq!(eventfd_count(&file), 1);
    }
}
