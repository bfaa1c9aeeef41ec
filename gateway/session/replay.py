"""`python -m gateway.session.replay FILE`: replays a recording of a session with the same parts.

The session is made of the values that were loaded then. Each entry of its inbox is processed in its turn; each call
that the session makes to the outside returns what it returned then. It must come to the same state, and make the same
calls at its borders: the first event that differs is named, with what was recorded and what came now. The replay
touches nothing outside this process.
"""

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import structlog

from gateway.limits.inbound_bytes import UsersInboundBytes
from gateway.protocol.text import visible_line
from gateway.session.actor import SessionActor
from gateway.session.env_cover import EnvCover
from gateway.session.host import Surroundings
from gateway.session.recording.codec import NotARecording
from gateway.session.recording.player import Differs, Player
from gateway.session.recording.tape import VERSION, Beginning

SHOWN = 2000  # characters of an event, or of its calls


@dataclass(frozen=True, slots=True)
class Difference:
    """The first event that is not as it was recorded. The session's loading is event 0."""

    number: int
    event: Any
    expected: Any
    came: Any

    def __str__(self) -> str:
        lines = ("event", self.event), ("recorded", self.expected), ("came", self.came)
        return "\n".join([f"event {self.number} differs", *(f"  {name}: {_shown(value)}" for name, value in lines)])


@dataclass(frozen=True, slots=True)
class Replayed:
    events: int  # number of events that were as recorded
    difference: Difference | None = None
    note: str = ""  # how the recording ends, if it is cut short


class _Nobody:
    """Stands for metrics and the feed, and ignores every call."""

    def __getattr__(self, name: str) -> "_Nobody":
        return self

    def __call__(self, *arguments: Any, **named: Any) -> None:
        return None


def _shown(value: Any) -> str:
    return visible_line(value if isinstance(value, str) else json.dumps(value), longest=SHOWN)


def _session(player: Player, parts: dict[str, Any]) -> SessionActor:
    beginning = Beginning(**parts)
    nobody = cast(Any, _Nobody())
    around = Surroundings(
        store=player.outside("store"),
        queue=player.outside("queue"),
        fleets=nobody,
        keeping=nobody,
        limits=beginning.limits,
        metrics=nobody,
        turns=player.outside("turns"),
        quota=player.outside("quota"),
        feed=nobody,
        agents=nobody,
        envs={},
        env_cover=EnvCover({}),
        configs=nobody,
        inbound=UsersInboundBytes(),
        rng=player.outside("rng"),
        utcnow=player.utcnow,
    )
    session_id = beginning.loaded.session.id
    sandbox = SimpleNamespace(session_id=session_id, provider=beginning.provider, level=beginning.level)
    return SessionActor(
        beginning.loaded,
        beginning.unanswered,
        around,
        sandbox=cast(Any, sandbox),
        pending=player.outside("pending"),
        supervisor=nobody,
        tape=player,
    )


def _entries(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Entries of the recording. A torn last line is left out. Raises NotARecording."""
    torn: int | None = None
    for number, line in enumerate(lines):
        if torn is not None:
            raise NotARecording(f"line {torn + 1} is not JSON")
        try:
            entry = json.loads(line)
            whole = line.endswith(b"\n") and isinstance(entry, dict)
        except (ValueError, RecursionError):
            whole = False
        if whole:
            yield entry
        else:
            torn = number
    if torn is not None:
        yield {"stopped": "its last line is torn: later events are unknown"}


async def replay(lines: Iterable[bytes]) -> Replayed:
    """Raises NotARecording."""
    player, number, event = Player(), -1, None
    try:
        for entry in _entries(lines):
            if number < 0:
                _check_first(entry)
                player.load(entry, lambda parts: _session(player, parts))
            elif "stopped" in entry:
                return Replayed(number, note=str(entry["stopped"]))
            else:
                event = {"on": entry["on"], "with": entry["with"]}
                number += 1
                player.play(entry)
                continue
            number = 0
    except Differs as differs:
        return Replayed(max(number - 1, 0), Difference(max(number, 0), event, differs.expected, differs.came))
    except NotARecording:
        raise
    except Exception as error:  # any error of the session's parts about values that they cannot be made of
        raise NotARecording(f"event {max(number, 0)} is not a recorded event: {error!r}") from error
    if number < 0:
        raise NotARecording("it is empty")
    return Replayed(number)


def _check_first(entry: dict[str, Any]) -> None:
    if "recording" not in entry:
        raise NotARecording("its first line is not that of a recording")
    if entry["recording"] != VERSION:
        raise NotARecording(f"it is of version {entry['recording']}, and this gateway reads version {VERSION}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m gateway.session.replay",
        description="Replay a recorded session (HOLDFAST_RECORD_SESSIONS), and name the first event that "
        "differs. Exits with 0 if none does, with 1 if one does, with 2 if FILE is no recording that can be read.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="one recording")
    path: Path = parser.parse_args(arguments).file
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL)
    )  # the replayed session's log lines are of no use
    try:
        with path.open("rb") as lines:
            replayed = asyncio.run(replay(lines))
    except (OSError, NotARecording) as error:
        print(f"{path}: cannot be replayed: {_shown(str(error))}", file=sys.stderr)  # noqa: T201
        return 2
    if replayed.note:
        print(f"{path}: the recording ends early: {_shown(replayed.note)}")  # noqa: T201
    if replayed.difference is not None:
        print(f"{path}: {replayed.difference}")  # noqa: T201
        return 1
    print(f"{path}: {replayed.events} events, all as recorded")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
