"""The file that `holdfast init` writes: the chosen settings, and the most often changed ones as comments. Pure."""

import json
import re
from collections.abc import Mapping

from gateway.config.descriptions import BUCKET, DESCRIPTIONS, default_of, plain
from gateway.config.settings import BUCKET_NAMES, KNOWN, PREFIX

_BARE = re.compile(r"\d{1,15}(\.\d{1,9})?|true|false")
_HEAD = """\
# Settings of a Holdfast gateway. The environment wins: HOLDFAST_PORT counts before `port`.
# A line that begins with # shows a default. `holdfast settings` lists all settings with the values in use.
# Paths start where this file is.
"""
PARTS = {
    "Data": ("data_dir", "store", "objects", *(name.lower() for name in BUCKET_NAMES)),
    "Network": ("host", "port", "allowed_origins", "trusted_proxies"),
    "Sessions": ("sandbox", "docker_image", "agent", "network", "sleep_after"),
    "Limits of one user": ("max_running_per_user", "max_stored_per_user", "limit_memory", "limit_cpus"),
    "Tokens: those that are not set are made in the data directory, in `secrets`, readable by their owner alone": (
        "jwt_secret", "api_token", "internal_token", "relay_secret", "vault_key", "jwt_jwks_url", "jwt_issuer",
        "jwt_audience",
    ),
    "Log": ("log_level",),
}  # fmt: skip


def new_file(chosen: Mapping[str, str]) -> str:
    """`chosen` has texts by the names of the environment; each is in PARTS."""
    return _HEAD + "".join(f"\n## {title}\n\n" + "".join(_lines(names, chosen)) for title, names in PARTS.items())


def _lines(names: tuple[str, ...], chosen: Mapping[str, str]) -> list[str]:
    found = []
    for name in names:
        known = name.upper() if name.upper() in BUCKET_NAMES else PREFIX + name.upper()
        line = BUCKET[known] if known in BUCKET else DESCRIPTIONS[name].line
        if known in chosen:
            found.append(f"# {plain(line)}\n{name} = {written(known, chosen[known])}\n")
        elif known in KNOWN:
            found.append(f"# {plain(line)}\n# {name} = {_default(known)}\n")
    return found


def written(name: str, text: str) -> str:
    """The environment's text as a TOML value."""
    read = int in _kinds(name) or bool in _kinds(name)
    return text if read and _BARE.fullmatch(text) else quoted(text)


def quoted(text: str) -> str:
    """A TOML string. It equals a JSON string except for one character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _default(name: str) -> str:
    words = default_of(name)
    match = re.fullmatch(r"`([^`]+)`", words)
    if match is None:
        return f'""  # {plain(words)}'
    text = match[1].replace("<data>", ".holdfast")
    return written(name, text)


def _kinds(name: str) -> set[object]:
    return {KNOWN[name].type} if name in KNOWN else set()
