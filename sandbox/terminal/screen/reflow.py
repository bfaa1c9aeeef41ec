"""Rewrap wrapped lines when the width changes, as xterm.js does. The line with the cursor stays as it is: its program
repairs it. Pure."""

from sandbox.terminal.screen.buffer import ScreenBuffer
from sandbox.terminal.screen.cells import EMPTY, CellRow


def reflow(page: ScreenBuffer, old: int, new: int) -> None:
    """Rewrap the lines of a page that goes from `old` to `new` columns."""
    if new > old:
        _widen(page, old, new)
    elif new < old:
        _narrow(page, old, new)


def _widen(page: ScreenBuffer, old: int, new: int) -> None:
    lines = [*page.history, *page.rows]
    base, cursor, height = len(page.history), len(page.history) + page.y, len(page.rows)
    made: list[CellRow] = []
    start = 0
    while start < len(lines):
        end = start + 1
        while end < len(lines) and lines[end].wrapped:
            end += 1
        group = lines[start:end]
        if len(group) > 1 and not start <= cursor < end:
            group = _wrapped(group, old, new)
            while len(group) > 1 and not group[-1].length():
                group.pop()
        made += group
        start = end
    removed = len(lines) - len(made)
    page.saved.line = max(page.saved.line - removed, 0)
    pulled = min(removed, base)
    page.y = max(page.y - (removed - pulled), 0)
    _lay_out(page, made, base - pulled, height)


def _narrow(page: ScreenBuffer, old: int, new: int) -> None:
    lines = [*page.history, *page.rows]
    base, height = len(page.history), len(page.rows)
    most = height + (page.history.maxlen or 0)
    wrapped: list[tuple[int, int, list[CellRow]]] = []
    added = 0
    end = len(lines)
    while end > 0:
        start = end - 1
        while lines[start].wrapped and start > 0:
            start -= 1
        alone = start == end - 1 and not lines[start].wrapped
        if (alone and lines[start].length() <= new) or start <= base + page.y < end:
            end = start
            continue
        group = _wrapped(lines[start:end], old, new)
        more = max(len(group) - (end - start), 0)
        wrapped.append((start, end, group))
        added += more
        full = page.y if base == 0 and page.y != len(lines) - 1 else len(lines)
        for _ in range(more - max(0, full - most + more)):
            if base:
                base = min(base + 1, max(min(most, len(lines) + added) - height, base))
            elif page.y < height - 1:
                page.y += 1
                lines.pop()
            else:
                base += 1
        page.saved.line = min(page.saved.line + more, base + height - 1)
        end = min(start, len(lines))  # more rows than this line's may have been popped from the end
    for start, end, group in wrapped:  # last line first, so that earlier indices stay valid
        lines[start:end] = group
    _lay_out(page, lines[-most:], base, height)


def _lay_out(page: ScreenBuffer, lines: list[CellRow], base: int, height: int) -> None:
    lines += [CellRow() for _ in range(base + height - len(lines))]
    page.history.clear()
    page.history.extend(lines[:base])
    page.rows = lines[base : base + height]


def _wrapped(group: list[CellRow], old: int, new: int) -> list[CellRow]:
    """The rows of one line at the new width."""
    whole = CellRow()
    for number, row in enumerate(group):
        below = group[number + 1] if number + 1 < len(group) else None
        size = old if below else row.length()
        if below and below.is_wide(0) and row.at(old - 1) == EMPTY:
            size -= 1  # this cell is empty only because the wide character did not fit
        row = row.copy()
        row.reach(size)
        at = len(whole.text)
        whole.put(at, row.text[:size], row.looks[:size])
        if row.joined:
            kept = {at + place: shown for place, shown in row.joined.items() if place < size}
            whole.joined = {**(whole.joined or {}), **kept}
    made: list[CellRow] = []
    start = 0
    while start < len(whole.text) or not made:
        end = start + new
        if whole.is_wide(end - 1):
            end -= 1
        part = CellRow(wrapped=True)
        part.text, part.looks = whole.text[start:end], whole.looks[start:end]
        if whole.joined:
            part.joined = {place - start: shown for place, shown in whole.joined.items() if start <= place < end}
        made.append(part)
        start = end
    made[0].wrapped = group[0].wrapped
    return made
