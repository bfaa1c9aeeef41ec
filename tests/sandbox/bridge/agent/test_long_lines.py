"""Long lines of an agent's output, with their long strings cut."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.bridge.agent import long_lines
from sandbox.bridge.agent.long_lines import LONGEST, WHOLE, CutText, CuttingSplitter, LineCutter, cut_characters

CHARACTERS = st.sampled_from(["a", "\\", '"', "\n", "é", "€", "😀", "\x00", "0123456789abcdef"])
TEXTS = st.lists(CHARACTERS, max_size=12).map("".join)
VALUES = st.recursive(
    st.none() | st.integers() | TEXTS | st.tuples(TEXTS, st.integers(2, 40)).map(lambda pair: pair[0] * pair[1]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS.map(lambda key: key[:4]), inner, max_size=4),
    max_leaves=8,
)
REMARK = re.compile(r"\n\[([0-9]+) bytes left out\]\Z")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that small lines reach."""
    for name, value in (("WHOLE", 400), ("STRING", 40), ("SHORT", 10), ("LONGEST", 2000)):
        monkeypatch.setattr(long_lines, name, value)


def fed(data: bytes, sizes: list[int]) -> tuple[list[bytes], CuttingSplitter]:
    splitter = CuttingSplitter()
    lines, at = [], 0
    for size in [*sizes, len(data)]:
        lines += splitter.feed(data[at : at + size])
        at += size
    return [*lines, *splitter.finish()], splitter


def shortened(value: Any, whole: Any) -> None:
    """`value` is `whole`, but for strings that end early and say so."""
    if isinstance(whole, str) and value != whole:
        assert isinstance(value, str)
        remark = REMARK.search(value)
        assert remark is not None
        assert whole.startswith(value[: remark.start()])
        assert int(remark[1]) > 0
    elif isinstance(whole, list):
        assert len(value) == len(whole)
        for each, other in zip(value, whole, strict=True):
            shortened(each, other)
    elif isinstance(whole, dict):
        assert len(value) == len(whole)
        for (key, each), (name, other) in zip(value.items(), whole.items(), strict=True):
            shortened(key, name)
            shortened(each, other)
    else:
        assert value == whole


@pytest.mark.usefixtures("small")
@given(
    values=st.lists(VALUES, min_size=1, max_size=4),
    sizes=st.lists(st.integers(0, 90), max_size=40),
    is_ascii=st.booleans(),
)
@settings(deadline=None, max_examples=300)
def test_a_line_keeps_its_shape_and_the_beginning_of_each_string_however_it_comes(
    values: list[Any], sizes: list[int], is_ascii: bool
) -> None:
    whole = [json.dumps(value, ensure_ascii=is_ascii).encode() for value in values]
    lines, splitter = fed(b"\n".join([*whole, b""]), sizes)
    assert len(lines) + splitter.oversized == len(whole)
    assert fed(b"\n".join([*whole, b""]), [])[0] == lines
    if splitter.oversized == 0:
        for line, value, before in zip(lines, values, whole, strict=True):
            assert len(line) <= long_lines.WHOLE
            assert line == before or len(before) > long_lines.WHOLE
            shortened(json.loads(line), value)


@pytest.mark.usefixtures("small")
@given(data=st.binary(max_size=3000), sizes=st.lists(st.integers(0, 300), max_size=20))
@settings(deadline=None, max_examples=100)
def test_no_bytes_of_any_kind_are_too_much(data: bytes, sizes: list[int]) -> None:
    lines, splitter = fed(data, sizes)
    pieces = data.split(b"\n")
    assert len(lines) + splitter.oversized in (len(pieces), len(pieces) - 1)
    assert all(len(line) <= long_lines.WHOLE + long_lines.STRING for line in lines)


def test_a_line_with_a_picture_in_it_keeps_what_it_is_and_says_what_is_left_out() -> None:
    text = '\\"\n' * 30_000
    picture = {"type": "user", "data": "QUJD" * 700_000, "id": "toolu_1", "text": text, "n": [1, 2.5, None]}
    (line,), _ = fed(json.dumps(picture).encode() + b"\n", [65536] * 50)
    read = json.loads(line)
    assert (read["type"], read["id"], read["n"]) == ("user", "toolu_1", [1, 2.5, None])
    assert read["data"] == "QUJD" * 16384 + "\n[2734464 bytes left out]"
    assert read["text"].startswith('\\"\n' * 10_000)
    assert len(line) < 140_000


def test_many_long_strings_are_cut_shorter_and_what_is_long_without_strings_is_left_out() -> None:
    splitter = CuttingSplitter()
    strings = json.dumps(["x" * 60_000] * 100).encode()
    numbers = json.dumps(list(range(300_000))).encode()
    lines = splitter.feed(strings + b"\n" + numbers + b"\n" + b"next\n")
    assert len(lines) == 2
    assert splitter.oversized == 1
    read = json.loads(lines[0])
    assert [len(text) for text in (read[0], read[-1])] == [60_000, 256 + len("\n[59744 bytes left out]")]
    assert lines[1] == b"next"


def test_an_endless_line_is_not_kept() -> None:
    cutter = LineCutter()
    cutter.feed(b'"')
    block = b"x" * (1 << 20)
    for _ in range(long_lines.LONGEST >> 20):
        cutter.feed(block)
    assert cutter.finish() is None


@given(text=st.text(max_size=20) | TEXTS, is_ascii=st.booleans(), cut=st.integers(0, 200))
def test_a_string_is_cut_between_characters(text: str, is_ascii: bool, cut: int) -> None:
    body = json.dumps(text, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")[1:-1]
    kept = json.loads(b'"' + cut_characters(body[:cut]) + b'"')
    assert text.startswith(kept)
    assert len(body[:cut]) - len(cut_characters(body[:cut])) < 12


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (rb"\ud83d\ude00", rb"\ud83d\ude00"),
        (rb"a\ud83d\ude0", rb"a"),
        (rb"a\ud83d", rb"a"),
        (rb"a\\ud83d", rb"a\\ud83d"),
        (rb"\ud83dx", rb"\ud83dx"),
        (rb"\ud83d\n", rb"\ud83d\n"),
        (rb"\ud83d\u0041", rb"\ud83d\u0041"),
        (rb"\ud83d\u00", rb"\ud83d"),
        (rb"\ude00b\u00e4", rb"\ude00b\u00e4"),
        (b"\xf0\x9f\x98", b""),
    ],
)
def test_no_half_of_a_pair_and_no_half_of_an_escape_is_kept(body: bytes, kept: bytes) -> None:
    assert cut_characters(body) == kept


def test_a_text_is_cut_if_it_is_long_and_none_if_it_is_too_long() -> None:
    short, long, endless = CutText(), CutText(), CutText()
    for part in (b'{"a":', b"1}"):
        short.feed(part)
    assert short.finish() == b'{"a":1}'
    for part in (b'{"a":1,"b":"', b"x" * WHOLE, b"x" * WHOLE, b'"}'):
        long.feed(part)
    found = json.loads(long.finish() or b"")
    assert found["a"] == 1
    assert found["b"].startswith("xxx")
    assert len(found["b"]) < 100_000
    for _ in range(LONGEST // WHOLE + 1):
        endless.feed(b" " * WHOLE)
    assert endless.finish() is None
