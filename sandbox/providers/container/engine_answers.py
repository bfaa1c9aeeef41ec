"""Reads and checks a container engine's answers: versions, complaints, streams of JSON lines. Pure.

An engine is trusted, for it is root. But it may have bugs: every answer has a bound and a shape.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from sandbox.ports.fleet import ProviderHealth
from sandbox.ports.resources import ResourceLimits, ResourceUsage

OLDEST, NEWEST = (1, 41), (1, 51)  # of the API. 1.41 is that of Docker Engine 20.10 and of Podman 4
MAX_LINE = 1 << 20
_VERSION = re.compile(r"(\d{1,3})\.(\d{1,4})")
_SAID = 500


class BadAnswer(ValueError):
    """No engine answers like this. The text is ours."""


def negotiated(answer: Any) -> str:
    """The version to speak, as it stands in a path, from the answer of /version. Raises BadAnswer."""
    said = members(answer)
    newest = _version(said.get("ApiVersion"))
    oldest = _version(said.get("MinAPIVersion") or said.get("ApiVersion"))
    spoken = min(newest, NEWEST)
    if spoken < max(oldest, OLDEST):
        raise BadAnswer(
            f"it speaks versions {_shown(oldest)} to {_shown(newest)} of the API, and Holdfast {_shown(OLDEST)} to "
            f"{_shown(NEWEST)}: use Docker Engine 20.10 or newer, or Podman 4 or newer"
        )
    return f"/v{_shown(spoken)}"


def document(content: bytes) -> Any:
    """Raises BadAnswer."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise BadAnswer("its answer is not JSON") from None


def members(value: Any) -> dict[str, Any]:
    """An object, or BadAnswer."""
    if not isinstance(value, dict):
        raise BadAnswer("its answer is not an object")
    return value


def inner(value: Any, *names: str) -> dict[str, Any]:
    """The object at the end of this way, {} where nothing is. Raises BadAnswer for anything else."""
    for name in names:
        value = members(value).get(name) or {}
    return members(value)


def state(container: Mapping[str, Any] | None) -> dict[str, Any]:
    """The state of an inspected container; {} if it has none."""
    found = (container or {}).get("State")
    return found if isinstance(found, dict) else {}


def held_to(container: Mapping[str, Any]) -> ResourceLimits:
    """The limits of an inspected container."""
    host = container.get("HostConfig")
    told = host if isinstance(host, dict) else {}
    nanocpus = _count(told.get("NanoCpus"))
    return ResourceLimits(
        memory=_count(told.get("Memory")),
        cpus=None if nanocpus is None else nanocpus / 1e9,
        pids=_count(told.get("PidsLimit")),
    )


def enforced(asked: ResourceLimits, stats: Mapping[str, Any]) -> ResourceLimits:
    """Those of these limits that the kernel enforces, as far as the engine reports: an engine that may not set
    control groups takes a limit, warns, and sets none. It reports nothing about processors."""
    memory = _count(_within(stats, "memory_stats").get("limit"))
    pids = _count(_within(stats, "pids_stats").get("limit"))
    return ResourceLimits(
        memory=None if _is_more(memory, asked.memory) else asked.memory,
        cpus=asked.cpus,
        pids=None if _is_more(pids, asked.pids) else asked.pids,
    )


def _is_more(told: int | None, asked: int | None) -> bool:
    return told is not None and asked is not None and told > asked


def usage(stats: Mapping[str, Any]) -> ResourceUsage:
    """The present usage in /containers/.../stats. None for a missing number: an engine may be unable to count."""
    nanoseconds = _count(_within(stats, "cpu_stats", "cpu_usage").get("total_usage"))
    return ResourceUsage(
        memory=_count(_within(stats, "memory_stats").get("usage")),
        cpu_seconds=None if nanoseconds is None else round(nanoseconds / 1e9, 3),
        pids=_count(_within(stats, "pids_stats").get("current")),
    )


def machine_of(info: Mapping[str, Any]) -> ProviderHealth:
    """The machine that containers share, from /info."""
    return ProviderHealth(cpus=_count(info.get("NCPU")), memory=_count(info.get("MemTotal")))


def texts(value: Any) -> list[str]:
    """The strings of a list; null is an empty one. Raises BadAnswer."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise BadAnswer("its answer is not a list of strings")
    return value


def complaint(content: bytes) -> str:
    """Why the engine refused, on one line."""
    try:
        said = str(members(document(content)).get("message") or "")
    except BadAnswer:
        said = content.decode(errors="replace")
    return one_line(said) or "no reason given"


def one_line(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text.strip())[:_SAID]


def trouble(message: dict[str, Any]) -> str | None:
    """An error that came inside of an answer that had begun well."""
    said = message.get("error") or inner(message, "errorDetail").get("message")
    return one_line(str(said)) if said else None


def name_and_tag(image: str) -> tuple[str, str]:
    """An image's name as /images/create takes it. A digest stays with the name."""
    name, colon, tag = image.rpartition(":")
    if "@" in image:
        return image, ""
    return (name, tag) if colon and "/" not in tag else (image, "latest")


class JsonLines:
    """Cuts a stream into objects, one to a line."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The objects that are whole now. Raises BadAnswer."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE:
            raise BadAnswer("its answer has a line without end")
        return [members(document(line)) for line in lines if line.strip()]

    def end(self) -> list[dict[str, Any]]:
        """The rest without a newline, at the end."""
        return self.feed(b"\n") if self._rest else []


def _within(value: Any, *names: str) -> Mapping[str, Any]:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int | None:
    """A positive number; engines write 0, -1 or null for no limit or no count."""
    return value if isinstance(value, int) and value > 0 else None


def _version(value: Any) -> tuple[int, int]:
    found = _VERSION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise BadAnswer("it does not report its version")
    return int(found[1]), int(found[2])


def _shown(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
