//! See `chunkcomm_fuzz::call`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| chunkcomm_fuzz::call::run(data));
