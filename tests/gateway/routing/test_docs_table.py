"""The table of routes in the docs is made from declarations alone."""

from typing import Annotated

import pytest
from msgspec import UNSET, UnsetType

from gateway.auth.identity import Accept
from gateway.auth.policy import (
    ADMINS,
    ADMINS_OR_OWNER,
    LIFECYCLE,
    LIFECYCLE_OR_GUEST,
    OWN_PAGE,
    OWNER,
    OWNER_OR_GUEST,
    PUBLIC,
    RELAY_OR_OWNER,
    SERVICES,
    SIGNED_IN,
    RoutePolicy,
)
from gateway.routing.docs_table import table, who
from gateway.routing.json_types import Error, JsonAnswer, JsonBody, Nothing, must
from gateway.routing.parameters import PATH, USER, FlagParameter
from gateway.routing.route import WS, LinesOf, RouteSpec


class Question(JsonBody):
    what: Annotated[str, must("given")]
    how_often: Annotated[int, must("a number")] = 1


class ReplyJson(JsonAnswer):
    said: str
    by_whom: str | UnsetType = UNSET


LINES = LinesOf("ReplyLine", (ReplyJson, Error), "lines")
SPECS = [
    RouteSpec(
        "POST", "/ask/{path:path}", PUBLIC, "Ask", "ask", body=Question, answers={200: ReplyJson, 204: None},
        parameters=(PATH, USER, FlagParameter("loud", "")),
    ),
    RouteSpec("GET", "/all", ADMINS, "All", "all", body=Nothing, answers={200: list[ReplyJson]}),
    RouteSpec("GET", "/any", SERVICES, "Any", "any", answers={200: dict}, media={"x/lines": LINES, "text/html": ""}),
    RouteSpec(WS, "/ws", SIGNED_IN, "a socket"),
]  # fmt: skip


def test_a_row_for_each_route_and_one_for_each_answer() -> None:
    assert table(SPECS).splitlines() == [
        "| route | who | takes | answers | what |",
        "|---|---|---|---|---|",
        "| `POST /ask/{path:path}` | anybody | `?userId=&loud=`, `{what, howOften?}` | 200 `Reply`, 204 | Ask |",
        "| `GET /all` | API token |  | 200 an array of `Reply` | All |",
        "| `GET /any` | internal token |  | 200 an object, `x/lines`, `text/html` | Any |",
        "| `WS /ws` | JWT |  |  | a socket |",
        "",
        "| answer | members |",
        "|---|---|",
        "| `Error` | `{error, code, stale?}` |",
        "| `Reply` | `{said, byWhom?}` |",
        "| `ReplyLine` | one of `Reply`, `Error` |",
    ]


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (PUBLIC, "anybody"),
        (OWN_PAGE, "a page of an allowed origin"),
        (SIGNED_IN, "JWT"),
        (OWNER, "owner's JWT"),
        (OWNER_OR_GUEST, "owner's JWT or a share"),
        (ADMINS_OR_OWNER, "API token or owner's JWT"),
        (RELAY_OR_OWNER, "relay secret or owner's JWT"),
        (LIFECYCLE, "lifecycle"),
        (LIFECYCLE_OR_GUEST, "lifecycle or a share"),
        (RoutePolicy(Accept.RELAY | Accept.ADMIN), "API token or relay secret"),
    ],
)
def test_who_may_is_said_in_words(policy: RoutePolicy, words: str) -> None:
    assert who(policy) == words
