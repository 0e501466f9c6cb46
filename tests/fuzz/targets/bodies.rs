//! Bodies that ask for a task.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| tasklight::laws::body(body));
