"""The bridge with a core that has bugs: `python -m tests.support.failing_core <config fd> <listen fd>`. It fails with a
message that says `bad`, also when its turn has begun (`bad late`), with an output `break`, and with a `start` that
has `bad-begin` in it."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.agents.catalogue import CORES
from sandbox.agents.core import Out
from sandbox.bridge.__main__ import main
from tests.support.turn_core import TurnCore

NAME = "failing"


@dataclass(slots=True)
class FailingCore(TurnCore):
    """Implements sandbox.agents.core.Core, badly."""

    def begin(self, start: bytes | None) -> Sequence[Out]:
        if b"bad-begin" in (start or b""):
            raise KeyError("begin")
        return TurnCore.begin(self, start)

    def down(self, line: bytes) -> Sequence[Out]:
        if b"bad late" in line:
            self.busy = True
        if b"bad" in line:
            raise KeyError("down")
        return TurnCore.down(self, line)

    def up(self, lines: Sequence[bytes]) -> Sequence[Out]:
        if any(line == b"break" for line in lines):
            raise KeyError("up")
        return TurnCore.up(self, lines)


if __name__ == "__main__":
    CORES[NAME] = FailingCore
    sys.exit(main())
