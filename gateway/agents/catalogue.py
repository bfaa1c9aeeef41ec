"""The agents that Holdfast knows by name: their programs and packages. Pure: data, and questions about it.

A name stands for a program, for the core of the bridge that translates for it (`sandbox/agents/`), for its environment,
and for the packages it comes in. This module runs no program. The core is a name only: gateway and bridge do not know
each other's modules.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

DEMO, NONE, ACP, NODE = "demo", "none", "acp", "node"
# The cores that this version's bridge has; a test compares them with sandbox/agents/catalogue.py.
CORES = ("plain", "claude-code", "codex", "pi", "opencode", "acp")
NODE_VERSION = "24.19.0"


@dataclass(frozen=True, slots=True)
class Package:
    """An npm package: `name` is its folder in node_modules, `spec` its version there ({version} stands for the
    version). `program` is the file to run; "": the one that its package.json names."""

    name: str
    spec: str
    program: str


@dataclass(frozen=True, slots=True)
class KnownAgent:
    """`packages` is by platform, such as linux-x64; "" is any. One with `by_node` is a program for Node.js. `libc` is
    the one a program of the platform is linked to, unless it brings its own."""

    name: str
    title: str
    core: str
    program: str  # as people type it in a terminal
    version: str  # tested version
    packages: Mapping[str, Package]
    arguments: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    caches: tuple[str, ...] = ()  # patterns in its home for files that it makes again
    more_versions: tuple[str, ...] = ()  # tested, too
    by_node: bool = False
    needs_libc: bool = True

    @property
    def versions(self) -> tuple[str, ...]:
        return (self.version, *self.more_versions)

    def package(self, platform: str) -> Package | None:
        """The package for such a machine; None if there is none."""
        return self.packages.get(platform) or self.packages.get("")


def _native(name: str, program: str, platforms: Mapping[str, str], spec: str = "{version}") -> dict[str, Package]:
    """The packages of one name and platform each. {} in `program` stands for the platform's value in `platforms`."""
    return {each: Package(f"{name}-{each}", spec.replace("{}", each), program.format(triple))
            for each, triple in platforms.items()}  # fmt: skip


_GLIBC = dict.fromkeys(("linux-x64", "linux-arm64"), "")
_BOTH = _GLIBC | dict.fromkeys(("linux-x64-musl", "linux-arm64-musl"), "")
_TRIPLES = {"linux-x64": "x86_64-unknown-linux-musl", "linux-arm64": "aarch64-unknown-linux-musl"}
_CODEX = _native("@openai/codex", "vendor/{}/bin/codex", _TRIPLES, "npm:@openai/codex@{version}-{}")

AGENTS = (
    KnownAgent(
        name="claude-code",
        title="Claude Code",
        core="claude-code",
        program="claude",
        version="2.1.326",
        packages=_native("@anthropic-ai/claude-code", "claude", _BOTH),
        env={
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "3",
        },
        caches=(".claude/shell-snapshots/", ".claude/sessions/"),
    ),
    KnownAgent(
        name="codex",
        title="Codex",
        core="codex",
        program="codex",
        version="0.169.0",
        # Linked statically: the same package runs with every libc.
        packages=_CODEX | {f"{each}-musl": package for each, package in _CODEX.items()},
        caches=(".codex/logs_*", ".codex/.tmp/", ".codex/skills/.system/", ".codex/shell_snapshots/"),
        needs_libc=False,
    ),
    KnownAgent(
        name="pi",
        title="pi",
        core="pi",
        program="pi",
        version="0.87.1",
        more_versions=("0.74.2",),
        packages={"": Package("@earendil-works/pi-coding-agent", "{version}", "")},
        env={"PI_OFFLINE": "1", "PI_TELEMETRY": "0"},
        by_node=True,
    ),
    KnownAgent(
        name="opencode",
        title="opencode",
        core="opencode",
        program="opencode",
        version="1.18.33",
        packages=_native("opencode", "bin/opencode", _BOTH),
        env={
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_ENABLE_QUESTION_TOOL": "1",
        },
        caches=(".local/share/opencode/log/", ".config/opencode/node_modules/"),
    ),
    KnownAgent(
        name="gemini",
        title="Gemini CLI",
        core=ACP,
        program="gemini",
        version="0.61.0",
        packages={"": Package("@google/gemini-cli", "{version}", "")},
        arguments=("--acp", "--skip-trust"),
        env={"GEMINI_CLI_NO_RELAUNCH": "true"},
        caches=(".gemini/tmp/*/logs/",),
        by_node=True,
    ),
)
KNOWN = {agent.name: agent for agent in AGENTS}
NAMES = (DEMO, *KNOWN, NONE)
CACHES = tuple(pattern for agent in AGENTS for pattern in agent.caches)


def platform(machine: str, *, musl: bool) -> str:
    """The name of this machine's platform in packages: `machine` as uname reports it."""
    cpu = {"x86_64": "x64", "aarch64": "arm64"}.get(machine, machine)
    return f"linux-{cpu}" + ("-musl" if musl else "")
