// SPDX-License-Identifier: MIT OR Apache-2.0

//! The machines of all initiation methods of one node.

use crate::abi::Method;
use crate::method::{
    Compare, ExtendedShadow, ExtendedShadowShared, FetchAdd, Flash, FlashSingle, KeyBased, Machine,
    Repeated, Shrimp1, Shrimp2, Shrimp2Abort, SingleStore,
};

/// One state machine for each method, shared by the contexts that use the method.
#[derive(Debug)]
pub struct Machines {
    compare: Compare,
    extended_shadow: ExtendedShadow,
    extended_shadow_shared: ExtendedShadowShared,
    /// The machine that keeps keys.
    pub key: KeyBased,
    single_store: SingleStore,
    repeated_5: Repeated,
    shrimp_1: Shrimp1,
    shrimp_2_abort: Shrimp2Abort,
    flash: Flash,
    fetch_add: FetchAdd,
    pal: Shrimp2,
    shrimp_2: Shrimp2,
    flash_single: FlashSingle,
    repeated_3: Repeated,
    repeated_4: Repeated,
}

impl Machines {
    /// Creates machines without arguments.
    pub fn new(compare: Compare) -> Self {
        Self {
            compare,
            extended_shadow: ExtendedShadow::default(),
            extended_shadow_shared: ExtendedShadowShared::default(),
            key: KeyBased::default(),
            single_store: SingleStore,
            repeated_5: Repeated::five(compare),
            shrimp_1: Shrimp1,
            shrimp_2_abort: Shrimp2Abort::default(),
            flash: Flash::default(),
            fetch_add: FetchAdd,
            pal: Shrimp2::default(),
            shrimp_2: Shrimp2::default(),
            flash_single: FlashSingle::default(),
            repeated_3: Repeated::three(compare),
            repeated_4: Repeated::four(compare),
        }
    }

    /// Returns the machine of a method; none for a method without accesses to shadow space.
    pub fn get(&mut self, method: Method) -> Option<&mut dyn Machine> {
        Some(match method {
            Method::ExtendedShadow => &mut self.extended_shadow,
            Method::ExtendedShadowShared => &mut self.extended_shadow_shared,
            Method::Key => &mut self.key,
            Method::SingleStore => &mut self.single_store,
            Method::Queue => return None,
            Method::Repeated5 => &mut self.repeated_5,
            Method::Shrimp1 => &mut self.shrimp_1,
            Method::Shrimp2Abort => &mut self.shrimp_2_abort,
            Method::Flash => &mut self.flash,
            Method::FetchAdd => &mut self.fetch_add,
            Method::Pal => &mut self.pal,
            Method::Shrimp2 => &mut self.shrimp_2,
            Method::FlashSingle => &mut self.flash_single,
            Method::Repeated3 => &mut self.repeated_3,
            Method::Repeated4 => &mut self.repeated_4,
        })
    }

    fn for_all(&mut self, mut act: impl FnMut(&mut dyn Machine)) {
        for method in Method::all() {
            if let Some(machine) = self.get(method) {
                act(machine);
            }
        }
    }

    /// Notes that `context` runs on `cpu` from now on; `None` if no context does.
    pub fn running(&mut self, cpu: u32, context: Option<u32>) {
        self.for_all(|machine| machine.running(cpu, context));
    }

    /// Drops all arguments that the context has passed. For a context that is enabled or disabled.
    pub fn forget(&mut self, context: u32) {
        self.for_all(|machine| machine.forget(context));
    }

    /// Drops the arguments of machines that mix contexts. Page entries may belong to memory of
    /// other processes from now on, and these machines' starts do not check the owner.
    pub fn forget_mixable(&mut self) {
        self.pal = Shrimp2::default();
        self.shrimp_2 = Shrimp2::default();
        self.flash_single.clear();
        self.repeated_3 = Repeated::three(self.compare);
        self.repeated_4 = Repeated::four(self.compare);
        self.repeated_5 = Repeated::five(self.compare);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::{Reply, ShadowRef};

    /// Whatever mixes contexts forgets at an invalidation; the others need not.
    #[test]
    fn what_mixes_contexts_can_be_made_to_forget() {
        for method in Method::all() {
            let mut machines = Machines::new(Compare::Full);
            machines.running(0, Some(1));
            let fresh = format!("{machines:?}");
            let Some(machine) = machines.get(method) else {
                continue;
            };
            let at = ShadowRef::of_entry(1, 0);
            let stored = machine.store(1, at, Some(8)) == Reply::Nothing;
            machine.load(1, at, true);
            machine.store(1, at, Some(8));
            let kept = format!("{machines:?}");
            machines.forget_mixable();
            let after = format!("{machines:?}");
            if method.mixes_contexts() {
                assert_ne!(kept, fresh, "{}", method.name());
                assert_eq!(after, fresh, "{}", method.name());
            } else {
                assert_eq!(after, kept, "{}", method.name());
            }
            if stored {
                machines.forget(1);
                assert_ne!(format!("{machines:?}"), kept, "{}", method.name());
            }
        }
    }
}
