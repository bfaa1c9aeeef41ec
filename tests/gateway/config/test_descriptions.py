"""Each setting has its line, and what is shown of it says no secret."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.config import values
from gateway.config.descriptions import BUCKET, DESCRIPTIONS, default_of, plain, rows, shown, table, value_of
from gateway.config.loading import load_settings
from gateway.config.settings import BUCKET_NAMES, KNOWN, SecretStr, Settings

LONG = "0123456789abcdef0123456789abcdef"


def test_every_setting_has_its_line_and_there_are_no_others() -> None:
    assert list(DESCRIPTIONS) == [known.name for known in KNOWN.values()]
    assert tuple(BUCKET) == BUCKET_NAMES
    for name, _, line in rows():
        assert line, name
        assert "\n" not in line
        assert not line.endswith("."), name
        assert "|" not in line, name
        assert len(line) <= 120, name


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("HOLDFAST_PORT", "`8080`"),
        ("HOLDFAST_SPOOL_BYTES", "`1 GiB`"),
        ("HOLDFAST_SNAPSHOT_GRACE", "`24 h`"),
        ("HOLDFAST_SYNC_DEBOUNCE", "`2 s`"),
        ("HOLDFAST_JWT_ISSUER", "none"),
        ("HOLDFAST_NETWORK", "`none`"),
        ("HOLDFAST_JWT_SECRET", "made once in the data directory"),
    ],
)
def test_defaults_are_those_of_the_code(name: str, default: str) -> None:
    assert default_of(name) == default


def test_values_are_shown_as_the_environment_has_them() -> None:
    shell = {"HOLDFAST_SHELL": "bash -c 'two words'", "HOLDFAST_COMPRESSION": "1", "HOLDFAST_LIMIT_CPUS": "1.5"}
    secret = {"HOLDFAST_API_TOKEN": LONG, "HOLDFAST_STORE": "postgresql://u:geheim@h/db", "HOLDFAST_IMAGES": "a,b"}
    settings = load_settings({**shell, **secret, "AWS_ACCESS_KEY_ID": LONG, "HOLDFAST_MAX_FRAME_BYTES": "5000"})
    assert {name: value_of(settings, name) for name in shell} == {
        **shell,
        "HOLDFAST_COMPRESSION": "true",
    }
    assert value_of(settings, "HOLDFAST_API_TOKEN") == value_of(settings, "AWS_ACCESS_KEY_ID") == "set"
    assert value_of(settings, "HOLDFAST_JWT_SECRET") == value_of(settings, "AWS_SESSION_TOKEN") == "not set"
    assert value_of(settings, "HOLDFAST_STORE") == "postgresql://u:***@h/db"
    assert value_of(settings, "HOLDFAST_IMAGES") == "a,b"
    assert value_of(settings, "HOLDFAST_AGENT") == "demo"
    assert value_of(settings, "HOLDFAST_SHELL") == "bash -c 'two words'"
    assert value_of(settings, "HOLDFAST_MAX_FRAME_BYTES") == "5000"
    assert value_of(Settings(data_dir=Path("d")), "HOLDFAST_DATA_DIR") == "d"
    assert shown(SecretStr(LONG)) == "set"


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("https://u:geheim@h.example/jwks", "https://***@h.example/jwks"),
        ("https://geheim@h.example/jwks", "https://***@h.example/jwks"),
        ("https://u:1/geheim@h.example/jwks", "https://***@h.example/jwks"),
        ("https://h.example/jwks?key=geheim&b", "https://h.example/jwks?key=***&***"),
        ("https://h.example/jwks?geheim#geheim", "https://h.example/jwks?***#***"),
        ("https://h.example:8443/jwks", "https://h.example:8443/jwks"),
    ],
)
def test_what_opens_an_address_of_keys_is_not_shown(address: str, told: str) -> None:
    given = {"HOLDFAST_JWT_JWKS_URL": address, "HOLDFAST_JWT_ISSUER": "i", "HOLDFAST_JWT_AUDIENCE": "a"}
    settings = load_settings(given)
    assert settings.jwt_jwks_url == address
    assert value_of(settings, "HOLDFAST_JWT_JWKS_URL") == told
    assert "geheim" not in " ".join(value_of(settings, name) for name, _, _ in rows())


@given(st.integers(0, 1 << 50))
def test_a_size_is_shown_as_it_can_be_read(number: int) -> None:
    assert values.size(0, 1 << 60)(shown(number, "bytes").replace("TiB", "GiB")) in (number, number >> 10)


@given(st.integers(0, 10**11).map(lambda number: number / 10))
@example(1_000_000.0)
@example(3_600_000_000.0)
def test_a_duration_is_shown_as_it_can_be_read(seconds: float) -> None:
    assert values.duration(shown(seconds, "s")) == pytest.approx(seconds, rel=1e-9)


def test_the_table_has_a_row_for_each() -> None:
    lines = table().splitlines()
    assert len(lines) == 2 + len(KNOWN) + len(BUCKET)
    (row,) = [line for line in lines if "`HOLDFAST_SPOOL_BYTES`" in line]
    told = "how much may wait in `spool.db` for Postgres. When it is full, senders get `nack storage_full`"
    assert row == f"| `HOLDFAST_SPOOL_BYTES` | `1 GiB` | {told} |"
    assert "[More](what-to-do.md#orphans) |" in table()
    assert plain("`a` b") == "a b"
