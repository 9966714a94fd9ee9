//! What is kept of a stream: its first and its last bytes.

use std::collections::VecDeque;

/// Keeps at most `bytes_max` bytes: all, or the first and the last half. A result is at the head
/// (fio prints its JSON at once), an error at the tail.
#[derive(Debug)]
pub struct Capture {
    head: Vec<u8>,
    head_bytes_max: usize,
    tail: VecDeque<u8>,
    tail_bytes_max: usize,
    truncated: bool,
}

impl Capture {
    pub fn new(bytes_max: usize) -> Capture {
        Capture {
            head: Vec::new(),
            head_bytes_max: bytes_max / 2,
            tail: VecDeque::new(),
            tail_bytes_max: bytes_max - bytes_max / 2,
            truncated: false,
        }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        let to_head = bytes.len().min(self.head_bytes_max - self.head.len());
        let (head, rest) = bytes.split_at(to_head);
        self.head.extend_from_slice(head);
        let surplus = (self.tail.len() + rest.len()).saturating_sub(self.tail_bytes_max);
        self.truncated |= surplus > 0;
        let old = surplus.min(self.tail.len());
        self.tail.drain(..old);
        self.tail.extend(&rest[surplus - old..]);
    }

    /// The bytes, and whether some are missing in the middle.
    pub fn take(&mut self) -> (Vec<u8>, bool) {
        let mut bytes = std::mem::take(&mut self.head);
        bytes.extend(std::mem::take(&mut self.tail));
        (bytes, self.truncated)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn head_and_tail() {
        let check = |bytes_max: usize, chunks: &[&str], expected: &str, truncated: bool| {
            let mut capture = Capture::new(bytes_max);
            chunks
                .iter()
                .for_each(|chunk| capture.push(chunk.as_bytes()));
            assert_eq!(capture.take(), (expected.as_bytes().to_vec(), truncated));
        };
        check(4, &[], "", false);
        check(4, &["abcd"], "abcd", false);
        check(4, &["abcde"], "abde", true);
        check(4, &["a", "b", "c", "d", "e", "f"], "abef", true);
        check(5, &["abcdefgh"], "abfgh", true);
        check(1, &["abc"], "c", true);
        check(0, &[], "", false);
        check(0, &["a"], "", true);
    }

    proptest! {
        #[test]
        fn chunks_do_not_matter(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..20),
            bytes_max in 0usize..100,
        ) {
            let whole: Vec<u8> = chunks.concat();
            let mut capture = Capture::new(bytes_max);
            chunks.iter().for_each(|chunk| capture.push(chunk));
            let (kept, truncated) = capture.take();
            prop_assert_eq!(truncated, whole.len() > bytes_max);
            let half = bytes_max / 2;
            let expected = if truncated {
                [&whole[..half], &whole[whole.len() - (bytes_max - half)..]].concat()
            } else {
                whole
            };
            prop_assert_eq!(kept, expected);
        }
    }
}
