"""A session's inbox and its surroundings: as they are, or by way of a tape (gateway/session/recording/tape.py)."""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from gateway.limits.inbound_bytes import InboundBytes
from gateway.session.host import SessionHost, Supervisor, Surroundings
from gateway.session.inbox import Inbox
from gateway.session.model.ports import Timer
from gateway.session.recording.tape import Tape, TapedInbox, outside

T = TypeVar("T")


def taped(around: Surroundings, tape: Tape) -> Surroundings:
    return replace(
        around,
        store=outside("store", around.store, tape),
        queue=outside("queue", around.queue, tape),
        turns=outside("turns", around.turns, tape),
        quota=outside("quota", around.quota, tape),
        rng=outside("rng", around.rng, tape),
        utcnow=tape.utcnow,
    )


class TapedHost(SessionHost):
    __slots__ = ("tape",)

    tape: Tape

    def call_at(self, when: float, handler: Callable[..., None], *arguments: Any) -> Timer:
        timer: Timer = self.tape.call("timer", super().call_at, when, handler, *arguments)
        return timer

    def in_a_moment(self, then: Callable[[], None]) -> None:
        self.tape.call("moment", super().in_a_moment, then)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self.tape.call("task", super().spawn, work, name)

    def new_id(self) -> str:
        name: str = self.tape.call("new_id", super().new_id)
        return name

    def outside(self, name: str, thing: T) -> T:
        return outside(name, thing, self.tape)

    def hide(self, *secrets: str) -> None:
        self.tape.hide(*secrets)


def inbox_of(around: Surroundings, user_id: str, tape: Tape | None) -> Inbox:
    limits, room = around.limits, around.inbound.of(user_id)
    if tape is None:
        return Inbox(limits, room)
    inbox = TapedInbox(limits, room)
    inbox.tape = tape
    return inbox


def host_of(
    session_id: str,
    user_id: str,
    provider: str,
    around: Surroundings,
    inbox: Inbox,
    pending: InboundBytes,
    supervisor: Supervisor,
    owner: object,
    tape: Tape | None,
) -> SessionHost:
    if tape is None:
        return SessionHost(session_id, user_id, provider, around, inbox, pending, supervisor, owner)
    host = TapedHost(session_id, user_id, provider, around, inbox, pending, supervisor, owner)
    host.tape, host.now = tape, tape.now
    return host
