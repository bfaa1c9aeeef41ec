"""Where conversations are kept, as an address."""

from pathlib import Path

import pytest

from gateway.config.store_url import store_url


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("postgresql://u:p@h/db", "postgres://v:q@H/db?sslmode=require", True),
        ("postgresql://h/db", "postgresql://h/db2", False),
        ("postgresql://h/db", "postgresql://g/db", False),
        ("postgresql:///db?host=/a", "postgresql:///db?host=/b", False),
        ("https://h/api", "https://h/api/", True),
        ("https://h/api", "https://h/api2", False),
        ("https://h/db", "postgresql://h/db", False),
    ],
)
def test_the_place_tells_one_store_from_another(one: str, other: str, same: bool) -> None:
    assert (store_url(one).place == store_url(other).place) == same


@pytest.mark.parametrize(
    ("address", "near"),
    [
        ("postgresql://u:p@127.0.0.1:5432/db", True),
        ("postgresql://[::1]/db", True),
        ("postgresql:///db?host=/run/postgresql", True),
        ("postgresql://localhost,db.example/db", False),
        ("postgresql:///db?host=db.example", False),
        ("http://localhost:8000/", True),
        ("https://api.example", False),
    ],
)
def test_whether_a_store_is_on_this_machine_is_known(address: str, near: bool) -> None:
    assert store_url(address).is_near == near


def test_a_file_has_a_path_and_is_its_own_place() -> None:
    url = store_url("sqlite:///a/b.db")
    assert (url.kind, url.path, url.place, str(url)) == (
        "sqlite",
        Path("a/b.db"),
        "sqlite:///a/b.db",
        "sqlite:///a/b.db",
    )


def test_addresses_are_equal_by_their_text() -> None:
    one, same, other = map(store_url, ("https://h/a", "https://h/a", "https://h/b"))
    assert one == same != other
    assert hash(one) == hash(same)
    assert one != "https://h/a"


def test_a_password_is_never_printed() -> None:
    url = store_url("postgresql://u:secret%21@h/db?password=hidden&port=5433")
    assert repr(url) == "StoreUrl('postgresql://u:***@h/db?password=***&port=5433')"
    assert url.passwords == ["hidden", "secret!", "secret%21"]
    assert url.get_secret_value() == "postgresql://u:secret%21@h/db?password=hidden&port=5433", "for who connects"
    assert url.place == "postgresql://h/db?port=5433"
    assert store_url("https://h/a").passwords == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sqlite://x",
        "sqlite:///\0",
        "mysql://h/db",
        "postgresql://h",
        "postgresql://u:p@w@h/db",
        "postgresql://h:99999/db",
        "postgresql://h/db#x",
        "postgresql://h/d b",
        "https://[",
        "http://h/a",
        "https://u@h/a",
        "https://h:0/a",
        "https://h/a?b",
    ],
)
def test_what_is_no_address_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ValueError, match=r"wants|must|cannot") as refused:
        store_url(text)
    assert not text or text not in str(refused.value)
