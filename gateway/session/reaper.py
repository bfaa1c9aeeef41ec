"""The reaper: looks at every loaded session now and then, and takes the step that gateway/session/model/idle_policy.py
returns.
"""

import asyncio
from collections.abc import Callable, Iterable

from gateway.session import upkeep
from gateway.session.actor import SessionActor
from gateway.session.model.idle_policy import IdleStep, next_step

LARGEST_PAUSE_SECONDS = 5.0


class Reaper:
    """`forget` unloads a session. The reaper does not unload it while `can_load` is false, because then it could not be
    loaded again. The pause between two looks depends on the gateway's `sleep_after`, not on the idle times that users
    choose: with a user's very short one the reaper would look at all sessions all the time."""

    def __init__(
        self,
        sessions: Iterable[SessionActor],
        forget: Callable[[SessionActor], None],
        can_load: Callable[[str], bool],
        *,
        sleep_after: float,
    ) -> None:
        self._sessions = sessions
        self._forget = forget
        self._can_load = can_load
        self._pause = min(LARGEST_PAUSE_SECONDS, sleep_after / 4)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._pause)
            for actor in self._sessions:
                match next_step(upkeep.idleness(actor)):
                    case IdleStep.SLEEP:
                        upkeep.sleep_if_idle(actor)
                    case IdleStep.RESCUE:
                        upkeep.rescue(actor)
                    case IdleStep.UNLOAD if self._can_load(actor.id):
                        self._forget(actor)
