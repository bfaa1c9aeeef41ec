"""What a request body may ask for, member by member: checked here, so that everything behind may trust it. Pure.

Every refusal names the member and what it should have been, and never repeats a value: it may be a secret.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from gateway.config.values import positive_duration
from gateway.limits.network import NETWORKS
from gateway.protocol.chat_frames import RESERVED_CIDS, is_content
from gateway.protocol.errors import ApiError
from gateway.session.model.state import Wish
from sandbox.protocol.terminal import MAX_SIDE, Size

CHANGE_MEMBERS = frozenset({"title", "metadata", "sleepAfter"})
CREATE_MEMBERS = CHANGE_MEMBERS | {"userId", "envVars", "agent", "network", "repoUrl", "repoBranch"}
RESUME_MEMBERS = frozenset({"envVars", "empty", "keep"})
POST_MEMBERS = frozenset({"role", "type", "content", "metadata", "cid", "deliver"})

ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
KIND = re.compile(r"[a-z][a-z0-9_]{0,63}")
ROLES = ("user", "assistant", "system", "tool")
# Written by the gateway about what an agent asked and was answered: an agent that read one would take it for an answer.
EXCHANGES = ("permission_request", "permission_response", "question", "question_answer")
MARKERS = ("duplicate", "rejected")  # types of what stands where a record does not

ENV_COUNT = 256
ENV_BYTES = 256 * 1024
METADATA_BYTES = 16 * 1024
ARGUMENTS = 256
COMMAND_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class PostedRecord:
    """A record that a service writes into a conversation."""

    role: str
    type: str
    content: Any
    metadata: dict[str, Any] | None
    cid: str | None
    deliver: bool


def read_wish(body: Mapping[str, Any]) -> Wish:
    """What to create a session with. `userId` is the route's business."""
    network = body.get("network")
    if network is not None and network not in NETWORKS:
        raise _bad("network", f"one of {', '.join(NETWORKS)}")
    repo_url, repo_branch = _text(body, "repoUrl", 2048), _text(body, "repoBranch", 255)
    if repo_branch is not None and repo_url is None:
        raise _bad("repoBranch", "given together with repoUrl")
    return Wish(
        env=read_env(body),
        agent=_command(body.get("agent"), "agent"),
        network=network,
        repo_url=repo_url,
        repo_branch=repo_branch,
        title=_text(body, "title", 256),
        metadata=_metadata(body),
        sleep_after=_sleep_after(body),
    )


def read_change(body: Mapping[str, Any]) -> dict[str, Any]:
    """What is to change, as members of a session's spec. Null takes a title, the metadata, an idle time away."""
    changes: dict[str, Any] = {}
    if "title" in body:
        changes["title"] = _text(body, "title", 256)
    if "metadata" in body:
        changes["metadata"] = _metadata(body) or {}
    if "sleepAfter" in body:
        changes["sleep_after"] = _sleep_after(body)
    return changes


def read_env(body: Mapping[str, Any]) -> dict[str, str]:
    """`envVars`: a flat object of names and strings, as a process environment can hold them."""
    env = body.get("envVars")
    if env is None:
        return {}
    if not isinstance(env, dict) or len(env) > ENV_COUNT:
        raise _bad("envVars", f"an object with at most {ENV_COUNT} members")
    size = 0
    for name, value in env.items():
        if not ENV_NAME.fullmatch(name):
            raise _bad("envVars", "named like A_NAME: letters, digits and underscores, not beginning with a digit")
        if not isinstance(value, str) or "\0" in value:
            raise _bad(f"envVars.{name}", "a string without NUL")
        size += len(name) + len(value.encode())
    if size > ENV_BYTES:
        raise _bad("envVars", f"at most {ENV_BYTES} bytes in all")
    return dict(env)


def read_user(body: Mapping[str, Any]) -> str | None:
    return _text(body, "userId", 256)


def read_post(body: Mapping[str, Any]) -> PostedRecord:
    if body.get("role") not in ROLES:
        raise _bad("role", f"one of {', '.join(ROLES)}")
    kind = body.get("type", "message")
    if not isinstance(kind, str) or not KIND.fullmatch(kind):
        raise _bad("type", "a word of small letters, digits and underscores")
    if "content" not in body:
        raise _bad("content", "given")
    deliver = body.get("deliver", False)
    if not isinstance(deliver, bool):
        raise _bad("deliver", "true or false")
    if deliver:
        _check_deliverable(kind, body["content"])
    cid = _text(body, "cid", 128)
    if cid is not None and cid.startswith(RESERVED_CIDS):
        raise _bad("cid", f"of your own: it may not begin with {', '.join(RESERVED_CIDS)}")
    if kind in MARKERS:
        raise _bad("type", f"of your own: {' and '.join(MARKERS)} mark what is not there")
    return PostedRecord(body["role"], kind, body["content"], _metadata(body), cid, deliver)


def _check_deliverable(kind: str, content: Any) -> None:
    """What is delivered is stored first and handed over later: what an agent cannot be given is refused here."""
    if kind in EXCHANGES:
        raise _bad("deliver", f"left out for type {kind}: browsers answer, over the chat socket")
    if kind == "raw" and (not isinstance(content, str) or not content or "\n" in content or "\r" in content):
        raise _bad("content", "one line of text, to be delivered as type raw")
    if kind == "message" and not is_content(content):
        raise _bad("content", "a string or an array of parts, each an object with a type")


def read_command(body: Mapping[str, Any]) -> tuple[str, ...] | None:
    """A terminal's program, written like an agent's."""
    return _command(body.get("command"), "command")


def read_size(body: Mapping[str, Any]) -> Size | None:
    given = [body.get(name) for name in ("cols", "rows")]
    if given == [None, None]:
        return None
    sides = [side for side in given if type(side) is int and 1 <= side <= MAX_SIDE]
    if len(sides) != 2:
        raise _bad("cols and rows", f"given together, whole numbers from 1 to {MAX_SIDE}")
    return Size(*sides)


def _command(value: Any, member: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    wanted = "a command line, or an array of strings, with at least a program"
    if isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError as error:
            raise _bad(member, f"a command line ({error})") from None
    if not isinstance(value, list) or not 0 < len(value) <= ARGUMENTS:
        raise _bad(member, wanted)
    if not all(isinstance(each, str) and len(each) <= 8192 and "\0" not in each for each in value) or not value[0]:
        raise _bad(member, wanted)
    if sum(len(each.encode()) for each in value) > COMMAND_BYTES:
        raise _bad(member, f"at most {COMMAND_BYTES} bytes in all")
    return tuple(value)


def _metadata(body: Mapping[str, Any]) -> dict[str, Any] | None:
    value = body.get("metadata")
    if value is None:
        return None
    if not isinstance(value, dict) or len(orjson.dumps(value)) > METADATA_BYTES:
        raise _bad("metadata", f"an object of at most {METADATA_BYTES} bytes")
    return value


def _sleep_after(body: Mapping[str, Any]) -> float | None:
    """In seconds, written and bounded as HOLDFAST_SLEEP_AFTER is."""
    value = body.get("sleepAfter")
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        return positive_duration(f"{value:f}" if number else value if isinstance(value, str) else "")
    except (ValueError, OverflowError):
        raise _bad("sleepAfter", "seconds above 0, or a duration such as 90s, 15m, 2h, 30d") from None


def _text(body: Mapping[str, Any], name: str, longest: int) -> str | None:
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= longest or not value.isprintable():
        raise _bad(name, f"a string of 1 to {longest} printable characters")
    return value


def _bad(member: str, wanted: str) -> ApiError:
    return ApiError(400, "bad_member", f"{member} must be {wanted}")
