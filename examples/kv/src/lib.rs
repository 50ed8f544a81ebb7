//! The package of the example `kv`; there is nothing in the library.
