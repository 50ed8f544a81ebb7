//! See `chunkcomm_fuzz::address`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| chunkcomm_fuzz::address::run(data));
