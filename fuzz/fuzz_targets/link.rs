//! See `chunkcomm_fuzz::link`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| chunkcomm_fuzz::link::run(data));
