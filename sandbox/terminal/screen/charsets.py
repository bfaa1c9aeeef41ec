"""Character sets of 94 characters that can replace ASCII: line drawing, and the national sets of the VT220. Pure.

The name of a set is the final byte of the sequence that designates it. `PLAIN` is ASCII.
"""

PLAIN = "B"


def _pairs(shown: str, sent: str) -> dict[int, str]:
    return dict(zip(map(ord, sent), shown, strict=True))


_FINNISH = _pairs("ÄÖÅÜéäöåü", "[\\]^`{|}~")
_NORWEGIAN = _pairs("ÄÆØÅÜäæøåü", "@[\\]^`{|}~")
_SWEDISH = _pairs("ÉÄÖÅÜéäöåü", "@[\\]^`{|}~")

TABLES = {  # for str.translate
    "0": _pairs("◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·", "`abcdefghijklmnopqrstuvwxyz{|}~"),
    "A": _pairs("£", "#"),
    "4": _pairs("£¾i½|¨f¼´", "#@[\\]{|}~"),  # noqa: RUF001 - a cell takes the first letter of the Dutch ij
    "C": _FINNISH,
    "5": _FINNISH,
    "R": _pairs("£à°ç§éùè¨", "#@[\\]{|}~"),
    "Q": _pairs("àâçêîôéùèû", "@[\\]^`{|}~"),
    "K": _pairs("§ÄÖÜäöüß", "@[\\]{|}~"),
    "Y": _pairs("£§°çéùàòèì", "#@[\\]`{|}~"),
    "E": _NORWEGIAN,
    "6": _NORWEGIAN,
    "Z": _pairs("£§¡Ñ¿°ñç", "#@[\\]{|}"),
    "H": _SWEDISH,
    "7": _SWEDISH,
    "=": _pairs("ùàéçêîèôäöüû", "#@[\\]^_`{|}~"),
}


def sent_for(shown: str, charset: str) -> str:
    """The character to send so that `shown`, one character, appears while `charset` is in use."""
    table = TABLES.get(charset, {})
    for sent, seen in table.items():
        if seen == shown:
            return chr(sent)
    return shown
