"""Counts: they add up, and are shown, as the library's own counter is."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, generate_latest

from gateway.telemetry.counter import PlainCounter
from gateway.telemetry.telemetry import Metrics


@given(st.lists(st.integers(0, 1000)))
def test_it_adds_up(amounts: list[int]) -> None:
    counter = PlainCounter()
    for amount in amounts:
        counter.inc(amount)
    assert counter.count == sum(amounts)
    counter.inc()
    assert counter.count == sum(amounts) + 1


def test_it_is_shown_like_the_counter_of_prometheus() -> None:
    registry, metrics = CollectorRegistry(), Metrics()
    Counter("holdfast_frames_relayed", "Agent frames received and passed on", registry=registry).inc(3)
    metrics.frames_relayed.inc(3)
    lines = [line for line in metrics.render().decode().splitlines() if "holdfast_frames_relayed" in line]
    created = [line.startswith("holdfast_frames_relayed_created ") for line in lines]
    expected = generate_latest(registry).decode().splitlines()
    assert len(lines) == len(expected)
    assert all(is_created or line in expected for line, is_created in zip(lines, created, strict=True))
    assert created.count(True) == 1
