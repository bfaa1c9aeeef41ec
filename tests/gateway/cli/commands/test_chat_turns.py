"""Which messages are waited for: against a list of what was asked."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.cli.commands.chat_turns import ChatTurns


def test_an_answer_that_names_messages_answers_those_and_no_other() -> None:
    turns = ChatTurns()
    for seq, cid in ((1, "a"), (2, "b"), (3, "c")):
        turns.sent(cid)
        turns.asked(seq, cid)
    turns.answered(4, [3, 1, 99])
    assert [turns.expects(cid) for cid in "abc"] == [False, True, False]
    turns.answered(4)  # told again
    turns.answered(5, [])
    assert turns.expects("b")
    turns.answered(6)
    turns.answered(7)
    assert not turns.waiting


@given(st.lists(st.sampled_from(["ask", "answer", "name", "drop", "again"])))
def test_what_was_sent_is_waited_for_until_it_is_answered_or_dropped(steps: list[str]) -> None:
    turns, model = ChatTurns(), dict[int, str]()
    for seq, step in enumerate(steps, 1):
        if step == "ask":
            turns.sent(f"c{seq}")
            turns.asked(seq, f"c{seq}")
            turns.asked(seq, f"c{seq}")
            model[seq] = f"c{seq}"
        elif step == "answer":
            turns.answered(seq)
            if model:
                del model[min(model)]
        elif step == "name":
            named = list(model)[-1:]
            turns.answered(seq, named)
            for each in named:
                del model[each]
        elif step == "drop" and model:
            turns.dropped(model.pop(min(model)))
        else:
            turns.answered(0)
        assert turns.waiting == bool(model)
        assert all(turns.expects(cid) for cid in model.values())
