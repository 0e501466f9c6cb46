//! The output log: appends and reads in any order.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|log: (u8, Vec<Option<Vec<u8>>>)| {
    let (limit, steps) = log;
    tasklight::laws::output(limit.into(), &steps);
});
