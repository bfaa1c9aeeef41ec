"""A file of settings, read strictly: what is wrong in it is said with its line, and no secret is repeated."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.settings import BUCKET_NAMES, CONFIG, KNOWN, SettingsError, WrittenForm, form_of
from gateway.config.toml_settings import NAMES, as_text, read_toml, secrets_in

PATH = Path("holdfast.toml")
LONG = "0123456789abcdef0123456789abcdef"


def texts(written: str) -> dict[str, str]:
    file = read_toml(written.encode(), PATH)
    assert file.problems == ()
    return {name.removeprefix("HOLDFAST_"): entry.text for name, entry in file.entries.items()}


def problem(written: str | bytes) -> str:
    """The one line that says what to change."""
    data = written if isinstance(written, bytes) else written.encode()
    try:
        problems = list(read_toml(data, PATH).problems)
    except SettingsError as error:
        problems = error.problems
    (told,) = problems
    assert "\n" not in told
    return told


def test_every_setting_but_the_files_own_name_has_its_name_in_the_file() -> None:
    assert set(NAMES.values()) == {*KNOWN, *BUCKET_NAMES} - {CONFIG}
    assert (NAMES["port"], NAMES["aws_access_key_id"]) == ("HOLDFAST_PORT", "AWS_ACCESS_KEY_ID")


def test_values_become_what_the_environment_would_hold() -> None:
    assert texts(
        'port = 9000\nsleep_after = "20m"\nlimit_cpus = 1.5\ncompression = true\nhost = "::1"\n'
        'allowed_origins = ["https://a.example", "https://b.example"]\nshell = ["bash", "-c", "two words"]\n'
        'agent = ["my-agent", "--flag"]\nnetwork = ""\njwt_audience = "ä"\n'
    ) == {
        "PORT": "9000",
        "SLEEP_AFTER": "20m",
        "LIMIT_CPUS": "1.5",
        "COMPRESSION": "true",
        "HOST": "::1",
        "ALLOWED_ORIGINS": "https://a.example,https://b.example",
        "SHELL": "bash -c 'two words'",
        "AGENT": "my-agent --flag",
        "JWT_AUDIENCE": "ä",
    }


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("prot = 1", "holdfast.toml, line 1: prot is no setting; did you mean port?"),
        ("\nPort = 1", "holdfast.toml, line 2: Port is no setting; did you mean port?"),
        ("HOLDFAST_PORT = 1", "holdfast.toml, line 1: HOLDFAST_PORT is no setting; did you mean port?"),
        ("sleep-after = 1", "holdfast.toml, line 1: sleep-after is no setting; did you mean sleep_after?"),
        ("xyzzy = 1", "holdfast.toml, line 1: xyzzy is no setting: see `holdfast settings`"),
        ('config = "x"', "holdfast.toml, line 1: config cannot be set in the file: HOLDFAST_CONFIG names the file"),
        (
            "[server]\nport = 1",
            "holdfast.toml, line 1: server is a section: settings stand without sections, such as port = 8080",
        ),
        (
            "server.port = 1",
            "holdfast.toml, line 1: server is a section: settings stand without sections, such as port = 8080",
        ),
        (
            "[[agents]]\nname = 1",
            "holdfast.toml, line 1: agents is a section: settings stand without sections, such as port = 8080",
        ),
        ("host = 127", "holdfast.toml, line 1: host wants text in quotes"),
        ("host = true", "holdfast.toml, line 1: host wants text in quotes"),
        ('host = ["a"]', "holdfast.toml, line 1: host wants one value and no list"),
        ("images = 5", "holdfast.toml, line 1: images wants text in quotes, or a list of texts"),
        ("images = [5]", "holdfast.toml, line 1: images wants texts in its list, each in quotes"),
        ('images = ["a,b"]', "holdfast.toml, line 1: images wants no comma in a text of its list"),
        ('host = "a\\u0000"', "holdfast.toml, line 1: host wants text without NUL"),
        ("port = 1\n\nport = 2\n", "holdfast.toml, line 3: port stands a second time: keep one of them"),
        ("port = 1\nport = 2", "holdfast.toml, line 2: port stands a second time: keep one of them"),
        ("host = localhost", "holdfast.toml, line 1: host has no value that can be read: text stands in quotes"),
        ('host = "a\n', "holdfast.toml, line 1: host has text whose last quote is missing"),
        ("host = 'a\n", "holdfast.toml, line 1: host has text whose last quote is missing"),
        ('host = "a', "holdfast.toml, line 1: host has text whose last quote is missing"),
        ("host = 'a", "holdfast.toml, line 1: host has text whose last quote is missing"),
        (
            "[a]\nx = 1\n[a]",
            "holdfast.toml, line 3: a is a section: settings stand without sections, such as port = 8080",
        ),
        ('"a\\nb" = 1', 'holdfast.toml, line 1: "a\\nb" is no setting: see'),
        ('"a\\u001bb" = 1', 'holdfast.toml, line 1: "a\\x1bb" is no setting: see'),
        ('"" = 1', 'holdfast.toml, line 1: "" is no setting: see'),
        ("x" * 200 + " = 1", f"holdfast.toml, line 1: {'x' * 60}… is no setting: see"),
        (
            "port = 1\n[" + "x" * 200 + "]\n[" + "x" * 200 + "]",
            f"holdfast.toml, line 3: {'x' * 60}… is a section",
        ),
        ("port 80", "holdfast.toml, line 1 cannot be read (Expected '=' after a key in a key/value pair): a line is"),
        ("# \n= 5", "holdfast.toml, line 2 cannot be read (Invalid statement): a line is written as port = 8080"),
        ("images = [1,\n", "holdfast.toml, line 1: images has no value that can be read: text stands in quotes"),
        ("x = " + "[" * 5000, "holdfast.toml is nested too deep: a line is written as port = 8080"),
        ("port = " + "9" * 5000, "holdfast.toml, line 1 has a number that is too large"),
        (b"# fine\nhost = '\xff'", "holdfast.toml, line 2: is not UTF-8: write the file in that encoding"),
    ],
    ids=str,
)
def test_what_is_wrong_is_one_line_that_says_what_to_change(written: str | bytes, told: str) -> None:
    assert problem(written).startswith(told)


def test_all_problems_are_told_at_once() -> None:
    file = read_toml(b"prot = 1\nport = 9\nhost = 5\n", PATH)
    assert [told.partition(":")[0] for told in file.problems] == ["holdfast.toml, line 1", "holdfast.toml, line 3"]
    assert list(file.entries) == ["HOLDFAST_PORT"]


def test_of_many_problems_twenty_are_told_and_how_many_more() -> None:
    text = "".join(f"wrong_{number} = 1\n" for number in range(10_000)) + "host = 5\nport = 9\n"
    file = read_toml(text.encode(), PATH)
    assert len(file.problems) == 21
    assert file.problems[19].startswith("holdfast.toml, line 20: wrong_19 is no setting")
    assert file.problems[20] == "holdfast.toml: 9981 more are wrong"
    assert file.entries["HOLDFAST_PORT"].line == 10_002
    lines = "port = 1\n" * 10_000
    assert read_toml(f'host = """{lines}"""\nport = 2'.encode(), PATH).entries["HOLDFAST_PORT"].text == "2"


def test_paths_are_shown_on_one_line_and_cut() -> None:
    for path, shown in ((Path("a\n\x1bb"), "a\\n\\x1bb"), (Path("p" * 4000), "p" * 200 + "…")):
        file = read_toml(b"prot = 1\nport = 1", path)
        assert file.problems[0].startswith(f"{shown}, line 1: prot")
        assert str(file.source(file.entries["HOLDFAST_PORT"])) == f"{shown}, line 2"
        with pytest.raises(SettingsError, match="line 1 cannot be read") as refused:
            read_toml(b"port 1", path)
        assert refused.value.problems[0].startswith(shown)


def test_a_line_inside_a_longer_text_is_not_taken_for_the_setting() -> None:
    file = read_toml(b'jwt_issuer = """\nport = 1\n"""\n"port" = 2\n', PATH)
    assert (file.entries["HOLDFAST_PORT"].line, file.entries["HOLDFAST_JWT_ISSUER"].line) == (4, 1)


def test_a_name_that_no_line_begins_with_is_on_the_first() -> None:
    assert problem('"\\u0070rot" = 1').startswith("holdfast.toml, line 1: prot is no setting")


def test_windows_line_ends_and_its_mark_are_read() -> None:
    assert texts("\ufeffport = 1\r\nhost = 'h'\r\n") == {"PORT": "1", "HOST": "h"}


def test_secrets_are_found_whichever_setting_holds_them() -> None:
    written = f"""
        jwt_secret = "{LONG}"
        aws_secret_access_key = "x"
        store = "postgresql://u:p@h/db"
        host = "h"
    """
    assert secrets_in(read_toml(written.encode(), PATH)) == ["jwt_secret", "aws_secret_access_key", "store"]
    assert secrets_in(read_toml(b'store = "postgresql:///db?host=h&password=p"', PATH)) == ["store"]
    assert secrets_in(read_toml(b'store = "postgresql://u@h/db"', PATH)) == []
    assert secrets_in(read_toml(b'store = "postgresql://u@h/db?sslmode=require"', PATH)) == []
    for option in (b"passwd", b"p%61ssword", b"app.key"):
        assert secrets_in(read_toml(b'store = "postgresql://u@h/db?' + option + b'=x"', PATH)) == ["store"]
    for address in (b"https://h/j?key=k", b"https://u:p@h/j", b"https://k@h/j"):
        assert secrets_in(read_toml(b'jwt_jwks_url = "' + address + b'"', PATH)) == ["jwt_jwks_url"]
    assert secrets_in(read_toml(b'jwt_jwks_url = "https://h/j"', PATH)) == []


@given(st.sampled_from(sorted(NAMES)), st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30))
def test_any_text_in_quotes_comes_out_as_it_was(name: str, value: str) -> None:
    quoted = "".join(f"\\U{ord(each):08x}" for each in value)
    found = read_toml(f'# one\n{name} = "{quoted}"\n'.encode(), PATH).entries
    assert [(entry.text, entry.line) for entry in found.values()] == ([(value, 2)] if value else [])


VALUES = st.recursive(
    st.one_of(st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.dates(), st.times()),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@given(st.sampled_from(WrittenForm), VALUES)
def test_whatever_a_value_is_there_is_text_for_it_or_a_wish(form: WrittenForm, value: Any) -> None:
    try:
        found = as_text(form, value)
    except ValueError as error:
        found = f"{error}, and no text"
    assert "\0" not in found
    assert isinstance(found, str)


@given(st.binary(max_size=60))
def test_no_bytes_make_the_reader_fail_otherwise_than_with_its_words(data: bytes) -> None:
    try:
        tomllib.loads(data.decode().replace("\r\n", "\n"))
    except ValueError:
        assert problem(data).startswith("holdfast.toml")


def test_forms_follow_from_the_declaration() -> None:
    assert form_of("HOLDFAST_LIMIT_MEMORY") is form_of("HOLDFAST_DEMO") is WrittenForm.PLAIN
    assert form_of("HOLDFAST_SYNC_AGENT_SKIP") is WrittenForm.LIST
    assert form_of("HOLDFAST_SHELL") is form_of("HOLDFAST_AGENT") is WrittenForm.WORDS
    assert form_of("HOLDFAST_STORE") is form_of("AWS_ACCESS_KEY_ID") is WrittenForm.TEXT
