// SPDX-License-Identifier: GPL-2.0

//! What the progress worker does for a device.

use kernel::time::Delta;

use super::Shared;
use crate::{
    hw::{
        Consumer,
        SegmentDoorbells, //
    },
    kernel_ext::wakeup,
    link::progress_worker::ProgressOps, //
};

impl ProgressOps for Shared {
    fn poll_once(&self, ask_hw: bool) -> bool {
        let Some(guard) = self.gate.enter() else {
            return false;
        };
        let hw = guard.hw();
        // The only error is a device that has left the bus, which its removal takes care of.
        let ctx = &self.conn_ctx();
        let heard = self.link.work(hw, self, ask_hw).unwrap_or(false);
        if ask_hw {
            // By the same thread, so that no session begins meanwhile, and after the messages in which
            // peers give back what they hold.
            self.link.end_overdue(&self.quarantine());
        }
        let ended = self.queues.as_ref().is_some_and(|it| it.reap(ctx));
        let moved = self.connections.work(ctx, &guard);
        self.segments.resend(&self.segment_ctx());
        if let Some(network) = &self.network {
            // As above.
            let _ = network
                .driver()
                .work(hw, &self.link, &self.endpoints, network);
        }
        heard || ended || moved
    }

    fn has_work(&self) -> bool {
        let Some(guard) = self.gate.enter() else {
            return false;
        };
        let ended = self.queues.as_ref().is_some_and(|it| it.has_ended());
        let heard = self.link.has_message(guard.hw());
        ended || heard.unwrap_or(false)
    }

    fn is_busy(&self) -> bool {
        self.queues.as_ref().is_some_and(|it| it.is_busy())
    }

    fn set_asleep(&self, asleep: bool) -> bool {
        let Some(guard) = self.gate.enter() else {
            return false;
        };
        let hw = guard.hw();
        if asleep {
            // The only error is a device that has left the bus.
            let _ = self.queues.as_ref().map(|queues| queues.arm(hw));
        }
        let heard = self.link.set_asleep(hw, asleep);
        asleep && (heard.unwrap_or(false) || self.has_work())
    }

    fn has_rung(&self) -> bool {
        self.link.has_rung()
    }

    fn rung(&self) {
        self.link.rung();
    }

    fn doorbell_cost(&self) -> Delta {
        self.link.doorbell_cost()
    }

    fn completion_cost(&self) -> Delta {
        let queues = self.queues.as_ref();
        queues.map_or_else(wakeup::cost, |queues| queues.completion_cost())
    }

    fn heartbeat(&self) {
        if let Some(guard) = self.gate.enter() {
            // As in `poll_once`.
            let hw = guard.hw();
            let _ = self.link.heartbeat(hw);
            if let Some(network) = &self.network {
                let completion = self.completion_cost();
                network
                    .driver()
                    .heartbeat(hw, &self.link, network, completion);
            }
        }
    }

    fn tick(&self) {
        if let Some(guard) = self.gate.enter() {
            self.ask_after(guard.hw());
        }
        self.window_alloc.tick();
        if self.connections.tick() {
            self.worker.release();
        }
    }

    fn release(&self) {
        self.connections.release_ended(&self.conn_ctx());
    }

    fn ring_segments(&self, rung: SegmentDoorbells) {
        self.segments.rung(rung);
    }

    fn unmask(&self, consumer: Consumer) {
        if let Some(guard) = self.gate.enter() {
            // As in `poll_once`.
            let _ = guard.hw().unmask(consumer);
        }
    }
}
