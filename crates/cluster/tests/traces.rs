//! One trace through three nodes, as an exporter of OpenTelemetry gets it.

use chunkcomm::host;
use chunkcomm_cluster::call::{CallScope, trace_calls};
use chunkcomm_cluster::{NodeExt, opentelemetry, tracing_opentelemetry};
use chunkcomm_testkit::{itself, limited, pair};
use opentelemetry::trace::{SpanId, TracerProvider as _};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tracing::Instrument as _;
use tracing_subscriber::layer::{self, Layer, SubscriberExt as _};

fn only<'a>(spans: &'a [SpanData], name: &str, service: &str) -> &'a SpanData {
    let has = |span: &&SpanData| {
        let is_of = |it: &opentelemetry::KeyValue| it.value.as_str() == service;
        span.name == name && (service.is_empty() || span.attributes.iter().any(is_of))
    };
    let mut found = spans.iter().filter(has);
    let span = found.next().unwrap_or_else(|| panic!("no span {name} {service}: {spans:#?}"));
    assert!(found.next().is_none(), "{name} {service} is there twice");
    span
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_trace_goes_through_three_nodes() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer)).unwrap();
    assert!(trace_calls() && !trace_calls(), "it is set once");

    let two = pair().await;
    let third = chunkcomm::Node::builder().name("third").build().await.unwrap();
    let last = two.a.serve("last", |number: u64| async move {
        // In a span of its own, and after a wait.
        tracing::info_span!("inside").in_scope(|| ());
        host::sleep(Duration::from_millis(2)).await;
        Ok::<_, String>(number + 1)
    });
    let _last = last.unwrap();
    let to_last = two.b.call_client::<u64, u64>(&two.peer, "last").unwrap();
    let middle = two.b.serve("middle", move |number: u64| {
        let to_last = to_last.clone();
        async move {
            let call = async move { to_last.call(&number).await }.in_current_span();
            let call = host::spawn(CallScope::current().run(call));
            call.await.unwrap().map_err(|error| error.to_string())
        }
    });
    let _middle = middle.unwrap();
    // The middle one listens nowhere: it is reached by way of its own node.
    let local = two.b.local().await.unwrap();
    let to_middle = two.b.call_client::<u64, u64>(&local, "middle").unwrap();
    let front = two.a.serve("front", move |number: u64| {
        let to_middle = to_middle.clone();
        async move { to_middle.call(&number).await.map_err(|error| error.to_string()) }
    });
    let _front = front.unwrap();
    let peer = third.connect(&two.a.addresses()[0]).await.unwrap();
    let to_front = third.call_client::<u64, u64>(&peer, "front").unwrap();

    // Without a trace nothing is added.
    assert_eq!(limited(to_front.call(&1)).await.unwrap(), 2);
    provider.force_flush().unwrap();
    let root = tracing::info_span!("root");
    assert_eq!(limited(to_front.call(&40).instrument(root)).await.unwrap(), 41);

    // A service ends its span behind its answer.
    let (root, traced) = limited(async {
        loop {
            provider.force_flush().unwrap();
            let spans = exporter.get_finished_spans().unwrap();
            let root = only(&spans, "root", "").clone();
            let trace = root.span_context.trace_id();
            let is_of_it = |span: &&SpanData| span.span_context.trace_id() == trace;
            let traced: Vec<_> = spans.iter().filter(is_of_it).cloned().collect();
            if traced.len() >= 5 {
                return (root, traced);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    assert_eq!(traced.len(), 5, "{traced:#?}");
    assert_eq!(root.parent_span_id, SpanId::INVALID);
    let mut parent = root.span_context.span_id();
    for service in ["front", "middle", "last"] {
        let span = only(&traced, "call", service);
        assert_eq!(span.parent_span_id, parent, "the parent of {service}");
        parent = span.span_context.span_id();
    }
    assert_eq!(only(&traced, "inside", "").parent_span_id, parent);
}

/// Variable by which a test runs itself, with the subscriber that is set.
const SUBSCRIBER: &str = "CHUNKCOMM_TEST_SUBSCRIBER";

/// Longest time of a call.
const LIMIT: Duration = Duration::from_secs(60);

/// Counts warnings; knows nothing of traces, as a layer of another version.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl<S: tracing::Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &tracing::Event<'_>, _: layer::Context<'_, S>) {
        let is_warning = *event.metadata().level() == tracing::Level::WARN;
        self.0.fetch_add(usize::from(is_warning), Ordering::Relaxed);
    }
}

#[tokio::test]
async fn calls_that_no_layer_hears_are_warned_of_once() {
    let warnings = Warnings::default();
    match std::env::var(SUBSCRIBER).as_deref() {
        Ok("other") => {
            let other = tracing_subscriber::registry().with(warnings.clone());
            tracing::subscriber::set_global_default(other).unwrap();
        }
        Ok(_) => {}
        Err(_) => {
            for (subscriber, on_stderr) in [("none", 1), ("other", 0)] {
                let mut alone = itself("calls_that_no_layer_hears_are_warned_of_once");
                let output = alone.env(SUBSCRIBER, subscriber).output().unwrap();
                let said = String::from_utf8(output.stderr).unwrap();
                assert!(output.status.success(), "{subscriber}: {said}");
                assert_eq!(said.matches("no call carries a trace").count(), on_stderr, "{said}");
            }
            return;
        }
    }
    assert!(trace_calls());
    let pair = pair().await;
    let _service = pair.a.serve("id", |number: u64| async move { Ok::<_, String>(number) });
    let id = pair.b.call_client::<u64, u64>(&pair.peer, "id").unwrap().timeout(LIMIT);
    for number in 0..3 {
        // Not by `limited`, which sets a subscriber.
        let call = id.call(&number).instrument(tracing::info_span!("root"));
        assert_eq!(call.await.unwrap(), number);
    }
    let is_there = tracing::dispatcher::has_been_set();
    assert_eq!(warnings.0.load(Ordering::Relaxed), usize::from(is_there));
}
