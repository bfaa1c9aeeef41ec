"""Who asked is answered once, with the status that the code has."""

import ast
import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.protocol.errors import ApiError
from gateway.session.sandbox import lifecycle
from gateway.session.sandbox.lifecycle import effects as do
from gateway.session.sandbox.requests import HTTP_STATUS, LifeRequests, api_error

pytestmark = pytest.mark.virtual_time

CAUSES = {"start_failed", "not_stopped", "not_destroyed", "not_put_back"}  # who asked gets the error itself
CODE = re.compile(r"[a-z]+(_[a-z]+)*")


def refused_with() -> Iterator[str]:
    """Every code that the table refuses with: what is given to `refuse`, and pairs of a code and a text."""
    for module in Path(str(lifecycle.__file__)).parent.glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            said: list[ast.expr] = []
            if isinstance(node, ast.Call) and "refuse" in ast.unparse(node.func):
                said = node.args
            elif isinstance(node, ast.Tuple) and len(node.elts) == 2:
                said = node.elts[:1]
            yield from (each.value for each in said if isinstance(each, ast.Constant) and isinstance(each.value, str))


def test_every_refusal_has_a_status() -> None:
    codes = {code for code in refused_with() if CODE.fullmatch(code)}
    assert {"busy", "archived", "sandbox_unavailable"} <= codes
    assert codes <= set(HTTP_STATUS) | CAUSES
    assert {api_error(code, "x").status for code in codes - CAUSES} == {409, 429, 503}


async def test_who_asked_is_answered_once() -> None:
    requests = LifeRequests()
    first, answered = requests.open("note")
    assert requests.note(first) == "note"
    requests.answer(do.Answer(first))
    requests.refuse(do.RefuseAsk(first, "busy", "too late"), None)
    await answered
    requests.close(first)
    assert requests.note(first) is None
    requests.answer(do.Answer(first))


async def test_who_is_refused_hears_the_cause_or_the_code() -> None:
    requests = LifeRequests()
    (first, refused), (second, broken), (_, left) = (requests.open() for _ in range(3))
    requests.refuse(do.RefuseAsk(first, "paused", "resume it"), None)
    requests.refuse(do.RefuseAsk(second, "not_destroyed", "it failed"), OSError("injected"))
    requests.refuse_all()
    outcomes = await asyncio.gather(refused, broken, left, return_exceptions=True)
    paused, injected, failed = outcomes
    assert isinstance(paused, ApiError)
    assert isinstance(failed, ApiError)
    assert (paused.status, paused.code, str(paused)) == (409, "paused", "resume it")
    assert isinstance(injected, OSError)
    assert failed.code == "session_failed"
