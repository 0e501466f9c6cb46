//! Choices that a seed repeats.

/// A sequence of numbers; the same for the same seed (`SplitMix64`).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// The `stream`-th of the sequences that one seed gives.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut first = Self(seed ^ stream.wrapping_mul(0xA076_1D64_78BD_642F));
        Self(first.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    pub(crate) fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[usize::try_from(self.below(choices.len() as u64)).unwrap()]
    }

    pub(crate) fn millis(&mut self, bound: u64) -> std::time::Duration {
        std::time::Duration::from_millis(self.below(bound))
    }

    pub(crate) fn shuffle<T>(&mut self, cards: &mut [T]) {
        for last in (1..cards.len()).rev() {
            let other = usize::try_from(self.below(last as u64 + 1)).unwrap();
            cards.swap(last, other);
        }
    }
}
