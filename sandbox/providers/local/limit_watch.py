"""Reports when programs of a sandbox meet its limits: in words for the user, and as a count.

A bridge sees that its agent was killed, and not why; the control group has counted. The last count of each session is
kept here, so that each end is reported for one reason.
"""

import contextlib
import signal
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from sandbox.ports.link import LinkEvents
from sandbox.ports.resources import ResourceLimits
from sandbox.ports.sandbox import CommandResult
from sandbox.protocol.values import AgentExit, Hello
from sandbox.providers.cgroups.files import Reading, limit_met
from sandbox.providers.cgroups.groups import Group

KILLED = 128 + signal.SIGKILL  # as a shell says it of its program
_NOTHING = Reading()


class LimitWatch:
    """`operator`: the limits in settings. `met` is called with the name of each limit that was met."""

    def __init__(self, operator: ResourceLimits, met: Callable[[str], None]) -> None:
        self.operator = operator
        self._met = met
        self._seen: dict[str, Reading] = {}

    def begin(self, session_id: str) -> None:
        """Its sandbox, and with it the group, is a new one, or none."""
        self._seen.pop(session_id, None)

    def watched(self, session_id: str, group: Group | None, events: LinkEvents) -> LinkEvents:
        """`events`, with the limit added to each end that it caused."""
        return events if group is None else _Watched(self, session_id, group, events)

    def since_last(self, session_id: str, group: Group) -> tuple[str, str] | None:
        """The limit that caused an end just reported: its name, and words."""
        now = group.read()
        if now is None:
            return None
        before, self._seen[session_id] = self._seen.get(session_id, _NOTHING), now
        return self._noted(before, now)

    def of_command(self, before: Reading | None, group: Group | None, result: CommandResult) -> CommandResult:
        """The result of a command that was killed says so, last."""
        now = group.read() if group is not None and result.exit_code == KILLED else None
        found = self._noted(before, now) if before is not None and now is not None else None
        if found is None:
            return result
        between = "" if result.stderr.endswith("\n") or not result.stderr else "\n"
        told = f"{result.stderr}{between}[{ended('killed', found)}]\n"
        return CommandResult(result.exit_code, result.stdout, told, result.timed_out, result.truncated)

    def _noted(self, before: Reading, now: Reading) -> tuple[str, str] | None:
        found = limit_met(before, now, self.operator)
        if found is not None:
            self._met(found[0])
        return found


def ended(reason: str, found: tuple[str, str], *, killed: bool = True) -> str:
    """Why a program has ended, in words."""
    name, words = found
    return f"the program was killed because {words}" if killed and name == "memory" else f"{reason}; {words}"


class _Watched:
    """Implements sandbox.ports.link.LinkEvents."""

    def __init__(self, watch: LimitWatch, session_id: str, group: Group, events: LinkEvents) -> None:
        self._watch = watch
        self._session_id = session_id
        self._group = group
        self._events = events
        self.on_hello: Callable[[Hello], None] = events.on_hello
        self.on_epoch: Callable[[str, int], None] = events.on_epoch
        self.on_frames: Callable[[str, int, Sequence[bytes]], None] = events.on_frames
        self.on_taken: Callable[[int], None] = events.on_taken
        self.on_recalled: Callable[[int], None] = events.on_recalled
        self.on_problem: Callable[[str], None] = events.on_problem
        self.on_unknown: Callable[[str, Mapping[str, int]], None] = events.on_unknown
        self.on_changed: Callable[[], None] = events.on_changed

    def on_exit(self, exit: AgentExit) -> None:
        if exit.code != 0 and (found := self._found()) is not None:
            killed = exit.signal == "SIGKILL" or exit.code == KILLED
            exit = replace(exit, reason=ended(exit.reason, found, killed=killed))
        self._events.on_exit(exit)

    def on_lost(self, reason: str) -> None:
        found = self._found() if not self._group.members() else None
        self._events.on_lost(reason if found is None else f"{reason}; {found[1]}")

    def _found(self) -> tuple[str, str] | None:
        with contextlib.suppress(OSError):
            return self._watch.since_last(self._session_id, self._group)
        return None
