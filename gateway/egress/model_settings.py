"""The messages about models between gateway and proxy. Pure.

A session's policy has one route for each provider, with the key, and one named SPENDING: the limits of the session and
its user. Notes of the part MODELS go both ways. The proxy sends its spending as totals, again and again until the
gateway confirms them: totals may be repeated and overtaken, and nothing is counted twice. It asks for another key if a
provider refused one, or if there is none yet.
"""

import msgspec

from gateway.egress.budget import Spent
from gateway.egress.meter import Tokens
from gateway.egress.providers import Api, KeyHeader, ModelProvider

MODELS = "models"  # the part that the notes name
SPENDING = "holdfast"  # a route of a policy that serves no requests: no provider has this name


class RouteSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """The settings of one provider, for one session. `key` is "" where there is none; `expires` is when it ends, in
    seconds since 1970 (0: unknown)."""

    name: str
    origin: str
    apis: tuple[Api, ...]
    key_header: KeyHeader
    key_user: str = ""
    ca_file: str = ""
    of_operator: bool = False
    oauth_headers: dict[str, str] = {}
    key: str = ""
    oauth: bool = False
    expires: float = 0.0
    repository: str = ""  # for a git host: the only allowed one, as host/path

    def __repr__(self) -> str:
        return f"RouteSettings({self.name!r}, {self.origin!r}, key={'set' if self.key else 'none'})"

    @property
    def provider(self) -> ModelProvider:
        return ModelProvider(
            self.name,
            self.origin,
            self.apis,
            self.key_header,
            key_user=self.key_user,
            ca_file=self.ca_file,
            of_operator=self.of_operator,
            oauth_headers=self.oauth_headers,
        )

    def with_key(self, key: "ProviderKey") -> "RouteSettings":
        return msgspec.structs.replace(self, key=key.key, oauth=key.oauth, expires=key.expires)


class ProviderKey(msgspec.Struct, frozen=True):
    """`why` is the reason why there is none."""

    key: str = ""
    oauth: bool = False
    expires: float = 0.0
    why: str = ""

    def __repr__(self) -> str:
        return f"ProviderKey({'set' if self.key else 'none'}, why={self.why!r})"


class SpendingSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """Costs are nano-dollars. None: no limit. `known`: the gateway's total for the session, as `counts` writes it."""

    cost: int | None = None
    tokens: int | None = None
    user_cost: int | None = None
    known: tuple[int, ...] = ()


class ModelSetup(msgspec.Struct, frozen=True, tag="setup"):
    """The gateway's first note. Paths are absolute; "" is none."""

    journal: str
    prices_file: str = ""


class RenewedKey(msgspec.Struct, frozen=True, tag="key"):
    """To the proxy: the answer to the AskKey of that number."""

    number: int
    key: ProviderKey


class HeardSpending(msgspec.Struct, frozen=True, tag="heard"):
    """To the proxy: the SpentTotals of that number has arrived."""

    number: int


class AskKey(msgspec.Struct, frozen=True, tag="ask_key"):
    """To the gateway: the key of this session for that provider was refused, or there is none."""

    number: int
    session: str
    provider: str


class SpentTotals(msgspec.Struct, frozen=True, tag="spent"):
    """To the gateway: the totals of sessions, of users on that day, and of all users at each provider since this proxy
    began."""

    number: int
    day: str
    sessions: dict[str, tuple[int, ...]]
    users: dict[str, tuple[int, ...]]
    providers: dict[str, tuple[int, ...]]


NoteToProxy = ModelSetup | RenewedKey | HeardSpending
NoteToGateway = AskKey | SpentTotals
_TO_PROXY: "msgspec.json.Decoder[NoteToProxy]" = msgspec.json.Decoder(NoteToProxy)
_TO_GATEWAY: "msgspec.json.Decoder[NoteToGateway]" = msgspec.json.Decoder(NoteToGateway)
_ROUTE = msgspec.json.Decoder(RouteSettings)
_SPENDING = msgspec.json.Decoder(SpendingSettings)


def route_settings(provider: ModelProvider, key: ProviderKey | None = None) -> RouteSettings:
    settings = RouteSettings(
        provider.name,
        provider.origin,
        provider.apis,
        provider.key,
        provider.key_user,
        provider.ca_file,
        provider.of_operator,
        dict(provider.oauth_headers),
    )
    return settings.with_key(key) if key else settings


def read_route(raw: msgspec.Raw) -> RouteSettings:
    """Raises msgspec.MsgspecError."""
    return _ROUTE.decode(raw)


def read_spending(raw: msgspec.Raw | None) -> SpendingSettings:
    """Raises msgspec.MsgspecError."""
    return SpendingSettings() if raw is None else _SPENDING.decode(raw)


def note_to_proxy(raw: msgspec.Raw) -> NoteToProxy | None:
    """None: a note of another version."""
    try:
        return _TO_PROXY.decode(raw)
    except msgspec.MsgspecError:
        return None


def note_to_gateway(raw: msgspec.Raw) -> NoteToGateway | None:
    try:
        return _TO_GATEWAY.decode(raw)
    except msgspec.MsgspecError:
        return None


def counts(spent: Spent) -> tuple[int, ...]:
    tokens = spent.tokens
    four = (tokens.input, tokens.output, tokens.cache_read, tokens.cache_write)
    return (spent.requests, *four, spent.cost, spent.unpriced, spent.estimated)


def read_counts(numbers: tuple[int, ...]) -> Spent:
    """The spending in eight counts; nothing if they are not eight."""
    if len(numbers) != 8 or min(numbers) < 0:
        return Spent()
    requests, given, made, read, written, cost, unpriced, estimated = numbers
    return Spent(requests, Tokens(given, made, read, written), cost, unpriced, estimated)
