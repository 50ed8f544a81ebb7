//! The trace that a call belongs to, in its context: feature `opentelemetry`.

use super::scope::{CallContext, CallHooks, set_call_hooks};
use opentelemetry::Context;
use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState,
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Lets all calls of this process carry the trace that they are made in, and lets their handlers go on with
/// it. False if other [hooks](super::set_call_hooks) were set: they stay.
///
/// The trace is that of the current [`tracing::Span`], as the layer of `tracing-opentelemetry` knows it. The
/// context of a call is its `traceparent` in the form of W3C Trace Context, 55 bytes. A handler runs in a
/// span `call` with the field `service`, whose parent is the caller's span. A call without a trace keeps the
/// context that it inherits.
///
/// A service sets it once, beside the subscriber that has the layer. `tests/traces.rs` of this crate shows both.
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
