// SPDX-License-Identifier: MIT OR Apache-2.0

//! The beginning of a message, of which a call has not received the end.

/// Nothing, or the beginning of a message and its length so far.
#[derive(Debug, Default)]
pub(super) struct Begun(Option<(Vec<u8>, usize)>);

impl Begun {
    /// Keeps the beginning of a message, of which `length` bytes have arrived, for the next call.
    pub(super) fn interrupted(&mut self, target: &[u8], length: usize) {
        if length > 0 {
            let begun = target.get(..length).unwrap_or(target);
            self.0 = Some((begun.to_vec(), length));
        }
    }

    /// Puts the beginning of a message into `target`, and returns its length.
    pub(super) fn resume(&mut self, target: &mut [u8]) -> usize {
        let Some((begun, length)) = self.0.take() else {
            return 0;
        };
        for (byte, value) in target.iter_mut().zip(&begun) {
            *byte = *value;
        }
        // What the earlier, shorter target could not take is lost.
        if begun.len() < length {
            return length.max(target.len().saturating_add(1));
        }
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_goes_on_after_a_call_that_ended_in_its_middle() {
        let mut kept = Begun::default();
        let mut target = *b"........";
        assert_eq!(kept.resume(&mut target), 0);
        kept.interrupted(b"abcd....", 4);
        assert_eq!(kept.resume(&mut target), 4);
        assert_eq!(&target, b"abcd....");
        assert_eq!(kept.resume(&mut target), 0);
    }

    #[test]
    fn what_a_short_target_has_lost_is_too_long_for_any() {
        let mut kept = Begun::default();
        kept.interrupted(b"ab", 4);
        let mut target = [0; 8];
        assert!(kept.resume(&mut target) > target.len());
    }
}
