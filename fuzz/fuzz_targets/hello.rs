//! See `chunkcomm_fuzz::hello`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| chunkcomm_fuzz::hello::run(data));
