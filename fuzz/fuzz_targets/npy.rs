//! See `chunkcomm_fuzz::npy`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| chunkcomm_fuzz::npy::run(data));
