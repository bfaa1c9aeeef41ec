"""Durations: each bucket counts what took no longer than its bound, as the library's own histogram does."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram

from gateway.telemetry.histogram import LatencyHistogram

BOUNDS = (0.5, 1, 2.5)


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.5]) | st.floats(0, 10)))
def test_they_count_like_the_histogram_of_prometheus(amounts: list[float]) -> None:
    registry = CollectorRegistry()
    peer, durations = Histogram("peer", "The library's", buckets=BOUNDS, registry=registry), LatencyHistogram(BOUNDS)
    for amount in amounts:
        peer.observe(amount)
        durations.observe(amount)
    (family,) = registry.collect()
    samples = {(sample.name, sample.labels.get("le")): sample.value for sample in family.samples}
    assert durations.buckets() == [(name, samples["peer_bucket", name]) for name in ("0.5", "1.0", "2.5", "+Inf")]
    assert (durations.count, durations.seconds) == (samples["peer_count", None], samples["peer_sum", None])
