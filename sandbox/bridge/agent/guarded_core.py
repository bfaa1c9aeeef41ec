"""An agent's core, behind a guard: a core that fails costs one line or one message, or its process, never the bridge.

The core is asked for what it wants done. Where it raises, that is logged, MOST_FAILURES times for each process, and
something else is wanted in its place.
"""

import traceback
from collections.abc import Callable, Sequence

from sandbox.agents.core import Core, EndProcess, LogReadingCore, Out, UnknownFrame
from sandbox.agents.remarks import agent_event, not_passed_on
from sandbox.system.log import log

CORE_FAILED = "what speaks with the agent failed: the agent is started anew"
MOST_FAILURES = 5


class GuardedCore:
    def __init__(self, core: Core, name: str, *, all_events: bool) -> None:
        """With `all_events` what the core does not know is passed on, too."""
        self.core = core
        self._name = name
        self._all_events = all_events
        self._failures = 0

    def ask(self, what: str, core: Callable[[], Sequence[Out]]) -> Sequence[Out]:
        """What the core wants. One that fails is of no more use: the process is ended, and the next has another."""
        try:
            return core()
        except Exception as exc:
            self._failed(what, exc)
            return (EndProcess(CORE_FAILED),)

    def down(self, line: bytes) -> Sequence[Out]:
        """A message that breaks the core is answered all the same: it counts as taken."""
        try:
            return self.core.down(line)
        except Exception as exc:
            self._failed("down", exc)
            return [not_passed_on(line), *([] if self.core.ready else [EndProcess(CORE_FAILED)])]

    def up(self, lines: Sequence[bytes]) -> Sequence[Out]:
        """A line that breaks the core costs that line."""
        if not self.core.cuts_lines:
            return self.core.up(lines)  # they pass as they are
        outs: list[Out] = []
        for line in lines:
            said = self._harmless("up", self.core.up, line)
            outs += said
            if self._all_events:
                outs += [agent_event(out.kind, line) for out in said if isinstance(out, UnknownFrame)]
        return outs

    @property
    def reads_log(self) -> bool:
        return isinstance(self.core, LogReadingCore)

    def logged(self, lines: Sequence[bytes]) -> Sequence[Out]:
        """Lines of the agent's log, for a core that reads it."""
        if not isinstance(self.core, LogReadingCore):
            return ()
        return [out for line in lines for out in self._harmless("logged", self.core.logged, line)]

    def _harmless(self, what: str, core: Callable[[Sequence[bytes]], Sequence[Out]], line: bytes) -> Sequence[Out]:
        try:
            return core((line,))
        except Exception as exc:
            self._failed(what, exc)
            return (UnknownFrame("breaks the core"),)

    def _failed(self, what: str, exc: Exception) -> None:
        if self._failures < MOST_FAILURES:
            self._failures += 1
            log("agent.core_failed", core=self._name, asked=what, trace=traceback.format_exception(exc))
