"""Options of a Postgres address: a misspelt one is refused by its name, and no unknown value is shown."""

import pytest

from gateway.config.postgres_options import _DRIVER, PASSWORDS
from gateway.config.store_url import store_url

SECRET = "TOPSECRETx"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("passwd", "password"),
        ("pwd", "password"),
        ("pass", "password"),
        ("Password", "password"),
        ("PASSWORD", "password"),
        ("pasword", "password"),
        ("sslpass", "sslpassword"),
        ("ssl_mode", "sslmode"),
        ("sslmod", "sslmode"),
        ("username", "user"),
        ("p%61sswd", "password"),
    ],
)
def test_a_misspelt_option_is_refused_by_name_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(ValueError, match=f"; did you mean {near}") as refused:
        store_url(f"postgresql://u@127.0.0.1:9/db?sslmode=require&{name}={SECRET}")
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("query", [SECRET, f"sslmode=require&{SECRET}", "sslmode=require&"])
def test_an_option_without_a_value_is_refused_and_not_repeated(query: str) -> None:
    with pytest.raises(ValueError, match="wants options as name=value") as refused:
        store_url(f"postgresql://u@h/db?{query}")
    assert SECRET not in str(refused.value)


def test_a_name_that_is_no_name_is_not_repeated() -> None:
    with pytest.raises(ValueError, match="has no option of that name; did you mean password") as refused:
        store_url(f"postgresql://u@h/db?password%1b=x&password={SECRET}")
    assert "\x1b" not in str(refused.value)


@pytest.mark.parametrize("name", ["app.tenant", "geqo_seed", "options", "extra_float_digits"])
def test_what_the_server_may_know_is_taken_and_not_shown(name: str) -> None:
    url = store_url(f"postgresql://u@h/db?{name}={SECRET}&sslmode=require")
    assert str(url) == f"postgresql://u@h/db?{name}=***&sslmode=require"
    assert url.passwords == [SECRET]


@pytest.mark.parametrize("name", ["application_name", "statement_timeout", "TimeZone", "DateStyle", "role"])
def test_what_is_harmless_is_shown(name: str) -> None:
    text = f"postgresql://u@h/db?{name}=x"
    assert str(store_url(text)) == text
    assert store_url(text).passwords == []


@pytest.mark.parametrize("name", sorted(_DRIVER | PASSWORDS))
def test_what_the_driver_knows_is_taken(name: str) -> None:
    assert store_url(f"postgresql://u@h/db?{name}=1")
