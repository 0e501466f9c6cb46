//! Session ids, kinds, task ids and paths.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tasklight::laws;

fuzz_target!(|text: &str| {
    laws::session_id(text);
    laws::task_id(text);
    laws::path(text);
    laws::path(&format!("/sessions/{text}/tasks"));
});
