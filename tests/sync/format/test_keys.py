import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.format.keys import ROOT, Keys, prefix_in
from sync.objects.object_keys import is_key

NAME = "ab" * 32
users = st.text(max_size=40) | st.sampled_from(["", ".", "..", "../b", "a/b", "a\0", "\udcff", "a" * 10_000])
odd_names = st.sampled_from(
    ["", "A" * 64, "a" * 63, "a" * 65, "g" * 64, f"{NAME}/", f"../{NAME}", f"{NAME}\n", "é" * 64]
)
odd_ids = st.sampled_from(["", ".", "..", "-a", "_a", "a/b", "a.b", "a\n", "a" * 129, "é", "a b", "a/../b", "\0"])


@given(users)
def test_every_key_of_a_user_is_one_that_stores_take_and_lies_below_his_prefix(user: str) -> None:
    keys = Keys.of_user(user)
    for key in (keys.pack(NAME), keys.manifest(NAME), keys.pointer("s-1"), keys.marks):
        assert is_key(key)
        assert key.startswith(keys.prefix)
        assert prefix_in(key) == keys.prefix
    for prefix in (keys.packs, keys.manifests, keys.sessions):
        assert prefix.startswith(keys.prefix)
        assert prefix.endswith("/")


@given(users, users)
def test_two_users_share_no_key(one: str, other: str) -> None:
    if one != other:
        assert not Keys.of_user(one).prefix.startswith(Keys.of_user(other).prefix)
        assert Keys.of_user(one).pack_in(Keys.of_user(other).pack(NAME)) is None


def test_a_key_is_read_back_as_what_it_was_made_of() -> None:
    keys = Keys.of_user("u")
    assert keys.pack_in(keys.pack(NAME)) == NAME
    assert keys.manifest_in(keys.manifest(NAME)) == NAME
    assert keys.session_in(keys.pointer("s_1-X")) == "s_1-X"


def test_a_pointer_that_is_set_aside_is_told_from_all_else() -> None:
    keys = Keys.of_user("u")
    aside = keys.set_aside("s-1", "2026")
    assert is_key(aside)
    assert aside == f"{keys.session('s-1')}damaged-2026"
    assert keys.is_set_aside(aside)
    assert keys.session_in(aside) is None
    others = (keys.pointer("s-1"), keys.pointer("damaged-1"), keys.marks, f"{keys.packs}damaged-1")
    assert not any(map(keys.is_set_aside, (*others, Keys.of_user("v").set_aside("s-1", "2026"))))


@given(odd_names)
def test_what_is_no_name_makes_no_key_and_is_read_from_none(name: str) -> None:
    keys = Keys.of_user("u")
    for make in (keys.pack, keys.manifest):
        with pytest.raises(ValueError, match="part of a key"):
            make(name)
    assert keys.pack_in(keys.packs + name) is None
    assert keys.manifest_in(keys.manifests + name) is None


@given(odd_ids)
def test_what_is_no_session_id_makes_no_key_and_is_read_from_none(session_id: str) -> None:
    keys = Keys.of_user("u")
    with pytest.raises(ValueError, match="part of a key"):
        keys.pointer(session_id)
    assert keys.session_in(f"{keys.sessions}{session_id}/pointer") is None


@pytest.mark.parametrize("rest", ["s", "s/", "s/pointer/", "s/pointer.old", "s/x/pointer", "pointer", "/pointer"])
def test_only_a_pointer_tells_of_a_session(rest: str) -> None:
    keys = Keys.of_user("u")
    assert keys.session_in(keys.sessions + rest) is None


@pytest.mark.parametrize(
    "key", ["", "v1/users", ROOT, f"{ROOT}{'a' * 32}", f"{ROOT}{'A' * 32}/x", f"v2/users/{'a' * 32}/x"]
)
def test_a_key_that_is_none_of_ours_belongs_to_nobody(key: str) -> None:
    assert prefix_in(key) is None
