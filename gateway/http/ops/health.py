"""Is it alive, may it be given work, and how does it do."""

import time
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gateway.http.responses import answer

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class HealthRoutes:
    """`unready` gives the reasons not to send work here, none when all is well; `degraded` what is wrong although work
    is taken."""

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

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/health", self.health, methods=["GET"]),
            Route("/ready", self.ready, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
        ]

    async def health(self, _: Request) -> Response:
        """Always ok while the process answers: a store that is away is no reason to restart it."""
        uptime = round(time.monotonic() - self._began, 3)
        return answer({"status": "ok", "version": self._version, "uptimeSeconds": uptime})

    async def ready(self, _: Request) -> Response:
        reasons, degraded = self._unready(), self._degraded()
        more = {"degraded": degraded} if degraded else {}
        if not reasons:
            return answer({"status": "ready", **more})
        message = "not ready: " + ", ".join(reasons)
        return answer({"status": "unready", "reasons": reasons, "error": message, "code": "unready", **more}, 503)

    async def metrics(self, _: Request) -> Response:
        return Response(self._render_metrics(), headers={"Cache-Control": "no-store"}, media_type=METRICS_TYPE)
