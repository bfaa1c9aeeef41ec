"""Logs stay one line, keep no secret and obey no escape; metrics show what they should."""

import io
import json
import logging
import re
from collections.abc import Callable, Iterator

import orjson
import pytest
import structlog
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.config.settings import SecretStr
from gateway.telemetry.telemetry import UNKNOWN_TYPES, Metrics, Redactor, Repeating, configure_logging


@pytest.fixture
def redactor() -> Redactor:
    return Redactor()


@pytest.fixture
def out(redactor: Redactor) -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handlers = logging.getLogger().handlers[:]
    configure_logging("info", stream=stream, redactor=redactor)
    yield stream
    structlog.reset_defaults()
    logging.getLogger().handlers[:] = handlers


def lines(out: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


HOSTILE = [
    "\x1b]0;owned\x07",
    'ok\r\n{"event":"fake"}',
    "\u202eevil",
    "\x9b31m",
    "\u2028x\u2029\x85y\x0bz\x0c\x1c",
    "\x7f\x00",
    "\ufeff\u200b",
    "\xad\U000e0041",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_in_its_line_and_is_spelled_out(out: io.StringIO, text: str) -> None:
    structlog.get_logger().info("http.request", path=text, **{"key" + text: 1})
    logging.getLogger("somebody").error("said %s", text)
    raw = out.getvalue()
    assert len(raw.splitlines()) == 2
    assert raw.replace("\n", "").isprintable()
    assert lines(out)[0]["path"] == text  # nothing is lost, only spelled


@given(st.text(), st.dictionaries(st.text(max_size=5).map("f{}".format), st.text(max_size=20), max_size=3))
def test_every_event_is_one_json_line(event: str, fields: dict[str, str]) -> None:
    stream = io.StringIO()
    configure_logging("info", stream=stream, redactor=Redactor())
    structlog.get_logger().info(event.encode(errors="replace").decode(), **fields)
    structlog.reset_defaults()
    assert stream.getvalue().count("\n") == 1
    assert len(stream.getvalue().splitlines()) == 1
    json.loads(stream.getvalue())


def test_an_exception_is_one_line_too(out: io.StringIO) -> None:
    try:
        raise RuntimeError("first\nsecond")
    except RuntimeError:
        structlog.get_logger().exception("crashed")
    (line,) = lines(out)
    assert "RuntimeError: first\nsecond" in str(line["exception"])
    assert line["level"] == "error"


def test_secrets_are_taken_out_wherever_they_appear(out: io.StringIO, redactor: Redactor) -> None:
    redactor.add("hunter2-hunter2", SecretStr('quote"and\\slash'), "short", None)
    log = structlog.get_logger()
    log.info("a", field="xhunter2-hunter2x", nested={"deep": ['quote"and\\slash']}, word="short")
    try:
        raise ValueError("hunter2-hunter2")
    except ValueError:
        log.exception("hunter2-hunter2")
    logging.getLogger("other").warning("hunter2-hunter2")
    text = out.getvalue()
    assert "hunter2" not in text
    assert "slash" not in text
    assert text.count("[redacted]") >= 5
    assert lines(out)[0]["word"] == "short"


def test_a_secret_added_twice_is_removed_twice(redactor: Redactor) -> None:
    redactor.add("one-secret-value", "one-secret-value")
    redactor.remove("one-secret-value")
    assert redactor.clean("one-secret-value") == "[redacted]"
    redactor.remove("one-secret-value", "never added")
    assert redactor.clean("one-secret-value") == "one-secret-value"


JSON_SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: orjson.dumps(text).decode(),
    "in ASCII": json.dumps,
    "for HTML": lambda text: orjson.dumps(text).decode().replace("/", "\\/"),
    "in ASCII for HTML": lambda text: json.dumps(text).replace("/", "\\/"),
}


@pytest.mark.parametrize("spelling", JSON_SPELLINGS)
@example("p\u00e4ssw\u00f6rd-1234")
@example("abc/def+ghijkl==")
@example('\x7f\u20ac\U0001f600/"\\\n1')
@given(st.text(min_size=8, max_size=20))
def test_what_takes_a_secrets_place_is_as_long_and_the_same_inside_json(spelling: str, secret: str) -> None:
    redactor, spelled = Redactor(), JSON_SPELLINGS[spelling]
    redactor.add(secret)
    cleaned = redactor.clean(secret, keep_size=True)
    assert len(cleaned) == len(secret)
    assert len(cleaned.encode()) == len(secret.encode())
    assert len(spelled(cleaned).encode()) == len(spelled(secret).encode())
    assert redactor.clean(spelled(secret), keep_size=True) == spelled(cleaned)
    redactor.remove(secret)
    assert redactor.clean(spelled(secret)) == spelled(secret)


@pytest.mark.parametrize("spelling", JSON_SPELLINGS)
@pytest.mark.parametrize("secret", ["p\u00e4ssw\u00f6rd-1234", "abc/def+ghijkl==", "\U0001f600 is / a \x7f key"])
def test_a_secret_is_found_however_json_spells_it(spelling: str, secret: str, redactor: Redactor) -> None:
    redactor.add(secret)
    text = JSON_SPELLINGS[spelling](secret)
    assert redactor.clean(text) == '"[redacted]"'
    kept = re.findall(r"\w", json.loads(redactor.clean(text, keep_size=True)))
    assert kept == [], "of letters and digits nothing is left"


@given(st.lists(st.text(min_size=8, max_size=20), max_size=4), st.text(max_size=30))
def test_no_secret_survives_cleaning(secrets: list[str], around: str) -> None:
    redactor = Redactor()
    redactor.add(*secrets)
    for secret in secrets:
        assert secret not in redactor.clean(around + secret + around) or secret in "[redacted]"


def test_what_libraries_say_below_a_warning_and_their_queries_are_not_logged(out: io.StringIO) -> None:
    configure_logging("debug", stream=out)
    logging.getLogger("uvicorn.error").info("GET /ws?token=SECRET")
    logging.getLogger("websockets.server").debug("GET /ws?token=SECRET")
    logging.getLogger("uvicorn.error").warning("failed on /ws/v2?sessionId=a&token=SECRET now")
    (line,) = lines(out)
    assert line["text"] == "failed on /ws/v2?... now"


def test_the_level_is_obeyed(out: io.StringIO) -> None:
    structlog.get_logger().debug("quiet")
    configure_logging("error", stream=out)
    structlog.get_logger().warning("quiet")
    structlog.get_logger().error("loud")
    assert [line["event"] for line in lines(out)] == ["loud"]


def test_a_repeating_failure_is_told_first_then_each_minute_then_that_it_is_over(out: io.StringIO) -> None:
    trouble = Repeating("store.failed")
    trouble.worked()
    for second in range(0, 130, 10):
        trouble.failed(now=float(second), cause="disk")
    trouble.worked()
    trouble.worked()
    trouble.failed(now=131.0)
    told = [(line["event"], line["failures"]) for line in lines(out)]
    assert told == [
        ("store.failed", 1),
        ("store.failed", 7),
        ("store.failed", 13),
        ("store.failed.recovered", 13),
        ("store.failed", 1),
    ]


def test_unknown_frames_of_agents_are_so_many_series_at_most() -> None:
    metrics = Metrics()
    for n in range(UNKNOWN_TYPES + 9):
        metrics.unknown_frames("pi", f"kind {n}", 2)
    metrics.unknown_frames("a bridge's own word", "kind 0", 1)
    shown = metrics.render().decode()
    assert shown.count('holdfast_agent_unknown_total{agent="pi"') == UNKNOWN_TYPES + 1
    assert 'holdfast_agent_unknown_total{agent="pi",type="others"} 18.0' in shown
    assert 'holdfast_agent_unknown_total{agent="others",type="kind 0"} 1.0' in shown


def test_metrics_of_two_gateways_do_not_mix() -> None:
    first, second = Metrics(), Metrics()
    depth = [3.0]
    first.watch("queue_depth", "Waiting", lambda: depth[0])
    running = {"local": 2.0, "docker": 0.0}
    first.watch_providers("sandboxes_running", "Running", running, running.__getitem__)
    first.created("local")
    first.started("local")
    first.started("local")
    first.refused("too_slow")
    first.message_seconds.observe(0.002)
    first.woken("local", 1)
    first.frames_relayed.inc(5)
    first.committed(3, 0.002)
    first.trimmed_records.inc(7)
    text = first.render().decode()
    for line in [
        'holdfast_sandboxes_created_total{provider="local"} 1.0',
        'holdfast_sandbox_starts_total{provider="local"} 2.0',
        'holdfast_sandboxes_running{provider="local"} 2.0',
        'holdfast_sandboxes_running{provider="docker"} 0.0',
        'holdfast_refusals_total{reason="too_slow"} 1.0',
        "holdfast_frames_relayed_total 5.0",
        "holdfast_queue_depth 3.0",
        "holdfast_message_seconds_count 1.0",
        'holdfast_wake_seconds_count{provider="local"} 1.0',
        'holdfast_queue_batch_writes_bucket{le="2.0"} 0.0',
        'holdfast_queue_batch_writes_bucket{le="4.0"} 1.0',
        "holdfast_queue_commit_seconds_sum 0.002",
        "holdfast_trimmed_records_total 7.0",
    ]:
        assert line in text
    assert {"holdfast_queue_depth", "holdfast_refusals_total", "holdfast_wake_seconds"} <= first.names()
    assert "holdfast_queue_depth" not in second.names()
    depth[0] = 4.0
    assert "holdfast_queue_depth 4.0" in first.render().decode()
    second.expect("local")
    assert 'holdfast_sandboxes_created_total{provider="local"} 0.0' in second.render().decode()
