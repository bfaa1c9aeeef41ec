"""What a page that does not read is owed: the words in order, each session once, and no more than there is room for."""

from gateway.feed.viewer_backlog import MOST_BYTES, MOST_SESSIONS, MOST_WORDS, ViewerBacklog


def paid(arrears: ViewerBacklog) -> list[bytes]:
    return list(iter(arrears.pay, None))


def test_words_are_owed_in_order_and_a_session_once() -> None:
    arrears = ViewerBacklog()
    for number in range(5):
        assert arrears.say(b"%d" % number)
        assert arrears.changed("a")
    assert arrears.changed("b")
    assert arrears.gone("c", b"c is gone")
    assert paid(arrears) == [b"0", b"1", b"2", b"3", b"4", b"c is gone"]
    assert arrears.left == ("a", "b")


def test_the_last_that_happened_to_a_session_is_what_is_owed() -> None:
    arrears = ViewerBacklog()
    arrears.changed("a")
    arrears.gone("a", b"gone")
    arrears.gone("b", b"gone")
    arrears.changed("b")
    assert paid(arrears) == [b"gone"]
    assert arrears.left == ("b",)


def test_nothing_is_owed_at_first() -> None:
    assert ViewerBacklog().pay() is None
    assert ViewerBacklog().left == ()


def test_there_is_room_for_so_many_words_so_many_bytes_and_so_many_sessions() -> None:
    arrears = ViewerBacklog()
    assert all(arrears.say(b"") for _ in range(MOST_WORDS))
    assert not arrears.say(b"")
    arrears = ViewerBacklog()
    assert arrears.say(b"x" * MOST_BYTES)
    assert not arrears.say(b"x")
    arrears = ViewerBacklog()
    assert all(arrears.changed(str(number)) for number in range(MOST_SESSIONS))
    assert arrears.changed("0")
    assert not arrears.changed("one more")
    assert not arrears.gone("two more", b"")


def test_what_is_paid_makes_room_and_what_comes_meanwhile_is_owed_behind_it() -> None:
    arrears = ViewerBacklog()
    assert arrears.say(b"1" * MOST_BYTES)
    assert arrears.gone("a", b"gone")
    assert arrears.pay() == b"1" * MOST_BYTES
    assert arrears.say(b"2" * MOST_BYTES)
    assert paid(arrears) == [b"2" * MOST_BYTES, b"gone"]


def test_a_copy_is_owed_the_same_and_has_a_life_of_its_own() -> None:
    arrears = ViewerBacklog()
    arrears.say(b"word")
    arrears.changed("a")
    arrears.gone("b", b"gone")
    copy = arrears.copy()
    assert paid(arrears) == paid(copy) == [b"word", b"gone"]
    assert copy.say(b"x" * MOST_BYTES)
    copy.changed("c")
    assert arrears.left == ("a",)
    assert (len(arrears), len(copy)) == (1, 2)
