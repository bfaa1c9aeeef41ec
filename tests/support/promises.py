"""The promises that must hold of a session when everything has settled: stored, received and shown data are compared
with sent and written data."""

from collections import Counter
from collections.abc import Collection
from typing import Any

from sandbox.protocol.values import Position
from sandbox.providers.memory.scripted import ScriptedProcess
from tests.support.simulated_agents import Truth
from tests.support.simulated_people import Person


def check_session(
    history: list[dict[str, Any]],
    truth: Truth,
    people: list[Person],
    agent: ScriptedProcess | None,
    cancelled: Collection[int] = (),
) -> Counter[str]:
    """Raise AssertionError unless every promise was kept; return how many records ended in which way. `cancelled` are
    those whose cancellation somebody was told."""
    assert [record["seq"] for record in history] == list(range(1, len(history) + 1)), "seq has no holes"
    by_cid = {record["cid"]: record for record in history}
    assert len(by_cid) == len(history), "each cid is stored once"
    assert not [record for record in history if record["type"] == "duplicate"], "nothing was numbered twice"
    for person in people:
        _check_sender(person, by_cid)
        if agent is not None:
            seen_all = Position(agent.epoch, len(truth.written[agent.epoch]))
            assert person.place == seen_all, f"{person.name} does not see everything"
    _check_deliveries(history, truth)
    for record in history:
        if record["seq"] in cancelled:
            assert record["status"] in ("cancelled", "rejected"), f"{record} was cancelled"
    _check_answers(history, truth)
    return Counter(f"{record['type']} {record['status']}" for record in history)


def _check_sender(person: Person, by_cid: dict[str, dict[str, Any]]) -> None:
    for sent in person.sent.values():
        record = by_cid.get(sent.cid)
        assert sent.stored or sent.seq is None, f"{sent} was accepted, and nobody heard what became of it"
        if sent.stored:
            assert record, f"{sent} was acked and is lost"
            assert (record["seq"], record["content"]) == (sent.seq, sent.text)
            told = person.told.get(sent.cid, record["status"])
            assert record["status"] == told, f"{sent} was told {told}, history says {record['status']}"
        elif sent.refused is not None:
            assert record is None or sent.times > 1, f"{sent} was refused and stored"
        else:
            assert sent.times == 0, f"{sent} was never answered"
    unheard = person.lost_nacks
    order = [sent.seq for sent in person.sent.values() if sent.seq and sent.cid not in unheard]
    assert order == sorted(order), f"{person.name} sent in another order than {order}"
    assert not person.granted, f"answers without an answer: {person.granted}"


def _check_deliveries(history: list[dict[str, Any]], truth: Truth) -> None:
    assert truth.received == sorted(set(truth.received)), f"the agent got {truth.received}"
    assert len(set(truth.answers)) == len(truth.answers), "a request was answered twice"
    received, answered = set(truth.received), _answered(history)
    for record in history:
        seq, status = record["seq"], record["status"]
        if record["role"] == "assistant" or record["type"] == "rejected":
            continue
        assert status in ("delivered", "interrupted", "expired", "cancelled"), f"{record} has no end"
        assert status not in ("expired", "cancelled") or seq not in received, f"{record} expired, and the agent has it"
        if record["type"] == "message":
            assert status != "delivered" or seq in received, f"{record} was never received"
            assert (status == "delivered") == (seq in answered), f"{record} is not what became of it"


def _check_answers(history: list[dict[str, Any]], truth: Truth) -> None:
    for seq, record in _answered(history).items():
        assert record["status"] in ("complete", "aborted")
        assert record["content"] == truth.texts[seq], f"{record} is not what the agent said"
    for record in history:
        if record["role"] == "assistant" and record["type"] == "message" and "answers" not in record["metadata"]:
            assert record["status"] in ("incomplete", "aborted"), record
            partial = record["content"]
            assert any(text.startswith(partial) for text in truth.texts.values()), f"nobody said {record}"
        elif record["role"] == "assistant" and record["type"] == "permission_request":
            assert record["status"] in ("answered", "expired"), f"{record} is open for ever"


def _answered(history: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The finished answers, by the message that their `done` named."""
    return {
        record["metadata"]["answers"]: record
        for record in history
        if record["role"] == "assistant" and "answers" in record["metadata"]
    }
