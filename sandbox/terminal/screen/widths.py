"""How many cells a character takes: two, one, or none (it joins the character before it). Pure.

The widths are those of Unicode 6, the default of xterm.js, because the terminal that shows a picture must agree with
the screen on every character. Emoji take one cell there.
"""

import re

_ZERO = """
    0300-036f 0483-0486 0488-0489 0591-05bd 05bf 05c1-05c2 05c4-05c5 05c7 0600-0603 0610-0615 064b-065e 0670
    06d6-06e4 06e7-06e8 06ea-06ed 070f 0711 0730-074a 07a6-07b0 07eb-07f3 0901-0902 093c 0941-0948 094d 0951-0954
    0962-0963 0981 09bc 09c1-09c4 09cd 09e2-09e3 0a01-0a02 0a3c 0a41-0a42 0a47-0a48 0a4b-0a4d 0a70-0a71 0a81-0a82
    0abc 0ac1-0ac5 0ac7-0ac8 0acd 0ae2-0ae3 0b01 0b3c 0b3f 0b41-0b43 0b4d 0b56 0b82 0bc0 0bcd 0c3e-0c40 0c46-0c48
    0c4a-0c4d 0c55-0c56 0cbc 0cbf 0cc6 0ccc-0ccd 0ce2-0ce3 0d41-0d43 0d4d 0dca 0dd2-0dd4 0dd6 0e31 0e34-0e3a
    0e47-0e4e 0eb1 0eb4-0eb9 0ebb-0ebc 0ec8-0ecd 0f18-0f19 0f35 0f37 0f39 0f71-0f7e 0f80-0f84 0f86-0f87 0f90-0f97
    0f99-0fbc 0fc6 102d-1030 1032 1036-1037 1039 1058-1059 1160-11ff 135f 1712-1714 1732-1734 1752-1753 1772-1773
    17b4-17b5 17b7-17bd 17c6 17c9-17d3 17dd 180b-180d 18a9 1920-1922 1927-1928 1932 1939-193b 1a17-1a18 1b00-1b03
    1b34 1b36-1b3a 1b3c 1b42 1b6b-1b73 1dc0-1dca 1dfe-1dff 200b-200f 202a-202e 2060-2063 206a-206f 20d0-20ef
    302a-302f 3099-309a a806 a80b a825-a826 fb1e fe00-fe0f fe20-fe23 feff fff9-fffb 10a01-10a03 10a05-10a06
    10a0c-10a0f 10a38-10a3a 10a3f 1d167-1d169 1d173-1d182 1d185-1d18b 1d1aa-1d1ad 1d242-1d244 e0001 e0020-e007f
    e0100-e01ef
"""
_WIDE = """
    1100-115f 2329-232a 2e80-3029 3030-303e 3040-3098 309b-a4cf ac00-d7a3 f900-faff fe10-fe19 fe30-fe6f ff00-ff60
    ffe0-ffe6 20000-2fffd 30000-3fffd
"""


def _members(table: str) -> str:
    pairs = (entry.split("-") for entry in table.split())
    return "".join(f"\\U{pair[0]:0>8}-\\U{pair[-1]:0>8}" for pair in pairs)


# Insides of character classes, for regular expressions.
ZERO = _members(_ZERO)
WIDE = _members(_WIDE)
NARROW = rf"^\x00-\x1f\x7f-\x9f{ZERO}{WIDE}"

is_wide = re.compile(f"[{WIDE}]").match
is_zero = re.compile(f"[{ZERO}]").match
