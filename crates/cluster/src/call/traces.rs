//! The trace that a call belongs to, in its context: feature `opentelemetry`.

use super::scope::{CallContext, CallHooks, set_call_hooks};
use chunkcomm::layer::warn;
use opentelemetry::Context;
use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState,
};
use std::sync::Once;
use tracing::{Span, dispatcher};
use tracing_opentelemetry::{OpenTelemetrySpanExt as _, SetParentError};

/// Lets all calls of this process carry the trace that they are made in, and lets their handlers go on with
/// it. False if other [hooks](super::set_call_hooks) were set: they stay.
///
/// The trace is that of the current [`tracing::Span`], as the layer of `tracing-opentelemetry` knows it. The
/// context of a call is its `traceparent` in the form of W3C Trace Context, 55 bytes. A handler runs in a
/// span `call` with the field `service`, whose parent is the caller's span. A call without a trace keeps the
/// context that it inherits.
///
/// A service sets it once, beside the subscriber that has the layer. `tests/traces.rs` of this crate shows both.
///
/// The layer must be of the version that this crate uses: `opentelemetry` 0.33 and `tracing-opentelemetry`
/// 0.34, which the crate re-exports under their names. A layer of another version compiles, and no call
/// carries a trace. When a call finds no layer of this version, a warning says so, once a process.
pub fn trace_calls() -> bool {
    set_call_hooks(Traces)
}

struct Traces;

impl CallHooks for Traces {
    fn inject(&self, _: &str, inherited: &CallContext) -> CallContext {
        let context = Span::current().context();
        let span = context.span();
        let it = span.span_context();
        if !it.is_valid() {
            warn_unless_heard();
            return *inherited;
        }
        let flags = it.trace_flags().to_u8();
        let text = format!("00-{}-{}-{flags:02x}", it.trace_id(), it.span_id());
        CallContext::new(text.as_bytes()).unwrap_or(*inherited)
    }

    fn extract(&self, service: &str, context: &CallContext) -> Span {
        let span = tracing::info_span!("call", service);
        if let Some(parent) = parse(context.as_bytes()) {
            // Fails where no layer keeps the span, and nothing is lost then.
            let _ = span.set_parent(Context::new().with_remote_span_context(parent));
        }
        span
    }
}

/// Warns, once, if the subscriber has no layer that this crate knows.
fn warn_unless_heard() {
    static WARNED: Once = Once::new();
    // Without a span of a subscriber nothing is known, unless there is no subscriber.
    let outcome = Span::current().set_parent(Context::new());
    let has_no_layer = matches!(outcome, Err(SetParentError::LayerNotFound));
    if has_no_layer || !dispatcher::has_been_set() {
        WARNED.call_once(|| warn("calls", UNHEARD));
    }
}

const UNHEARD: &str = "trace_calls was called, and no subscriber has a layer of tracing-opentelemetry 0.34 \
                       with opentelemetry 0.33: no call carries a trace (chunkcomm_cluster re-exports both)";

/// Reads a `traceparent`; `None` if it is another context, or of no trace. Later versions of the form may have
/// more behind the flags.
fn parse(bytes: &[u8]) -> Option<SpanContext> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut parts = text.split('-');
    let (version, trace) = (parts.next()?, parts.next()?);
    let (span, flags) = (parts.next()?, parts.next()?);
    let is_hex = |text: &str, length| {
        text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let whole = is_hex(version, 2) && is_hex(trace, 32) && is_hex(span, 16) && is_hex(flags, 2);
    if !whole || version == "ff" || version == "00" && parts.next().is_some() {
        return None;
    }
    let trace = TraceId::from_hex(trace).ok()?;
    let span = SpanId::from_hex(span).ok()?;
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?);
    let parent = SpanContext::new(trace, span, flags, true, TraceState::NONE);
    parent.is_valid().then_some(parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_in_the_warning_are_those_of_the_workspace() {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
        let manifest = std::fs::read_to_string(manifest).unwrap();
        for name in ["tracing-opentelemetry", "opentelemetry"] {
            let begin = format!("{name} = {{ version = \"");
            let version = manifest.lines().find_map(|line| line.strip_prefix(&begin)).unwrap();
            let (version, _) = version.split_once('"').unwrap();
            assert!(UNHEARD.contains(&format!(" {name} {version}")), "{name} {version}");
        }
    }

    #[test]
    fn a_traceparent_is_read_and_nothing_else() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent = parse(good.as_bytes()).unwrap();
        assert!(parent.is_remote() && parent.is_sampled());
        assert_eq!(parent.trace_id().to_string(), &good[3..35]);
        assert_eq!(parent.span_id().to_string(), &good[36..52]);
        let later = good.replacen("00", "01", 1) + "-more";
        assert!(parse(later.as_bytes()).is_some(), "a later version has more");
        for bad in [
            "".to_owned(),
            "user 7".to_owned(),
            good.to_uppercase(),
            good.replacen("00", "ff", 1),
            format!("{good}-more"),
            good[..54].to_owned(),
            good.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            good.replace("00f067aa0ba902b7", &"0".repeat(16)),
        ] {
            assert!(parse(bad.as_bytes()).is_none(), "{bad}");
        }
        assert!(parse(&[0xff; 55]).is_none());
    }
}
