"""The providers of sandboxes: their health, and the choices that each offers."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from gateway.auth.policy import LIFECYCLE
from gateway.http.access import principal
from gateway.http.responses import answer
from gateway.limits.images import ANY_IMAGE, ImageRule
from gateway.limits.network import NETWORKS
from gateway.routing.json_types import JsonAnswer, Whole, meaning, one_of
from gateway.routing.route import route
from gateway.session.providers import Providers, ProviderView


class Capacity(JsonAnswer):
    """Of the machine that all its sandboxes share; null: not known."""

    cpus: Whole | None
    memory: Annotated[Whole | None, meaning("bytes")]


class ProviderJson(JsonAnswer):
    name: Annotated[str, meaning("its kind; a session has it as `provider`")]
    level: Annotated[str, meaning("trusted, contained, container or isolated")]
    healthy: Annotated[bool, meaning("it can start sandboxes, as of a few seconds ago")]
    problem: Annotated[str | None, meaning("why it is not healthy")]
    image: Annotated[str | None, meaning("what its sandboxes run in unless they name another; null: it has no images")]
    images: Annotated[
        list[str], meaning("patterns of images that you may name, as in HOLDFAST_IMAGES; none: of this one alone")
    ]
    networks: Annotated[
        list[Annotated[str, one_of(*NETWORKS)]], meaning("what its sandboxes can have, to those who may ask for it")
    ]
    running: Annotated[Whole | UnsetType, meaning("for services alone: sandboxes that have a place")] = UNSET
    capacity: Annotated[Capacity | UnsetType, meaning("for services alone")] = UNSET


class ProvidersJson(JsonAnswer):
    default: Annotated[str, meaning("where new sessions run")]
    providers: list[ProviderJson]
    max_running: Annotated[
        Whole | UnsetType, meaning("for services alone: HOLDFAST_MAX_RUNNING, at all providers together")
    ] = UNSET


class ProviderRoutes:
    """`images` has, for each provider with images, the rule of those that sessions may have."""

    def __init__(self, providers: Providers, images: Mapping[str, ImageRule], max_running: int) -> None:
        self._providers = providers
        self._images = images
        self._max_running = max_running

    @route(
        "GET", "/api/providers", LIFECYCLE, "listProviders", "Where sessions can run; for services also how full it is",
        answers={200: ProvidersJson},
    )  # fmt: skip
    async def list(self, request: Request) -> Response:
        """Health is a few seconds old at most; a silent provider is waited for no longer than that."""
        views = await self._providers.look()
        for_user = principal(request).kind == "user"
        shown = [self._shown(view, for_user) for view in views]
        if for_user:
            return answer(ProvidersJson(self._providers.default, shown))
        running = self._providers.running()
        for view, each in zip(views, shown, strict=True):
            each.running = running[view.name]
            each.capacity = Capacity(view.health.cpus, view.health.memory)
        return answer(ProvidersJson(self._providers.default, shown, self._max_running))

    def _shown(self, view: ProviderView, for_user: bool) -> ProviderJson:
        problem, rule = view.health.problem, self._images.get(view.name)
        image, images = None, list[str]()
        if rule is not None:
            image, images = rule.given, list(rule.patterns) if for_user else [ANY_IMAGE]
        return ProviderJson(view.name, view.level, problem is None, problem, image, images, list(view.networks))
