"""The results of bench/terminal.py, compared with their goals."""

from collections.abc import Sequence

from bench.figures import Figure, Goal, compare
from bench.rounds import OURS, Rounds

NGINX = "nginx"
NGINX_UNIX = "nginx, unix socket"
DIRECT = "no relay"
PIPE = "Python pipe"
CEILING = "bare read loop"
TERMINADO = "terminado"

KEYS = "64 B, 1 in flight"
KEY_STREAMS = "64 B, 4 in flight"
BLOCKS = "4 KiB, 1 in flight"
BLOCK_STREAMS = "4 KiB, 4 in flight"
FLOOD = "flood of 4 KiB frames, 1 session"
FLOODS = "flood of 4 KiB frames, 16 sessions"
P50 = "p50, 64 sessions, 1,000 messages/s"
P99 = "p99, 64 sessions, 1,000 messages/s"
ECHO = "p50, 1 session, 1 in flight"
IDLE = "memory per idle terminal"
PTY = "`yes` on a PTY, to one viewer"
PTY_CPU = "the same, by what serves it"

UNITS = {
    KEYS: "messages per CPU-second",
    KEY_STREAMS: "messages per CPU-second",
    BLOCKS: "messages per CPU-second",
    BLOCK_STREAMS: "messages per CPU-second",
    FLOOD: "MB per CPU-second",
    FLOODS: "MB per CPU-second",
    P50: "us",
    P99: "us",
    ECHO: "us",
    IDLE: "KiB",
    PTY: "MB/s",
    PTY_CPU: "MB per CPU-second",
}


GOALS = {
    (KEYS, NGINX): Goal(0.7),
    (KEYS, NGINX_UNIX): Goal(0.65),
    (KEYS, PIPE): Goal(0.78),
    (KEY_STREAMS, NGINX): Goal(0.65, 0.85),
    (KEY_STREAMS, NGINX_UNIX): Goal(0.65),
    (KEY_STREAMS, PIPE): Goal(0.78),
    (BLOCKS, NGINX): Goal(0.7),
    (BLOCK_STREAMS, NGINX): Goal(0.65, 0.85),
    (FLOOD, NGINX): Goal(0.95, 1.1),
    (FLOODS, NGINX): Goal(0.95, 1.1),
    (P50, NGINX): Goal(1.2),
    (IDLE, NGINX): Goal(1.0, 0.8),
    (PTY, CEILING): Goal(0.85, 0.93),
    (PTY_CPU, TERMINADO): Goal(1.3),
}


def goals(found: Rounds) -> list[Figure]:
    """The figures that compare ours with every peer, with goals where there are any."""
    return [
        _compare(found, step, peer)
        for step in UNITS
        if found.of(step, OURS)
        for peer in found.contenders(step)
        if peer not in (OURS, DIRECT)
    ]


def _compare(found: Rounds, step: str, peer: str) -> Figure:
    ours, theirs, claim = found.of(step, OURS), found.of(step, peer), step
    if direct := found.of(step, DIRECT):
        claim = f"added latency {step}"
        ours, theirs = _beyond(ours, direct), _beyond(theirs, direct)
    less = UNITS[step] in ("us", "KiB")
    return compare(claim, peer, UNITS[step], ours, theirs, less_is_better=less, goal=GOALS.get((step, peer)))


def _beyond(values: Sequence[float], direct: Sequence[float]) -> list[float]:
    """What each value adds to the direct way, without a relay, in the same round."""
    return [value - floor for value, floor in zip(values, direct, strict=False)]
