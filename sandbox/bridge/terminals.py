"""Only bridges of an earlier version import this, see earlier.py."""

from sandbox.bridge.earlier import use_what_is_loaded

use_what_is_loaded()

from sandbox.bridge.terminal.routes import Terminals  # noqa: E402

__all__ = ["Terminals"]
