"""The input of npm for one version of an agent, and the name of the program that comes out. Pure.

For the versions of the catalogue a lock is shipped (`locks/`): npm compares each package with its hash there. For a
version without a lock, npm checks packages against the registry's own hashes.
"""

import json
from collections.abc import Mapping
from typing import Any

from gateway.agents.catalogue import NODE, NODE_VERSION, KnownAgent, Package

# For terminals, a program that Node.js runs. A link would be run by the first node on the path.
_BY_NODE = """\
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
exec "$here/../../../{node}/{node_version}/bin/node" "$here/../{program}" "$@"
"""


def manifest(package: Package, version: str) -> bytes:
    """The package.json of a directory into which that package is installed."""
    wanted = {package.name: package.spec.format(version=version)}
    return json.dumps({"name": "holdfast-agent", "private": True, "dependencies": wanted}, indent=2).encode() + b"\n"


def lock_name(package: Package, version: str) -> str:
    """The name of its lock in `locks/`."""
    return f"{package.name.replace('/', '+')}@{version}.json"


def program_of(known: KnownAgent, package: Package, described: Mapping[str, Any]) -> str | None:
    """The path of the program, below the directory of the version; `described` is the package's own package.json. None:
    it has no program of that name."""
    named = package.program or _bin(known.program, described.get("bin"))
    inside = f"node_modules/{package.name}"
    return None if named is None or ".." in named.split("/") else f"{inside}/{named.removeprefix('./')}"


def script_by_node(program: str) -> str:
    """A script for terminals that runs `program` with the Node.js that lies beside it."""
    return _BY_NODE.format(node=NODE, node_version=NODE_VERSION, program=program)


def _bin(program: str, given: Any) -> str | None:
    named = given.get(program) if isinstance(given, dict) else given
    return named if isinstance(named, str) and named else None
