"""Tables and durations as commands print them."""

from gateway.cli.console.output import say


def print_table(rows: list[tuple[str, ...]]) -> None:
    """Columns as wide as their widest cell; the first row is the head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        say("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def in_short(seconds: float) -> str:
    """`7s`, `5m`, `3h`, `2d`. Pure."""
    for unit, most in (("s", 60), ("m", 60), ("h", 24)):
        if seconds < most:
            return f"{seconds:.0f}{unit}"
        seconds /= most
    return f"{seconds:.0f}d"
