//! See `chunkcomm_fuzz::packet`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| chunkcomm_fuzz::packet::run(data));
