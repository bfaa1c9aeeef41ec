"""The bodies of the larger requests as structs, and the checks that a struct cannot express. Code behind them may trust
the values. Pure.

Every refusal names the member and its expected value, and never repeats the given one: it may be a secret.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, get_args

import orjson
from msgspec import UNSET, Meta, UnsetType, convert

from gateway.agents.choice import WANTED, read_choice
from gateway.agents.config import NO_KEYS, SESSION_BYTES, BadConfig, keys_in, read_config
from gateway.agents.status import MODES, Mode
from gateway.agents.transcript import EXCHANGES
from gateway.config.values import number, positive_duration, size, whole
from gateway.egress import policy
from gateway.limits.network import NETWORKS
from gateway.limits.resources import MOST_CPUS, MOST_MEMORY, MOST_PIDS
from gateway.protocol.chat_frames import RESERVED_CIDS, is_content
from gateway.routing.bodies import bad_member, unknown_members
from gateway.routing.json_types import JsonBody, meaning, must, one_of, schema
from gateway.session.model.state import Wish
from sandbox.ports.images import A_REFERENCE, LONGEST, read_reference
from sandbox.ports.resources import LEAST_CPUS, LEAST_MEMORY, LEAST_PIDS, NO_LIMITS, ResourceLimits
from sandbox.protocol.agent_server import A_CONNECT, A_HEALTH, AgentServer, BadServer, read_server
from sandbox.protocol.terminal import MAX_SIDE, Size

ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
KIND = re.compile(r"[a-z][a-z0-9_]{0,63}")
RecordRole = Literal["user", "assistant", "system", "tool"]
MARKERS = ("duplicate", "rejected")  # types of the markers that take a missing record's place

ENV_COUNT = 256
ENV_BYTES = 256 * 1024
METADATA_BYTES = 16 * 1024
ARGUMENTS = 256
COMMAND_BYTES = 64 * 1024


SOME_ENV = f"an object with at most {ENV_COUNT} members"
SOME_METADATA = f"an object of at most {METADATA_BYTES} bytes"
LONGEST_EXTENSION = 30 * 86400  # seconds
A_COMMAND = "a command line, or an array of strings, with at least a program"
AN_AGENT = f"{WANTED}; an array of strings is a command, an object with command and connect is a server"
SERVER_MEMBERS = ("command", "connect", "health")
A_MODE = f"one of {', '.join(MODES)}, or null"
A_DURATION = "seconds above 0, or a duration such as 90s, 15m, 2h, 30d"
A_PATH = "a path of at most 4096 characters"
A_KIND = "a word of small letters, digits and underscores"
A_SIZE = f"given together, whole numbers from 1 to {MAX_SIDE}"
A_SIDE = f"a whole number from 1 to {MAX_SIDE}; cols and rows are given together"
TRUE_OR_FALSE = "true or false"
A_NETWORK = 'none, outbound, or {"allow": [hosts]}'
SOME_LIMITS = "an object with any of memory, cpus, pids"
A_BUDGET = "an object with any of usd, a number up to 1000000, and tokens, a whole number"
BUDGET: Mapping[str, tuple[Any, float]] = {"usd": (int | float, 10**6), "tokens": (int, 10**15)}
# Written and bounded as the settings HOLDFAST_LIMIT_* are.
LIMITS: Mapping[str, tuple[str, Callable[[str], float]]] = {
    "memory": (
        f"bytes, or a size such as 512MiB, of at least {LEAST_MEMORY >> 20} MiB",
        size(LEAST_MEMORY, MOST_MEMORY),
    ),
    "cpus": (f"a number of at least {LEAST_CPUS:g}", number(LEAST_CPUS, MOST_CPUS)),
    "pids": (f"a whole number of at least {LEAST_PIDS}", whole(LEAST_PIDS, MOST_PIDS)),
}


def a_text(longest: int) -> str:
    return f"a string of 1 to {longest} printable characters"


Env = Annotated[
    dict[str, Any] | None, must(SOME_ENV), schema(additionalProperties={"type": "string"}, maxProperties=ENV_COUNT)
]
Command = Annotated[Annotated[str, meaning("a command line")] | list[str] | None, must(A_COMMAND)]
AgentServerWish = Annotated[
    dict[str, Any],
    meaning("a program that listens: it is started, waited for, and spoken with over a WebSocket"),
    schema(
        properties={
            "command": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
            "connect": {"type": "string", "description": A_CONNECT},
            "health": {
                "type": "string",
                "description": f"{A_HEALTH}; left out: ready when connected to",
            },
        },
        required=["command", "connect"],
        additionalProperties=False,
    ),
]
AgentWish = Annotated[Annotated[str, meaning(WANTED)] | list[str] | AgentServerWish | None, must(AN_AGENT)]
Side = Annotated[Annotated[int, Meta(ge=1, le=MAX_SIDE)] | None, must(A_SIDE)]


Config = Annotated[
    dict[str, Any] | None,
    meaning("settings, agents_md and files of its agent, over its user's: as in PUT /api/config, at most 16 KiB"),
    must("an object with any of settings, agents_md, files"),
    schema(
        properties={
            "settings": {"type": "object"},
            "agents_md": {"type": "string"},
            "files": {"type": "array", "items": {"type": "object"}},
        },
        additionalProperties=False,
    ),
]


class ChangeBody(JsonBody):
    """A member that is left out stays; null removes it."""

    title: Annotated[Annotated[str, Meta(max_length=256)] | UnsetType | None, must(a_text(256))] = UNSET
    metadata: Annotated[
        dict[str, Any] | UnsetType | None, meaning("at most 16 KiB; replaces all of it"), must(SOME_METADATA)
    ] = UNSET
    sleep_after: Annotated[
        Annotated[float, Meta(gt=0)] | Annotated[str, schema(pattern="^[0-9.]+ *(ms|s|m|h|d)?$")] | UnsetType | None,
        meaning("idle seconds until it sleeps, or a duration such as 15m; null: as HOLDFAST_SLEEP_AFTER says"),
        must(A_DURATION),
    ] = UNSET
    mode: Annotated[
        Mode | UnsetType | None,
        meaning("what the agent may do without asking; null: as the agent has it"),
        must(A_MODE),
    ] = UNSET


class WishBody(ChangeBody):
    user_id: Annotated[
        Annotated[str, Meta(max_length=256)] | None,
        meaning("the owner; a service may leave it out: then it is the services'"),
        must(a_text(256)),
    ] = None
    env_vars: Env = None
    agent: AgentWish = None
    events: Annotated[
        Literal["all"] | None,
        meaning("all: other events of the agent come as agent_event frames; left out: they are only counted"),
        must("all, or left out"),
    ] = None
    network: Annotated[
        Annotated[str, one_of(*NETWORKS)] | dict[str, list[str]] | None,
        meaning('what its programs may reach: none, outbound (every public host), or {"allow": [hosts]}'),
        must(A_NETWORK),
    ] = None
    repo_url: Annotated[Annotated[str, Meta(max_length=2048)] | None, must(a_text(2048))] = None
    repo_branch: Annotated[Annotated[str, Meta(max_length=255)] | None, must(a_text(255))] = None
    provider: Annotated[
        Annotated[str, Meta(max_length=64)] | None,
        meaning("where it runs, one of HOLDFAST_PROVIDERS; left out: HOLDFAST_SANDBOX"),
        must(a_text(64)),
    ] = None
    image: Annotated[
        Annotated[str, Meta(max_length=LONGEST)] | None,
        meaning("the image of its sandbox, at provider docker; left out: HOLDFAST_DOCKER_IMAGE"),
        must(A_REFERENCE),
    ] = None
    config: Config = None
    limits: Annotated[
        dict[str, Any] | None,
        meaning(
            "what its sandbox may use: memory in bytes or as 512MiB, cpus, pids; left out: as HOLDFAST_LIMIT_* say"
        ),
        must(SOME_LIMITS),
        schema(
            properties={
                "memory": {"type": ["integer", "string", "null"]},
                "cpus": {"type": ["number", "null"]},
                "pids": {"type": ["integer", "null"]},
            },
            additionalProperties=False,
        ),
    ] = None
    budget: Annotated[
        dict[str, Any] | None,
        meaning("what it may spend on models in all: usd, tokens; left out: no limit of its own"),
        must(A_BUDGET),
        schema(
            properties={"usd": {"type": ["number", "null"]}, "tokens": {"type": ["integer", "null"]}},
            additionalProperties=False,
        ),
    ] = None


class WakeBody(JsonBody):
    config: Config = None


class ResumeBody(JsonBody):
    env_vars: Env = None
    empty: Annotated[bool, meaning("begin without files where none can be restored"), must(TRUE_OR_FALSE)] = False
    keep: Annotated[
        bool,
        meaning("go on with the files on the disk of an unrestored session of which the store has none"),
        must(TRUE_OR_FALSE),
    ] = False


class ExtendBody(JsonBody):
    seconds: Annotated[
        float,
        Meta(ge=1, le=LONGEST_EXTENSION),
        meaning("how long it waits at least, from now on"),
        must(f"a number of seconds from 1 to {LONGEST_EXTENSION}"),
    ]


class SizeBody(JsonBody):
    cols: Annotated[int, Meta(ge=1, le=MAX_SIDE), must(A_SIDE)]
    rows: Annotated[int, Meta(ge=1, le=MAX_SIDE), must(A_SIDE)]


class TerminalWishBody(JsonBody):
    command: Command = None
    env_vars: Env = None
    cwd: Annotated[
        Annotated[str, Meta(max_length=4096)] | None, meaning("below the workspace, or absolute"), must(A_PATH)
    ] = None
    cols: Side = None
    rows: Side = None


class Post(JsonBody):
    """A record that a service writes into a conversation."""

    role: Annotated[RecordRole, must(f"one of {', '.join(get_args(RecordRole))}")]
    content: Annotated[Any, must("given")]
    type: Annotated[str, Meta(pattern=f"^{KIND.pattern}$"), must(A_KIND)] = "message"
    metadata: Annotated[dict[str, Any] | None, must(SOME_METADATA)] = None
    cid: Annotated[
        Annotated[str, Meta(max_length=128)] | None,
        meaning("sent again, it gets the first answer again"),
        must(a_text(128)),
    ] = None
    deliver: Annotated[bool, meaning("hand it to the agent"), must(TRUE_OR_FALSE)] = False


def read_wish(body: WishBody) -> Wish:
    """The wish in a body. The caller reads `userId`."""
    network = None if body.network is None else _network(body.network)
    repo_url, repo_branch = _text("repoUrl", body.repo_url, 2048), _text("repoBranch", body.repo_branch, 255)
    if repo_branch is not None and repo_url is None:
        raise bad_member("repoBranch", "given together with repoUrl")
    command, agent_name, agent_server = read_agent(body.agent)
    return Wish(
        env=read_env(body.env_vars),
        agent=command,
        agent_name=agent_name,
        agent_server=agent_server,
        mode=body.mode or None,
        events=body.events,
        network=network,
        config=read_session_config(body.config),
        repo_url=repo_url,
        repo_branch=repo_branch,
        title=_text("title", body.title, 256),
        metadata=_metadata(body.metadata),
        sleep_after=_sleep_after(body.sleep_after),
        limits=_limits(body.limits),
        budget=_budget(body.budget),
        provider=_text("provider", body.provider, 64),
        image=_image(body.image),
    )


def _network(wanted: Any) -> str:
    """As settings and stored sessions have it."""
    try:
        return policy.text(policy.parse_network(wanted))
    except policy.BadHost as exc:
        raise bad_member("network", f"{A_NETWORK}: {exc}") from exc


def read_session_config(value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A session's own configuration, as its spec keeps it. Keys are refused: it would be shown, and be in sandboxes."""
    if value is None:
        return None
    try:
        config = read_config(value, most=SESSION_BYTES)
    except BadConfig as error:
        raise bad_member(f"config.{error.member}".removeprefix("config.config."), error.wanted) from None
    if keys_in(config.settings):
        raise bad_member("config.settings", NO_KEYS)
    kept: dict[str, Any] = orjson.loads(config.canonical())
    return kept


def read_change(body: ChangeBody) -> dict[str, Any]:
    """The changed members of a session's spec. Null removes a title, the metadata, an idle time."""
    changes: dict[str, Any] = {}
    if body.title is not UNSET:
        changes["title"] = _text("title", body.title, 256)
    if body.metadata is not UNSET:
        changes["metadata"] = _metadata(body.metadata) or {}
    if body.sleep_after is not UNSET:
        changes["sleep_after"] = _sleep_after(body.sleep_after)
    if body.mode is not UNSET:
        changes["mode"] = body.mode
    return changes


def read_env(env: Mapping[str, Any] | None) -> dict[str, str]:
    """`envVars`: a flat object of names and strings, as a process environment can hold them."""
    if env is None:
        return {}
    if len(env) > ENV_COUNT:
        raise bad_member("envVars", SOME_ENV)
    size = 0
    for name, value in env.items():
        if not ENV_NAME.fullmatch(name):
            wanted = "named like A_NAME: letters, digits and underscores, not beginning with a digit"
            raise bad_member("envVars", wanted)
        if not isinstance(value, str) or "\0" in value:
            raise bad_member(f"envVars.{name}", "a string without NUL")
        size += len(name) + len(value.encode())
    if size > ENV_BYTES:
        raise bad_member("envVars", f"at most {ENV_BYTES} bytes in all")
    return dict(env)


def read_user(body: WishBody) -> str | None:
    return _text("userId", body.user_id, 256)


def check_post(post: Post) -> None:
    """Check the rules of a record that a struct cannot express."""
    if not KIND.fullmatch(post.type):
        raise bad_member("type", A_KIND)
    if post.deliver:
        _check_deliverable(post.type, post.content)
    cid = _text("cid", post.cid, 128)
    if cid is not None and cid.startswith(RESERVED_CIDS):
        raise bad_member("cid", f"of your own: it may not begin with {', '.join(RESERVED_CIDS)}")
    if post.type in MARKERS:
        raise bad_member("type", f"of your own: {' and '.join(MARKERS)} mark what is not there")
    _metadata(post.metadata)


def _check_deliverable(kind: str, content: Any) -> None:
    """A delivered record is stored first and delivered later: one that an agent cannot be given is refused here."""
    if kind in EXCHANGES:  # an agent that read one would take it for an answer
        raise bad_member("deliver", f"left out for type {kind}: browsers answer, over the chat socket")
    if kind == "raw" and (not isinstance(content, str) or not content or "\n" in content or "\r" in content):
        raise bad_member("content", "one line of text, to be delivered as type raw")
    if kind == "message" and not is_content(content):
        raise bad_member("content", "a string or an array of parts, each an object with a type")


def read_directory(cwd: str | None) -> str | None:
    if cwd is not None and "\0" in cwd:
        raise bad_member("cwd", A_PATH)
    return cwd or None


def read_size(cols: int | None, rows: int | None) -> Size | None:
    if cols is None and rows is None:
        return None
    if cols is None or rows is None:
        raise bad_member("cols and rows", A_SIZE)
    return Size(cols, rows)


def read_command(member: str, value: str | list[str] | None) -> tuple[str, ...] | None:
    """The program of an agent or a terminal, with its arguments."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError as error:
            raise bad_member(member, f"a command line ({error})") from None
    if not 0 < len(value) <= ARGUMENTS or not value[0]:
        raise bad_member(member, A_COMMAND)
    if not all(len(each) <= 8192 and "\0" not in each for each in value):
        raise bad_member(member, A_COMMAND)
    if sum(len(each.encode()) for each in value) > COMMAND_BYTES:
        raise bad_member(member, f"at most {COMMAND_BYTES} bytes in all")
    return tuple(value)


def read_agent(
    value: str | list[str] | dict[str, Any] | None,
) -> tuple[tuple[str, ...] | None, str | None, AgentServer | None]:
    """A command, or the name of an agent as `read_choice` reads it, or a server. A list of words is a command. An
    object is a command that is a server, with its address."""
    if isinstance(value, dict):
        return _agent_server(value)
    if not isinstance(value, str):
        return read_command("agent", value), None, None
    try:
        choice = read_choice(value)
    except ValueError as error:
        raise bad_member("agent", str(error).removeprefix("wants ")) from None
    command = read_command("agent", list(choice.command)) if choice.command else None
    return (command, None, choice.server) if choice.is_plain_command else (None, choice.said, None)


def _agent_server(value: dict[str, Any]) -> tuple[tuple[str, ...], None, AgentServer]:
    if unknown := sorted(value.keys() - set(SERVER_MEMBERS)):
        raise unknown_members([f"agent.{name}" for name in unknown], [f"agent.{name}" for name in SERVER_MEMBERS])
    said = value.get("command")
    is_command = isinstance(said, str) or (isinstance(said, list) and all(isinstance(each, str) for each in said))
    command = read_command("agent.command", said) if is_command else None
    if command is None:
        raise bad_member("agent.command", A_COMMAND)
    health = value.get("health")
    try:
        return command, None, read_server(value.get("connect"), "" if health is None else health)
    except BadServer as error:
        raise bad_member(f"agent.{error.member}", error.wanted) from None


def _metadata(value: dict[str, Any] | UnsetType | None) -> dict[str, Any] | None:
    if value is None or value is UNSET:
        return None
    try:
        long = len(orjson.dumps(value)) > METADATA_BYTES
    except TypeError:  # JSON knows whole numbers that cannot be stored
        raise bad_member("metadata", f"{SOME_METADATA}, with whole numbers of at most 64 bits") from None
    if long:
        raise bad_member("metadata", SOME_METADATA)
    return value


def _sleep_after(value: float | str | UnsetType | None) -> float | None:
    """In seconds, written and bounded as HOLDFAST_SLEEP_AFTER is."""
    if value is None or value is UNSET:
        return None
    try:
        return positive_duration(value if isinstance(value, str) else f"{value:f}")
    except (ValueError, OverflowError):
        raise bad_member("sleepAfter", A_DURATION) from None


def _limits(value: dict[str, Any] | None) -> ResourceLimits:
    if not value:
        return NO_LIMITS
    if unknown := sorted(value.keys() - LIMITS.keys()):
        raise unknown_members([f"limits.{name}" for name in unknown], [f"limits.{name}" for name in LIMITS])
    return convert({name: _limit(name, each) for name, each in value.items() if each is not None}, ResourceLimits)


def _budget(value: dict[str, Any] | None) -> dict[str, float] | None:
    if not value:
        return None
    if unknown := sorted(value.keys() - BUDGET.keys()):
        raise unknown_members([f"budget.{name}" for name in unknown], [f"budget.{name}" for name in BUDGET])
    for name, each in value.items():
        kind, most = BUDGET[name]
        if each is not None and (isinstance(each, bool) or not isinstance(each, kind) or not 0 <= each <= most):
            raise bad_member(f"budget.{name}", A_BUDGET)
    return {name: each for name, each in value.items() if each is not None} or None


def _limit(name: str, value: Any) -> float:
    wanted, read = LIMITS[name]
    kinds = (int, str) if name == "memory" else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise bad_member(f"limits.{name}", wanted)
    try:
        return read(value if isinstance(value, str) else f"{value:.9f}".rstrip("0").rstrip("."))
    except (ValueError, OverflowError):
        raise bad_member(f"limits.{name}", wanted) from None


def _image(value: str | None) -> str | None:
    if value is None:
        return None
    try:
        read_reference(value)
    except ValueError:
        raise bad_member("image", A_REFERENCE) from None
    return value


def _text(name: str, value: str | UnsetType | None, longest: int) -> str | None:
    if value is None or value is UNSET:
        return None
    if not 0 < len(value) <= longest or not value.isprintable():
        raise bad_member(name, a_text(longest))
    return value
