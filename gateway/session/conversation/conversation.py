"""The log, the way to the agent and the viewers of one session, under the names that its sandbox's supervisor uses."""

from collections.abc import Callable
from typing import Any

from gateway.session.conversation.delivery import Delivery
from gateway.session.conversation.log import SessionLog
from gateway.session.model.delivery_window import DeliveryWindow
from gateway.session.model.state import SessionSpec, SessionState
from gateway.session.viewers.broadcast import Broadcast
from sandbox.ports.link import Link


class Conversation:
    __slots__ = ("_delivery", "_log", "audience", "id")

    def __init__(self, log: SessionLog, delivery: Delivery, audience: Broadcast) -> None:
        self._log = log
        self._delivery = delivery
        self.audience = audience
        self.id = log.id

    @property
    def state(self) -> SessionState:
        return self._log.state

    @property
    def spec(self) -> SessionSpec:
        return self._log.spec

    @property
    def active_at(self) -> float:
        return self._log.active_at

    @property
    def window(self) -> DeliveryWindow:
        return self._delivery.window

    @property
    def link(self) -> Link | None:
        return self._delivery.link

    @link.setter
    def link(self, link: Link | None) -> None:
        self._delivery.link = link

    def touch(self) -> None:
        self._log.touch()

    def save_spec(self, **changes: Any) -> None:
        self._log.save_spec(**changes)

    def save(self, **changes: Any) -> None:
        self._log.save(**changes)

    def save_and_then(self, then: Callable[[], Any], **changes: Any) -> None:
        self._log.save_and_then(then, **changes)

    def forget_unsure(self) -> None:
        self._delivery.forget_unsure()

    def discard_window(self) -> None:
        self._delivery.discard_window()
