//! Whole numbers in JSON.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, Unexpected, Visitor},
};

/// A whole number that is not below 0, however it is written: 3, 3.0 and 3e0 are one number
/// (RFC 8259 §6), and a program may write any of them.
pub(crate) struct Whole(pub(crate) u64);

/// Above this a number with a point no longer is what was written (RFC 8259 §6).
const MAX_EXACT: f64 = 9_007_199_254_740_991.0;

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Whole;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number, not below 0")
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<Whole, E> {
                Ok(Whole(number))
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<Whole, E> {
                u64::try_from(number).map(Whole).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
            }
            fn visit_f64<E: Error>(self, number: f64) -> Result<Whole, E> {
                if number.fract() != 0.0 || !(0.0..=MAX_EXACT).contains(&number) {
                    return Err(E::invalid_value(Unexpected::Float(number), &self));
                }
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "it is whole, not below 0, and fits"
                )]
                let number = number as u64;
                Ok(Whole(number))
            }
        }
        deserializer.deserialize_u64(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_may_be_written_in_any_way() {
        let read = |json: &str| serde_json::from_str::<Whole>(json).map(|whole| whole.0).ok();
        for (json, number) in [("0", 0), ("3", 3), ("3.0", 3), ("3e0", 3), ("30e-1", 3), ("-0.0", 0)] {
            assert_eq!(read(json), Some(number), "{json}");
        }
        assert_eq!(read("18446744073709551615"), Some(u64::MAX));
        for json in ["-1", "3.5", "1e300", "\"3\"", "true", "null", "[3]"] {
            assert_eq!(read(json), None, "{json}");
        }
    }
}
