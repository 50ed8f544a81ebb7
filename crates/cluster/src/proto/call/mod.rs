//! Calls: a request goes there over a duplex, its answer comes back. Three pure machines and the
//! words between them.
//!
//! ```text
//!   client                                          service
//!     Call(slot, request) ────────────────────────▶ runs, waits, or is refused
//!     Cancel(slot) ───────────────────────────────▶ its handler is dropped
//!     ◀──────────────────────── answer(slot, ...)   one to each call, also to cancelled ones
//! ```
//!
//! A *slot* is the client's number of a call. It is used again once its answer has come, and not
//! before: since each call gets exactly one answer, an answer is never taken for that of another
//! call.
//!
//! Reading order: [`wire`] (the words), [`calls`] (a client's calls in flight), [`serving`] (a
//! service's requests), [`choice`] (of one of several providers), [`methods`] (of a service that has several).

pub mod calls;
pub mod choice;
pub mod methods;
pub mod serving;
#[cfg(test)]
mod tests;
pub mod wire;

/// Prefix of the duplexes that carry requests and answers; the service's name follows.
pub const CALLS_PREFIX: &str = "\0service \0";

/// Longest name of a service, in bytes.
pub const SERVICE_NAME_BYTES_MAX: usize = 240;

const _: () = assert!(
    CALLS_PREFIX.len() + SERVICE_NAME_BYTES_MAX <= chunkcomm_proto::limits::CHANNEL_NAME_BYTES_MAX
);

/// Calls in flight between a client and one provider, at most. More are a program that forgot to
/// wait.
pub const IN_FLIGHT_MAX: usize = 1 << 24;

/// Longest context of a call, in bytes: a trace's identifiers in W3C form are 55.
pub const CONTEXT_BYTES_MAX: usize = 64;

/// Longest text of an error, in bytes; the rest is cut off.
pub const ERROR_TEXT_BYTES_MAX: usize = 4096;

/// Requests of a service that are handled at the same time, by default.
pub const AT_ONCE_DEFAULT: usize = 1024;

/// Requests of a service that wait for their turn, by default. Each costs its
/// decoded value.
pub const WAITING_DEFAULT: usize = 4096;

/// Whether this channel carries calls. Such names are not for users.
#[must_use]
pub fn is_reserved(channel: &str) -> bool {
    channel.starts_with(CALLS_PREFIX)
}

/// Cuts `text` to the part that is sent.
#[must_use]
pub fn cut(text: &str) -> &str {
    chunkcomm_proto::plain::cut(text, ERROR_TEXT_BYTES_MAX)
}
