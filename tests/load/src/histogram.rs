//! Latencies by the thousand in fixed memory, each within 3 %.

use std::time::Duration;

/// Buckets for each power of two.
const SUB_BITS: u32 = 5;
const SUB: u64 = 1 << SUB_BITS;

/// Counts nanoseconds in buckets that widen with what they hold.
pub(crate) struct Histogram {
    buckets: Vec<u64>,
    count: u64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self { buckets: vec![0; bucket(u64::MAX) + 1], count: 0 }
    }

    pub(crate) fn record(&mut self, nanoseconds: u64) {
        self.buckets[bucket(nanoseconds)] += 1;
        self.count += 1;
    }

    pub(crate) fn clear(&mut self) {
        self.buckets.fill(0);
        self.count = 0;
    }

    /// The time within which that share of all came; zero of none.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a count")]
        let wanted = (self.count as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return Duration::from_nanos(lowest(at));
            }
        }
        Duration::ZERO
    }
}

#[expect(clippy::cast_possible_truncation, reason = "at most 60 × 32")]
fn bucket(value: u64) -> usize {
    if value < SUB {
        return value as usize;
    }
    let shift = value.ilog2() - SUB_BITS;
    ((u64::from(shift + 1) << SUB_BITS) + ((value >> shift) & (SUB - 1))) as usize
}

/// The least value in a bucket.
fn lowest(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < SUB {
        return bucket;
    }
    let shift = (bucket >> SUB_BITS) - 1;
    (SUB + (bucket & (SUB - 1))) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_three_percent() {
        let mut histogram = Histogram::new();
        assert_eq!(histogram.quantile(0.5), Duration::ZERO);
        (1..=100_000).for_each(|value| histogram.record(value));
        for (share, exact) in [(0.5, 50_000.0), (0.99, 99_000.0), (1.0, 100_000.0)] {
            let found = histogram.quantile(share).as_nanos() as f64;
            assert!((found / exact - 1.0).abs() < 0.032, "{share}: {found}");
        }
        histogram.record(u64::MAX);
        assert!(histogram.quantile(1.0) > Duration::from_secs(1 << 33));
    }
}
