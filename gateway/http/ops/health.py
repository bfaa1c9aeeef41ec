"""Health, readiness and metrics of the gateway."""

import time
from collections.abc import Callable
from typing import Literal

from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from gateway.auth.policy import ADMINS, PUBLIC
from gateway.http.responses import answer
from gateway.routing.json_types import JsonAnswer
from gateway.routing.route import route

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Health(JsonAnswer):
    status: Literal["ok"]
    version: str
    uptime_seconds: float


class ReadyJson(JsonAnswer):
    """The gateway takes work."""

    status: Literal["ready"]
    degraded: list[str] | UnsetType = UNSET


class Unready(JsonAnswer):
    status: Literal["unready"]
    reasons: list[str]
    error: str
    code: str
    degraded: list[str] | UnsetType = UNSET


class HealthRoutes:
    """`unready` returns the reasons not to send work here, none when all is well; `degraded` the faults during which
    work is still taken."""

    def __init__(
        self,
        version: str,
        unready: Callable[[], list[str]],
        degraded: Callable[[], list[str]],
        render_metrics: Callable[[], bytes],
    ) -> None:
        self._version = version
        self._unready = unready
        self._degraded = degraded
        self._render_metrics = render_metrics
        self._began = time.monotonic()

    @route("GET", "/health", PUBLIC, "health", "Whether the process answers", answers={200: Health})
    async def health(self, _: Request) -> Response:
        """Always ok while the process answers: a store that is away is no reason to restart the gateway."""
        uptime = round(time.monotonic() - self._began, 3)
        return answer(Health("ok", self._version, uptime))

    @route("GET", "/ready", PUBLIC, "ready", "Whether it takes work", answers={200: ReadyJson, 503: Unready})
    async def ready(self, _: Request) -> Response:
        reasons, degraded = self._unready(), self._degraded()
        if not reasons:
            return answer(ReadyJson("ready", degraded or UNSET))
        message = "not ready: " + ", ".join(reasons)
        return answer(Unready("unready", reasons, message, "unready", degraded or UNSET), 503)

    @route("GET", "/metrics", ADMINS, "metrics", "Figures for Prometheus", media={"text/plain": ""})
    async def metrics(self, _: Request) -> Response:
        return Response(self._render_metrics(), headers={"Cache-Control": "no-store"}, media_type=METRICS_TYPE)
