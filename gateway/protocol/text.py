"""Text from strangers, made safe to look at: control characters are spelled out, so that no terminal obeys them.
Pure.
"""

import re

# C0 without tab and newline, DEL, C1, and the marks that turn or hide text: bidirectional, zero width, line ends, tags.
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """`text` with every control character spelled out (`\\x1b`); tabs and newlines stay."""
    return UNSEEN.sub(_spelled, text.replace("\r\n", "\n"))


def visible_line(text: str, *, longest: int = 2000) -> str:
    """`text` on one line of bounded length."""
    cut = text if len(text) <= longest else text[:longest] + "…"
    return visible(cut).replace("\n", "\\n").replace("\t", " ")


def _spelled(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
