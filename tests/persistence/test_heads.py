"""What is remembered of sessions between batches, and how it is forgotten."""

from persistence.commit_plan import Head
from persistence.heads import Remembered, RememberedHeads


def left_at(*last_seqs: int) -> dict[str, Remembered]:
    return {f"s{no}": Remembered(no, Head(last_seq, 0)) for no, last_seq in enumerate(last_seqs)}


def test_what_is_taken_is_forgotten_until_it_is_learned_again() -> None:
    heads = RememberedHeads()
    heads.learn(left_at(3, 4))
    assert heads.take(["s1", "unknown"]) == {"s1": Remembered(1, Head(4, 0))}
    assert heads.take(["s1"]) == {}, "the batch that took it may have failed"
    heads.learn({"s1": Remembered(1, Head(5, 0))})
    assert heads.take(["s0", "s1"]) == {"s0": Remembered(0, Head(3, 0)), "s1": Remembered(1, Head(5, 0))}
    assert len(heads) == 0


def test_of_too_many_sessions_the_longest_unused_are_forgotten() -> None:
    heads = RememberedHeads(most=3)
    heads.learn(left_at(1, 1, 1))
    heads.learn(heads.take(["s0"]))
    heads.learn({"s3": Remembered(3, Head(1, 0))})
    assert len(heads) == 3
    assert list(heads.take(["s0", "s1", "s2", "s3"])) == ["s0", "s2", "s3"]
    heads.learn(left_at(1, 1, 1, 1, 1))
    assert list(heads.take([f"s{no}" for no in range(5)])) == ["s2", "s3", "s4"]


def test_sessions_are_forgotten_one_by_one_or_all() -> None:
    heads = RememberedHeads()
    heads.learn(left_at(1, 1, 1))
    heads.forget("s1")
    heads.forget("unknown")
    assert list(heads.take(["s0", "s1"])) == ["s0"]
    heads.forget_all()
    assert heads.take(["s2"]) == {}
