"""Logs and metrics. A log event is one JSON line on stderr: a constant name plus fields.

Text from outside is escaped (no control character, no line break, no text direction mark reaches a terminal), and every
known secret is taken out by value before the line is written. Query strings are never logged at all.
"""

import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

import orjson
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.agents.catalogue import CORES
from gateway.config.settings import SecretStr
from gateway.egress.budget import Spent
from gateway.egress.prices import NANO
from gateway.protocol.text import UNSEEN
from gateway.telemetry.bounded_labels import OTHERS, BoundedLabels
from gateway.telemetry.counter import PlainCounter
from gateway.telemetry.histogram import LatencyHistogram

if TYPE_CHECKING:
    from sync.snapshots.push import Pushed

SHORTEST_SECRET = 8  # a shorter value would black out ordinary words
_REDACTED = "[redacted]"
_STARS = "*¤★🌟"  # by their bytes in UTF-8
_LATENCIES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_ANSWERS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
_WAKES = (0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 20, 30, 60)
_PULLS = (0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
_QUERY = re.compile(r"(?<=[\w/])\?[^\s\"'<>]*=[^\s\"'<>]*")


class Redactor:
    """Takes known secrets out of text, by value. A secret added twice must be removed twice.

    There may be thousands (every session brings its own), so they are found by their first eight characters: the cost
    of a line is its length, however many there are.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        # A secret and its replacement; the longest first, or a part of it would stay.
        self._by_start: dict[str, list[tuple[str, str]]] = {}

    def add(self, *secrets: str | SecretStr | None) -> None:
        for value in map(_plain, secrets):
            if len(value) < SHORTEST_SECRET:
                continue
            self._counts[value] = self._counts.get(value, 0) + 1
            if self._counts[value] == 1:
                for form in _forms(value):
                    known = self._by_start.setdefault(form[0][:SHORTEST_SECRET], [])
                    known.append(form)
                    known.sort(key=lambda form: len(form[0]), reverse=True)

    def remove(self, *secrets: str | SecretStr | None) -> None:
        for value in map(_plain, secrets):
            if value not in self._counts:
                continue
            self._counts[value] -= 1
            if not self._counts[value]:
                del self._counts[value]
                for form in _forms(value):
                    known = self._by_start[form[0][:SHORTEST_SECRET]]
                    known.remove(form)
                    if not known:
                        del self._by_start[form[0][:SHORTEST_SECRET]]

    def clean(self, text: str, *, keep_size: bool = False) -> str:
        """Remove the secrets. With `keep_size` a replacement is as long as its secret in UTF-8, also inside JSON."""
        starts = self._by_start
        if not starts:
            return text
        pieces, kept, at = [], 0, 0
        while at <= len(text) - SHORTEST_SECRET:
            found = starts.get(text[at : at + SHORTEST_SECRET])
            secret = next((form for form in found if text.startswith(form[0], at)), None) if found else None
            if secret is None:
                at += 1
                continue
            pieces += [text[kept:at], secret[1] if keep_size else _REDACTED]
            kept = at = at + len(secret[0])
        return "".join([*pieces, text[kept:]])


def _forms(value: str) -> set[tuple[str, str]]:
    """A secret as itself, and as JSON writes it; each with a replacement of equal length. Characters that JSON may
    escape stay, and each other one becomes a star that is as long in each spelling: then the replacement of a spelling
    is the spelling of the replacement."""
    stars = "".join(char if char in '"\\/\x7f' or char < " " else _STARS[len(char.encode()) - 1] for char in value)
    return {(value, stars), *zip(_in_json(value), _in_json(stars), strict=True)}


def _in_json(text: str) -> list[str]:
    """The spellings inside JSON: with as few escapes as possible, or in ASCII; with `/` escaped or not."""
    spellings = [orjson.dumps(text).decode()[1:-1], json.dumps(text)[1:-1]]
    return spellings + [each.replace("/", "\\/") for each in spellings]


def _plain(secret: str | SecretStr | None) -> str:
    if secret is None:
        return ""
    text = secret.get_secret_value() if isinstance(secret, SecretStr) else secret
    return text.encode(errors="replace").decode()  # lone surrogates would not encode as JSON


REDACTOR = Redactor()


def configure_logging(level: str = "info", *, stream: TextIO | None = None, redactor: Redactor = REDACTOR) -> None:
    """Send structlog and the standard library's loggers to `stream` (stderr), one JSON object per line."""
    number = logging.getLevelNamesMapping()[level.upper()]
    out = stream or sys.stderr
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        structlog.processors.format_exc_info,
        lambda _logger, _method, event: _render(event, redactor),
    ]
    structlog.configure(
        processors=shared,
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=out),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    for old in root.handlers[:]:
        if isinstance(old, _ToStructlog):
            root.removeHandler(old)
    root.addHandler(_ToStructlog())
    root.setLevel(max(number, logging.WARNING))
    # uvicorn and websockets write whole request lines, tokens included, below WARNING: no setting turns that on.
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi", "websockets", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)


class _ToStructlog(logging.Handler):
    """Other libraries' loggers, in our form. Their messages may quote an address: its query is removed."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            log = structlog.get_logger()
            text = _QUERY.sub("?...", record.getMessage().strip())
            exc_info = record.exc_info if record.exc_info and record.exc_info[0] else None
            log.log(record.levelno, "library.said", logger=record.name, text=text, exc_info=exc_info)
        except Exception:
            self.handleError(record)


def _render(event: MutableMapping[str, Any], redactor: Redactor) -> str:
    fields = {"at": event.pop("at"), "level": event.pop("level"), "event": event.pop("event"), **event}
    line = orjson.dumps(fields, default=_spell, option=orjson.OPT_NON_STR_KEYS).decode()
    return UNSEEN.sub(lambda found: json.dumps(found[0])[1:-1], redactor.clean(line))


def _spell(value: Any) -> str:
    return repr(value)


def session_asked(what: str, by: str, *, session_id: str, user_id: str, provider: str, **fields: Any) -> None:
    """Log that a change of a session's life is about to happen. `by` is the kind of caller, or `gateway`. Fields are
    switches and numbers: no text of users, so no secret of theirs, and no length but that of ids."""
    structlog.get_logger().info(
        "session.asked", session_id=session_id, user_id=user_id, provider=provider, what=what, by=by, **fields
    )


class Repeating:
    """A failure that may repeat: logged at once, then once a minute with its count, then when it is over."""

    def __init__(self, event: str, *, every: float = 60.0) -> None:
        self._event = event
        self._every = every
        self._told_at: float | None = None
        self._failures = 0

    def failed(self, *, now: float, **fields: Any) -> None:
        self._failures += 1
        if self._told_at is None or now - self._told_at >= self._every:
            self._told_at = now
            structlog.get_logger().warning(self._event, failures=self._failures, **fields)

    def worked(self) -> None:
        if self._told_at is not None:
            structlog.get_logger().info(f"{self._event}.recovered", failures=self._failures)
            self._told_at, self._failures = None, 0


class _Shown(Collector):
    """A histogram in Prometheus's form."""

    def __init__(self, name: str, help: str, durations: LatencyHistogram) -> None:
        self._name, self._help = name, help
        self._created = time.time()
        self.durations = durations

    def collect(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(self._name, self._help, self.durations.buckets(), self.durations.seconds)
        family.add_sample(f"{self._name}_created", {}, self._created)
        return [family]


class _ShownCount(Collector):
    """A counter in Prometheus's form."""

    def __init__(self, name: str, help: str) -> None:
        self._name, self._help = name, help
        self._created = time.time()
        self.counter = PlainCounter()

    def collect(self) -> Iterable[Metric]:
        return [CounterMetricFamily(self._name, self._help, self.counter.count, created=self._created)]


UNKNOWN_TYPES = 64  # of each agent


class Metrics:
    """The metrics of `/metrics`. Each instance has its own registry, so that two gateways in one process do not mix."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self.sandboxes_created = Counter(
            "holdfast_sandboxes_created", "Sessions created", ["provider"], registry=registry
        )
        self.sandbox_starts = Counter("holdfast_sandbox_starts", "Sandboxes started", ["provider"], registry=registry)
        self.wake_seconds = Histogram(
            "holdfast_wake_seconds", "From intent to a linked sandbox", ["provider"], buckets=_WAKES, registry=registry
        )
        self.reattach_seconds = Histogram(
            "holdfast_reattach_seconds",
            "From the gateway's start to a running sandbox attached again",
            ["provider"],
            buckets=_WAKES,
            registry=registry,
        )
        self.message_seconds = self._timed("holdfast_message_seconds", "From received to stored", _LATENCIES)
        self.answer_seconds = self._timed("holdfast_answer_seconds", "From a message to its done", _ANSWERS)
        self.batch_writes = self._timed("holdfast_queue_batch_writes", "Writes of one commit", _BATCHES)
        self.commit_seconds = self._timed("holdfast_queue_commit_seconds", "One commit, retries included", _LATENCIES)
        self.sync_seconds = Histogram(
            "holdfast_sync_seconds", "One successful sync of a workspace", buckets=_WAKES, registry=registry
        )
        self.restore_seconds = Histogram(
            "holdfast_restore_seconds", "One successful restore", buckets=_WAKES, registry=registry
        )
        self.stored_changes = 0  # bytes by which snapshots of workspaces grew
        self.sync_failures = Counter("holdfast_sync_failures", "Sync attempts that failed", registry=registry)
        self.sync_generations = Counter("holdfast_sync_generations", "New generations", registry=registry)
        self.sync_read_bytes = Counter("holdfast_sync_read_bytes", "Read and hashed by scans", registry=registry)
        self.sync_sent_bytes = Counter("holdfast_sync_sent_bytes", "Sent to the object store", registry=registry)
        self.sync_chunks = Counter("holdfast_sync_chunks", "Chunks named by syncs", ["how"], registry=registry)
        self.trimmed_records = Counter("holdfast_trimmed_records", "Removed by retention", registry=registry)
        self.frames_relayed = self._counted("holdfast_frames_relayed", "Agent frames received and passed on")
        self.agent_slowed_seconds = Counter(
            "holdfast_agent_slowed_seconds",
            "Seconds without reading agents that made records too fast",
            registry=registry,
        )
        self.agent_unknown = Counter(
            "holdfast_agent_unknown",
            "Frames of agents that their core does not know",
            ["agent", "type"],
            registry=registry,
        )
        self._unknown_types = BoundedLabels(UNKNOWN_TYPES)
        self.limit_ends = Counter(
            "holdfast_limit_ends",
            "Programs that met a limit of their sandbox",
            ["provider", "limit"],
            registry=registry,
        )
        self.orphans_removed = Counter(
            "holdfast_orphans_removed",
            "Leftovers of sandboxes removed",
            ["provider"],
            registry=registry,
        )
        self.image_pulls = Counter(
            "holdfast_image_pulls", "Images fetched by a container engine", ["provider", "result"], registry=registry
        )
        self.image_pull_seconds = Histogram(
            "holdfast_image_pull_seconds", "One pull of an image", ["provider"], buckets=_PULLS, registry=registry
        )
        self.credential_refreshes = Counter(
            "holdfast_credential_refreshes",
            "Requests for fresh OAuth tokens",
            ["result"],
            registry=registry,
        )
        self.model_requests = Counter(
            "holdfast_model_requests", "Requests to models that are metered", ["provider"], registry=registry
        )
        self.model_tokens = Counter(
            "holdfast_model_tokens", "Tokens of models", ["provider", "kind"], registry=registry
        )
        self.model_cost = Counter("holdfast_model_cost_usd", "USD spent on models", ["provider"], registry=registry)
        self.refusals = Counter("holdfast_refusals", "Refused, by reason", ["reason"], registry=registry)

    def _timed(self, name: str, help: str, bounds: Sequence[float]) -> LatencyHistogram:
        """A histogram of durations measured with every message."""
        shown = _Shown(name, help, LatencyHistogram(bounds))
        self._registry.register(shown)
        return shown.durations

    def _counted(self, name: str, help: str) -> PlainCounter:
        """A counter of events that happen with every message."""
        shown = _ShownCount(name, help)
        self._registry.register(shown)
        return shown.counter

    def expect(self, provider: str) -> None:
        """Show the series of a provider at 0 before its first sandbox, so that the first one is an increase."""
        for metric in (self.sandboxes_created, self.sandbox_starts, self.wake_seconds, self.reattach_seconds):
            metric.labels(provider)
        self.orphans_removed.labels(provider)
        for limit in ("memory", "pids"):
            self.limit_ends.labels(provider, limit)

    def created(self, provider: str) -> None:
        self.sandboxes_created.labels(provider).inc()

    def started(self, provider: str) -> None:
        self.sandbox_starts.labels(provider).inc()

    def woken(self, provider: str, seconds: float) -> None:
        self.wake_seconds.labels(provider).observe(seconds)

    def limit_ended(self, provider: str, limit: str) -> None:
        """A program was ended, or not started, by a limit of its sandbox."""
        self.limit_ends.labels(provider, limit).inc()

    def orphan_removed(self, provider: str) -> None:
        self.orphans_removed.labels(provider).inc()

    def unknown_frames(self, agent: str, kind: str, count: int) -> None:
        """`kind` comes from an agent, so its number of values is bounded."""
        known = agent if agent in CORES else OTHERS
        self.agent_unknown.labels(known, self._unknown_types.label(known, kind)).inc(count)

    def pulled(self, provider: str, result: str, seconds: float) -> None:
        """A pull of an image has ended. `result` is one of a fixed set."""
        self.image_pulls.labels(provider, result).inc()
        self.image_pull_seconds.labels(provider).observe(seconds)

    def refreshed(self, result: str) -> None:
        """A provider was asked for fresh tokens. `result` is one of a fixed set."""
        self.credential_refreshes.labels(result).inc()

    def models_used(self, provider: str, more: Spent) -> None:
        """`provider` is one that the settings name."""
        self.model_requests.labels(provider).inc(more.requests)
        tokens = more.tokens
        kinds = ("input", "output", "cache_read", "cache_write")
        counts = (tokens.input, tokens.output, tokens.cache_read, tokens.cache_write)
        for kind, count in zip(kinds, counts, strict=True):
            self.model_tokens.labels(provider, kind).inc(count)
        self.model_cost.labels(provider).inc(more.cost / NANO)

    def refused(self, reason: str) -> None:
        """Count a refusal. `reason` is one of a fixed set of codes, never a client's text."""
        self.refusals.labels(reason).inc()

    def reattached(self, provider: str, seconds: float) -> None:
        self.reattach_seconds.labels(provider).observe(seconds)

    def stored(self, change: int) -> None:
        """A workspace's newest snapshot is so many bytes larger than the one before."""
        self.stored_changes += change

    def committed(self, writes: int, seconds: float) -> None:
        self.batch_writes.observe(writes)
        self.commit_seconds.observe(seconds)

    def synced(self, seconds: float, pushed: "Pushed") -> None:
        """One sync of a workspace has succeeded."""
        self.sync_seconds.observe(seconds)
        self.sync_generations.inc(pushed.new)
        self.sync_read_bytes.inc(pushed.read_bytes)
        self.sync_sent_bytes.inc(pushed.sent_bytes)
        self.sync_chunks.labels("sent").inc(pushed.chunks_sent)
        self.sync_chunks.labels("reused").inc(pushed.chunks_reused)

    def watch(self, name: str, help: str, read: Callable[[], float]) -> None:
        """Show `read()` at each scrape as the gauge `holdfast_<name>`."""
        Gauge(f"holdfast_{name}", help, registry=self._registry).set_function(read)

    def watch_providers(self, name: str, help: str, providers: Iterable[str], read: Callable[[str], float]) -> None:
        """Show `read(provider)` of each at each scrape as the gauge `holdfast_<name>`."""
        gauge = Gauge(f"holdfast_{name}", help, ["provider"], registry=self._registry)
        for provider in providers:
            gauge.labels(provider).set_function(partial(read, provider))

    def names(self) -> set[str]:
        """Every metric, as a query would name it."""
        plain = {"histogram": "", "counter": "_total", "gauge": ""}
        return {each.name + plain[each.type] for each in self._registry.collect()}

    def render(self) -> bytes:
        return generate_latest(self._registry)
