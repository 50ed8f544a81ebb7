//! See `chunkcomm_fuzz::codec`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| chunkcomm_fuzz::codec::run(data));
