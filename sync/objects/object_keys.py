"""The keys that an object store accepts. Pure. All stores share them, so an object can move to another store."""

import re

from sync.ports import ObjectsRefused

MAX_KEY = 800  # Amazon's limit is 1,024 bytes, of which the operator's prefix takes some
MAX_COMPONENT = 200  # a file name may have 255
_COMPONENT = re.compile(rf"(?!\.{{1,2}}\Z)[A-Za-z0-9._-]{{1,{MAX_COMPONENT}}}", re.ASCII)


def is_key(text: str) -> bool:
    return len(text) <= MAX_KEY and all(map(_COMPONENT.fullmatch, text.split("/")))


def check_key(key: str) -> str:
    """The key itself. Raises ObjectsRefused if no store accepts it."""
    if not is_key(key):
        raise ObjectsRefused(f"no key: {key[:100]!r}; components of A-Z a-z 0-9 . _ - separated by / are one")
    return key


def check_prefix(prefix: str) -> str:
    """Empty, or a key with a `/` after it. Raises ObjectsRefused."""
    if prefix and not (prefix.endswith("/") and is_key(prefix[:-1])):
        raise ObjectsRefused(f"no prefix: {prefix[:100]!r}; it is empty or ends with /")
    return prefix
