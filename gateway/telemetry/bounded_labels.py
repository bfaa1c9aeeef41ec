"""Words from outside as labels of a metric: a bounded number in each group, so that a scrape stays small. Pure."""

OTHERS = "others"


class BoundedLabels:
    """The first `most` words of a group are labels, all later ones are OTHERS."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, set[str]] = {}

    def label(self, group: str, word: str) -> str:
        """Groups are of a fixed set."""
        known = self._known.setdefault(group, set())
        if word in known:
            return word
        if len(known) >= self._most:
            return OTHERS
        known.add(word)
        return word
