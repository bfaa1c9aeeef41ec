"""How a user's agents are configured: what is kept, and what of it each agent is given. Pure.

`settings` is a free object, `agents_md` a text that every agent reads, `files` are agents, commands and skills. They
are kept per user; a session may lay its own over them. For another system's clients there is also the way between its
map of credentials and opencode's configuration, in both directions.

Keys do not belong here: what is kept is shown again, and written into sandboxes.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import orjson

SETTINGS_BYTES = 64 * 1024
AGENTS_MD_BYTES = 128 * 1024
FILE_BYTES = 64 * 1024
MOST_FILES = 64
CONFIG_BYTES = 256 * 1024  # all of it
SESSION_BYTES = 16 * 1024  # of a session's own: it is kept with the session
MOST_ARGUMENTS = 256

SOME_SETTINGS = f"an object of at most {SETTINGS_BYTES >> 10} KiB, with whole numbers of at most 64 bits"
A_TEXT = f"a text of at most {AGENTS_MD_BYTES >> 10} KiB, without NUL"
SOME_FILES = f"a list of at most {MOST_FILES} objects, each with type, name, extension and content"
A_TYPE = "a word of small letters, digits, - and _, such as agent or command"
A_NAME = "1 to 64 letters, digits, ., - and _, beginning with a letter or a digit"
AN_EXTENSION = "1 to 16 letters and digits, such as md"
A_CONTENT = f"a text of at most {FILE_BYTES >> 10} KiB, without NUL"
ALL_OF_IT = f"at most {CONFIG_BYTES >> 10} KiB in all"
NO_KEYS = "without keys: set them by PUT /api/credentials/{provider}"

_TYPE = re.compile(r"[a-z][a-z0-9_-]{0,31}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_EXTENSION = re.compile(r"[A-Za-z0-9]{1,16}", re.ASCII)
_TOML_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_FILE_MEMBERS = ("type", "name", "extension", "content")


class BadConfig(Exception):
    """`member` must be `wanted`."""

    def __init__(self, member: str, wanted: str) -> None:
        super().__init__(f"{member} must be {wanted}")
        self.member = member
        self.wanted = wanted


class AgentConfigFile(msgspec.Struct, frozen=True):
    type: str
    name: str
    extension: str
    content: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.type, self.name, self.extension


class AgentConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    settings: dict[str, Any] = {}
    agents_md: str = ""
    files: tuple[AgentConfigFile, ...] = ()

    def over(self, base: "AgentConfig") -> "AgentConfig":
        """This one laid over `base`: members of the settings, the text if there is one, files by their names."""
        files = {each.key: each for each in (*base.files, *self.files)}
        return AgentConfig({**base.settings, **self.settings}, self.agents_md or base.agents_md, tuple(files.values()))

    def canonical(self) -> bytes:
        """The same bytes for the same configuration, however it was written."""
        files = sorted(self.files, key=lambda each: each.key)
        members = {
            "settings": self.settings,
            "agents_md": self.agents_md,
            "files": [msgspec.structs.asdict(each) for each in files],
        }
        return orjson.dumps(members, option=orjson.OPT_SORT_KEYS)

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.canonical()).hexdigest()


NOTHING = AgentConfig()


# -- what clients send ------------------------------------------------------------------------------------------------


def read_config(value: Mapping[str, Any], *, most: int = CONFIG_BYTES) -> AgentConfig:
    """Raises BadConfig. A member that is absent or null is empty."""
    if unknown := sorted(value.keys() - {"settings", "agents_md", "files"}):
        raise BadConfig(unknown[0][:40], "left out: a configuration has settings, agents_md and files")
    settings, text, files = (
        empty if value.get(name) is None else value[name]
        for name, empty in (("settings", {}), ("agents_md", ""), ("files", []))
    )
    if not isinstance(settings, dict) or _size(settings) > SETTINGS_BYTES:
        raise BadConfig("settings", SOME_SETTINGS)
    if not _is_text(text, AGENTS_MD_BYTES):
        raise BadConfig("agents_md", A_TEXT)
    config = AgentConfig(settings, text, _files(files))
    if len(config.canonical()) > most:
        raise BadConfig("config", f"at most {most >> 10} KiB in all")
    return config


def from_kept(body: bytes) -> AgentConfig:
    return msgspec.json.decode(body, type=AgentConfig)


def _files(value: Any) -> tuple[AgentConfigFile, ...]:
    if not isinstance(value, list) or len(value) > MOST_FILES:
        raise BadConfig("files", SOME_FILES)
    files = [_file(each) for each in value]
    if len({each.key for each in files}) < len(files):
        raise BadConfig("files", "different in type, name or extension")
    return tuple(files)


def _file(value: Any) -> AgentConfigFile:
    if not isinstance(value, dict) or set(value) != set(_FILE_MEMBERS):
        raise BadConfig("files", SOME_FILES)
    for member, pattern, wanted in (
        ("type", _TYPE, A_TYPE), ("name", _NAME, A_NAME), ("extension", _EXTENSION, AN_EXTENSION),
    ):  # fmt: skip
        if not isinstance(value[member], str) or not pattern.fullmatch(value[member]):
            raise BadConfig(f"files.{member}", wanted)
    if not _is_text(value["content"], FILE_BYTES):
        raise BadConfig("files.content", A_CONTENT)
    return AgentConfigFile(**value)


def _is_text(value: Any, most: int) -> bool:
    try:
        return isinstance(value, str) and "\0" not in value and len(value.encode()) <= most
    except UnicodeEncodeError:
        return False


def _size(settings: Any) -> float:
    try:
        return len(orjson.dumps(settings))
    except TypeError:  # JSON knows numbers, and depths, that cannot be kept
        return float("inf")


# -- between a map of credentials and opencode's configuration --------------------------------------------------------

Credentials = Mapping[str, Mapping[str, Any]]


def to_opencode(credentials: Credentials, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What opencode takes: the keys of type `api`, and the settings laid over the top level. OAuth tokens are left out:
    they want to be refreshed."""
    keys = {name: each["key"] for name, each in credentials.items() if each.get("type") == "api" and each.get("key")}
    provider = {name: {"options": {"apiKey": key}} for name, key in keys.items()}
    return {**({"provider": provider} if provider else {}), **settings}


def to_agentpod(config: Mapping[str, Any], before: Credentials) -> dict[str, dict[str, Any]]:
    """The map of credentials that the configuration says, in place of `before`: what is no key with a value there stays
    as it was."""
    kept = {name: dict(each) for name, each in before.items() if each.get("type") != "api" or not each.get("key")}
    return kept | {name: {"type": "api", "key": key} for name, key in keys_in(config).items()}


def keys_in(config: Mapping[str, Any]) -> dict[str, str]:
    """The keys that a configuration holds, by provider."""
    found = {}
    for name, each in _object(config.get("provider")).items():
        key = _object(_object(each).get("options")).get("apiKey")
        if isinstance(key, str) and key:
            found[name] = key
    return found


def without_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """The same without the keys. A provider of which nothing else is said is left out."""
    if not keys_in(config):
        return dict(config)
    provider = {name: _without_key(each) for name, each in config["provider"].items()}
    provider = {name: each for name, each in provider.items() if each != {}}
    rest = {name: each for name, each in config.items() if name != "provider"}
    return {**rest, **({"provider": provider} if provider else {})}


def _without_key(provider: Any) -> Any:
    options = _object(_object(provider).get("options"))
    if "apiKey" not in options:
        return provider
    rest = {name: each for name, each in options.items() if name != "apiKey"}
    kept = {name: each for name, each in provider.items() if name != "options"}
    return {**kept, **({"options": rest} if rest else {})}


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


# -- what an agent is given -------------------------------------------------------------------------------------------


class _Place(msgspec.Struct, frozen=True):
    """Where an agent looks, below HOME. `files` has by type a directory, or a path in which {} stands for the name."""

    agents_md: str
    settings: str = ""
    files: Mapping[str, str] = {}
    any_type: str = ""  # where files of further types go; {} stands for the type


_PLACES = {
    "claude-code": _Place(
        ".claude/CLAUDE.md",
        ".claude/settings.json",
        {"agent": ".claude/agents", "command": ".claude/commands", "skill": ".claude/skills/{}/SKILL"},
    ),
    "codex": _Place(".codex/AGENTS.md", "", {"command": ".codex/prompts"}),
    "pi": _Place(".pi/AGENTS.md", ".pi/settings.json", {"command": ".pi/prompts", "skill": ".pi/skills/{}/SKILL"}),
    "opencode": _Place(
        ".config/opencode/AGENTS.md",
        ".config/opencode/opencode.json",
        {"skill": ".config/opencode/skill/{}/SKILL"},
        ".config/opencode/{}",
    ),
    "gemini": _Place(".gemini/GEMINI.md", ".gemini/settings.json", {"command": ".gemini/commands"}),
}


def settings_for(agent: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """An agent's own part, under its name; without one, all that is no agent's own."""
    own = settings.get(agent)
    if isinstance(own, dict):
        return own
    return {name: each for name, each in settings.items() if name not in _PLACES}


def home_files(agent: str, config: AgentConfig) -> list[tuple[str, str]]:
    """Paths below HOME and what is written there. Nothing for an agent that is not known: it has its own ways."""
    place = _PLACES.get(agent)
    if place is None:
        return []
    files = [(place.agents_md, config.agents_md)] if config.agents_md else []
    if place.settings and (settings := settings_for(agent, config.settings)):
        files.append((place.settings, orjson.dumps(settings, option=orjson.OPT_INDENT_2).decode() + "\n"))
    return [*files, *((path, each.content) for each in config.files if (path := _path(place, each)))]


def _path(place: _Place, file: AgentConfigFile) -> str:
    directory = place.files.get(file.type) or place.any_type.format(file.type)
    if not directory:
        return ""
    whole = directory.format(file.name) if "{}" in directory else f"{directory}/{file.name}"
    return f"{whole}.{file.extension}"


def arguments(agent: str, config: AgentConfig) -> tuple[str, ...]:
    """What an agent takes on its command line, where a file would replace what Holdfast tells it: codex."""
    if agent != "codex":
        return ()
    leaves = list(_leaves((), settings_for(agent, config.settings)))[: MOST_ARGUMENTS // 2]
    return tuple(word for path, value in leaves for word in ("-c", f"{'.'.join(path)}={value}"))


def _leaves(path: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, dict):
        for name, each in value.items():
            if _TOML_KEY.fullmatch(name):
                yield from _leaves((*path, name), each)
    elif value is not None:
        yield path, toml(value)


def toml(value: Any) -> str:
    """A value as TOML writes it in one line. A null in an array or a table is left out."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case dict():
            members = [f"{toml(name)} = {toml(each)}" for name, each in value.items() if each is not None]
            return "{" + ", ".join(members) + "}"
        case Sequence():
            return "[" + ", ".join(toml(each) for each in value if each is not None) + "]"
    return repr(value)
