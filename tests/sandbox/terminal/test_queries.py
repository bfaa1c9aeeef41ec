"""What a terminal says by itself, and what people type."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.terminal.queries import has_question, is_answer

ANSWERS = {
    "DA1": b"\x1b[?1;2c",
    "DA1 of a newer one": b"\x1b[?62;4;6;22c",
    "DA2": b"\x1b[>0;276;0c",
    "DA3": b"\x1bP!|00000000\x1b\\",
    "DSR": b"\x1b[0n",
    "DSR, private": b"\x1b[?13n",
    "colour scheme": b"\x1b[?997;1n",
    "CPR": b"\x1b[24;80R",
    "CPR that looks like Shift-F3": b"\x1b[1;2R",
    "DECXCPR": b"\x1b[?5;7;1R",
    "DECRPM": b"\x1b[?2026;2$y",
    "DECRPM, ANSI": b"\x1b[4;2$y",
    "parameters": b"\x1b[2;1;1;112;112;1;0x",
    "background": b"\x1b]11;rgb:1e1e/1e1e/1e1e\x1b\\",
    "foreground, with BEL": b"\x1b]10;rgb:ffff/ffff/ffff\x07",
    "palette": b"\x1b]4;1;rgb:cd00/0000/0000\x1b\\",
    "clipboard": b"\x1b]52;c;aGVsbG8=\x07",
    "DECRQSS": b"\x1bP1$r0m\x1b\\",
    "XTGETTCAP": b"\x1bP1+r544e=787465726d\x1b\\",
    "XTVERSION": b"\x1bP>|xterm(390)\x1b\\",
    "keyboard flags": b"\x1b[?1u",
    "modifyOtherKeys": b"\x1b[>4;2m",
    "focus in": b"\x1b[I",
    "focus out": b"\x1b[O",
    "window size": b"\x1b[8;24;80t",
    "pixels": b"\x1b[4;600;800t",
    "title": b"\x1b]lvim\x1b\\",
    "graphics": b"\x1b_Gi=31;OK\x1b\\",
}

TYPED = {
    "a letter": b"a",
    "nothing": b"",
    "return": b"\r",
    "escape": b"\x1b",
    "alt": b"\x1bx",
    "alt and a bracket": b"\x1b[",
    "up": b"\x1b[A",
    "up, application": b"\x1bOA",
    "shift up": b"\x1b[1;2A",
    "home": b"\x1b[H",
    "F1": b"\x1bOP",
    "F3": b"\x1bOR",
    "F5": b"\x1b[15~",
    "shift F5": b"\x1b[15;2~",
    "delete": b"\x1b[3~",
    "back tab": b"\x1b[Z",
    "a key as kitty says it": b"\x1b[97;5u",
    "a mouse": b"\x1b[<0;10;20M",
    "an old mouse": b"\x1b[M !!",
    "a paste": b"\x1b[200~text\x1b[201~",
    "a pasted answer": b"\x1b[200~\x1b[?1;2c\x1b[201~",
    "an answer and a letter": b"\x1b[?1;2cx",
    "a letter and an answer": b"x\x1b[?1;2c",
    "half an answer": b"\x1b[?1;2",
    "half a string": b"\x1b]11;rgb:1e1e/1e1e/1e1e",
}

QUESTIONS = (
    b"\x05 \x1bZ \x1b[c \x1b[0c \x1b[>c \x1b[=c \x1b[5n \x1b[6n \x1b[?6n \x1b[?2026$p \x1b[4$p \x1b[18t \x1b[x "
    b"\x1b[?u \x1b[>q \x1b[?4m \x1bP$qm\x1b\\ \x1bP+q544e\x1b\\ \x1b]11;?\x07 \x1b]4;1;?\x1b\\ "
    b"\x1b]52;c;?\x07 \x1b_Gi=31,a=q\x1b\\"
).split(b" ")


@pytest.mark.parametrize("payload", ANSWERS.values(), ids=ANSWERS.keys())
def test_what_a_terminal_says_by_itself_is_an_answer(payload: bytes) -> None:
    assert is_answer(payload)


@pytest.mark.parametrize("payload", TYPED.values(), ids=TYPED.keys())
def test_what_people_type_is_not(payload: bytes) -> None:
    assert not is_answer(payload)


@given(st.lists(st.sampled_from(list(ANSWERS.values())), min_size=1, max_size=5))
def test_several_answers_in_a_row_are_answers(answers: list[bytes]) -> None:
    assert is_answer(b"".join(answers))
    assert not is_answer(b"".join(answers) + b"q")


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_found_among_other_things(question: bytes) -> None:
    assert has_question(question)
    assert has_question(b"text \x1b[31mred\x1b[0m " + question + b" more")


@pytest.mark.parametrize(
    "output",
    [b"", b"plain\r\n", b"\x1b[31;1mred\x1b[m", b"\x1b[2J\x1b[H", b"\x1b]0;title\x07", b"\x1b[?1049h\x1b[4;10r"],
)
def test_drawing_is_no_question(output: bytes) -> None:
    assert not has_question(output)


def test_a_megabyte_of_anything_is_judged_in_passing() -> None:
    for payload in (
        b"\x1b[" * 500_000,
        b"\x1b]" + b"x" * 1_000_000,
        b"\x1b[1;2R" * 160_000 + b"x",
        b"\x1b[?" + b"1;" * 500_000,
    ):
        assert not is_answer(payload)
        has_question(payload)
