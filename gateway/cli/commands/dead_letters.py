"""`holdfast dead-letters`: lists, retries and drops records that the store refused, through the running gateway."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from gateway.cli.client.api import CommandFailed, GatewayApi, find_gateway
from gateway.cli.commands.chat_view import plain_text
from gateway.cli.console.output import agreed, complain, say
from gateway.config.settings import Settings, resolve_secrets
from gateway.protocol.text import visible, visible_line

PAGE = 100
LETTERS = "/internal/dead-letters"
NONE = "no dead letters"


@dataclass(frozen=True, slots=True)
class DeadLetterChoice:
    """Either one letter, or all (of one session)."""

    number: int | None
    session_id: str | None = None


async def list_letters(settings: Settings, *, url: str | None, session_id: str | None, as_json: bool) -> int:
    async with _api(settings, url) as api:
        found = False
        async for letter in _letters(api, session_id):
            found = True
            say(json.dumps(letter) if as_json else brief(letter))
    if not found and not as_json:
        say(NONE)
    return 0


async def show_letter(settings: Settings, *, url: str | None, number: int, as_json: bool) -> int:
    async with _api(settings, url) as api:
        letter = await api.ask("GET", f"{LETTERS}/{number}")
    say(json.dumps(letter) if as_json else full(letter))
    return 0


async def retry_letters(settings: Settings, *, url: str | None, chosen: DeadLetterChoice) -> int:
    """Return 0 if every one of them is settled, 1 if one is still dead."""
    still_dead = False
    async with _api(settings, url) as api:
        numbers = await _numbers(api, chosen)
        for number in numbers:
            result = await _unless_gone(api, "POST", f"{LETTERS}/{number}/retry", alone=chosen.number is not None)
            say(f"{number}: {outcome_in_words(result)}")
            still_dead |= result is not None and result["outcome"] in ("dead", "rejected")
    if not numbers:
        say(NONE)
    return int(still_dead)


async def drop_letters(settings: Settings, *, url: str | None, chosen: DeadLetterChoice, sure: bool) -> int:
    async with _api(settings, url) as api:
        numbers = await _numbers(api, chosen)
        if not numbers:
            say(NONE)
            return 0
        what = f"dead letter {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} dead letters"
        if not sure and not agreed(f"Drop {what} for good? Its content is lost. [y/N] ", "drop"):
            complain("nothing was dropped")
            return 1
        for number in numbers:
            result = await _unless_gone(api, "DELETE", f"{LETTERS}/{number}", alone=chosen.number is not None)
            say(f"{number}: {'dropped' if result else 'was gone already'}")
    return 0


def brief(letter: dict[str, Any]) -> str:
    """One letter on one line."""
    place = f"{letter['sessionId']} #{letter['seq']}"
    return visible_line(
        f"{letter['number']:>6}  {letter['buriedAt']}  {place}  {letter['role']} {letter['type']}, "
        f"{letter['bytes']} bytes: {letter['reason']}"
    )


def full(letter: dict[str, Any]) -> str:
    rows = {
        "dead letter": letter["number"],
        "session": letter["sessionId"],
        "seq": letter["seq"],
        "cid": letter["cid"],
        "is": f"{letter['role']} {letter['type']}, {letter['bytes']} bytes",
        "created": letter["createdAt"] or "at an unknown time",
        "refused": letter["buriedAt"],
        "reason": letter["reason"],
    }
    if "payload" in letter:
        rows["payload"] = f"(unreadable; base64) {letter['payload']}"
    head = "\n".join(f"{name + ':':<13}{visible_line(str(value))}" for name, value in rows.items())
    content = letter.get("content")
    text = plain_text(content) if isinstance(content, str | list) else json.dumps(content, ensure_ascii=False)
    body = "".join(f"\n  {line}" for line in visible(text).split("\n")) if content is not None else ""
    metadata = letter.get("metadata")
    return head + (f"\nmetadata:    {visible_line(json.dumps(metadata))}" if metadata else "") + body


def outcome_in_words(result: dict[str, Any] | None) -> str:
    match result:
        case None:
            return "was gone already"
        case {"outcome": "stored", "seq": seq}:
            return f"stored in its place, seq {seq}"
        case {"outcome": "duplicate", "first": first}:
            return f"needed no more: the same message was stored meanwhile, seq {first}"
        case {"outcome": "dead", "reason": reason}:
            return visible_line(f"still refused: {reason}")
        case {"outcome": "rejected", "reason": reason}:
            return visible_line(f"cannot be stored any more: {reason}; look at it with show, then drop it")
    return visible_line(f"the gateway says {result.get('outcome')}")


def _api(settings: Settings, url: str | None) -> GatewayApi:
    token = resolve_secrets(settings).internal_token.get_secret_value()
    return GatewayApi(find_gateway(settings, url), lambda: {"X-Service-Token": token})


async def _letters(api: GatewayApi, session_id: str | None) -> AsyncIterator[dict[str, Any]]:
    only = {} if session_id is None else {"sessionId": session_id}
    after: int | None = 0
    while after is not None:
        page = await api.ask("GET", LETTERS, params={"after": after, "limit": PAGE, **only})
        for letter in page["deadLetters"]:
            yield letter
        after = page["next"]


async def _numbers(api: GatewayApi, chosen: DeadLetterChoice) -> list[int]:
    if chosen.number is not None:
        return [chosen.number]
    return [letter["number"] async for letter in _letters(api, chosen.session_id)]


async def _unless_gone(api: GatewayApi, method: str, path: str, *, alone: bool) -> dict[str, Any] | None:
    """One of many may have gone meanwhile; a single requested one must be there."""
    try:
        return await api.ask(method, path)
    except CommandFailed as failure:
        if failure.code == "unknown_letter" and not alone:
            return None
        raise
