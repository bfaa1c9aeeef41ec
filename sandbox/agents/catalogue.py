"""All cores by name. A bridge's configuration names one. Pure."""

from collections.abc import Callable

from sandbox.agents.acp import AcpCore
from sandbox.agents.claude import ClaudeCore
from sandbox.agents.codex import CodexCore
from sandbox.agents.core import Core
from sandbox.agents.opencode import OpencodeCore
from sandbox.agents.pi import PiCore
from sandbox.agents.plain import PlainCore

DEFAULT = "plain"
CORES: dict[str, Callable[[], Core]] = {
    DEFAULT: PlainCore,
    "claude-code": ClaudeCore,
    "codex": CodexCore,
    "pi": PiCore,
    "opencode": OpencodeCore,
    "acp": AcpCore,
}
