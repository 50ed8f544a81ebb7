//! See `chunkcomm_fuzz::session`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| chunkcomm_fuzz::session::run(data));
