"""What a chat client owes: everything is kept once or refused with its reason, whatever is cut."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cli.client.conversation import MOST_WATCHED, ClientConversation, spelled
from gateway.protocol.nacks import NACKS
from tests.support.vectors import cases, check

STEPS = st.lists(
    st.one_of(
        st.sampled_from(["offer", "offer", "connect", "up", "up", "down", "down", "twice"]),
        st.sampled_from(["busy", "owner_moved", "buffer_full"]),
        st.integers(1, 20),
    ),
    max_size=80,
)


@pytest.mark.parametrize("name", ["nacks.json", "resumes.json", "chats.json", "outbox.json"])
def test_the_vectors_that_both_clients_share(name: str) -> None:
    check(name)


def test_every_nack_of_the_gateway_has_a_vector() -> None:
    assert set(NACKS) <= {case["reason"] for case in cases("nacks.json")}


def sent(talk: ClientConversation, now: float) -> Iterator[dict[str, Any]]:
    while (frame := talk.next(now)) is not None:
        yield frame


@given(STEPS)
def test_everything_offered_is_kept_once_in_order_or_refused(steps: list[str | int]) -> None:
    talk, now, offered = ClientConversation(), 0.0, 0
    kept: dict[str, int] = {}
    refused: set[str] = set()
    up: list[dict[str, Any]] = []
    down: list[dict[str, Any]] = []
    connected, refuses = False, ""
    stored: list[str] = []
    failed: set[str] = set()
    for step in [*steps, "connect", *["up", "down"] * 4 * len(steps)]:
        match step:
            case "offer":
                assert talk.offer({"type": "message"}, f"c{offered}") is None
                offered += 1
            case "connect":
                connected, up, down = True, [], []
                talk.heard({"type": "welcome", "epoch": "e"}, now, 0.5)
                talk.connected()
            case "up" if up:
                cid = up.pop(0)["cid"]
                if refuses and cid not in kept:
                    down.append({"type": "nack", "cid": cid, "reason": refuses})
                    refused |= {cid} if refuses == "buffer_full" else set()
                    refuses = ""
                else:
                    down.append({"type": "ack", "cid": cid, "seq": kept.setdefault(cid, len(kept) + 1)})
            case "down" | "twice" if down:
                frame = down.pop(0) if step == "down" else down[0]
                assert talk.heard(frame, now, 0.5)
                if frame.get("reason") == "owner_moved":
                    connected, up, down = False, [], []
            case "busy" | "owner_moved" | "buffer_full":
                refuses = str(step)
            case int():
                now += step
        if connected:
            up += sent(talk, now)
        for fate in talk.take():
            (stored.append if fate.to == "stored" else failed.add)(fate.cid)
    assert len(stored) == len(set(stored))
    assert set(stored) <= set(kept)
    assert failed <= refused
    assert talk.unsettled == offered - len(stored) - len(failed)


def test_what_is_watched_has_a_bound() -> None:
    talk = ClientConversation()
    for number in range(MOST_WATCHED + 5):
        talk.offer({"type": "message"}, f"c{number}")
        talk.connected()
        assert len(list(sent(talk, 0))) == min(number, MOST_WATCHED) + 1
        talk.heard({"type": "ack", "cid": f"c{number}", "seq": number + 1}, 0, 0.5)
    assert talk.owes(f"c{MOST_WATCHED + 4}")
    assert not talk.owes("c4")


def test_half_a_pair_of_surrogates_can_be_sent() -> None:
    assert spelled({"content": "a\ud800b"}) == '{"content":"a?b"}'
    assert spelled({"content": "ä€😀"}) == '{"content":"ä€😀"}'
