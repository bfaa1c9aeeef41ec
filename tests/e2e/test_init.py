"""`holdfast init`: a file that a gateway starts with, and what it refuses; and files that are wrong in every way."""

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gateway.cli.main import main
from gateway.config.config_file import MOST_BYTES, read_config
from gateway.config.loading import load_settings
from tests.support.at_terminal import at_terminal
from tests.support.chat import hear, say
from tests.support.gateway import PASSED_ON, REPOSITORY, GatewayByCommandLine
from tests.support.s3 import S3Place

LONG = "0123456789abcdef0123456789abcdef"


def base() -> dict[str, str]:
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ} | {"PYTHONPATH": str(REPOSITORY)}


async def holdfast(place: Path, *words: str, **environ: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", *words, cwd=place, env=base() | environ,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    said, complained = await process.communicate()
    return process.returncode, said.decode(), complained.decode()


class GatewayOfFile(GatewayByCommandLine):
    """`holdfast serve` in a directory that holds its file; the environment says the port and nothing else."""

    def __init__(self, place: Path) -> None:
        super().__init__(place / ".holdfast")
        self.code = place

    def environment(self) -> dict[str, str]:
        return base() | {"HOLDFAST_PORT": str(self.settings["PORT"])}


async def talk(gateway: GatewayOfFile) -> None:
    """A message is stored, and the workspace with it."""
    await gateway.create("first")
    async with gateway.chat("first") as socket:
        await say(socket, "message", content="hello", cid="c1")
        assert (await hear(socket, "ack"))["cid"] == "c1"
        await hear(socket, "done")
    assert (await gateway.messages("first"))[0]["content"] == "hello"
    async with gateway.http() as client:
        answer = await client.post("/api/sandboxes/first/sync", params={"wait": "true"})
        assert answer.status_code == 200, answer.text


async def test_init_and_serve_in_an_empty_directory(tmp_path: Path) -> None:
    code, said, complained = await holdfast(tmp_path, "init", "--yes")
    assert (code, complained) == (0, "")
    assert "holdfast.toml has the settings" in said
    places = [tmp_path / "holdfast.toml", *(tmp_path / ".holdfast" / "secrets").iterdir()]
    assert {path.name for path in places} == {
        "holdfast.toml", "jwt_secret", "api_token", "internal_token", "relay_secret", "vault_key",
    }  # fmt: skip
    assert {stat.S_IMODE(path.stat().st_mode) for path in places} == {0o600}
    secret = (tmp_path / ".holdfast" / "secrets" / "jwt_secret").read_text()
    async with GatewayOfFile(tmp_path) as gateway:
        await talk(gateway)
    code, _, complained = await holdfast(tmp_path, "init", "--yes")
    assert code == 1
    assert "holdfast.toml is there already: --force replaces it" in complained
    code, _, complained = await holdfast(tmp_path, "init", "--yes", "--force", "--port", "9000")
    assert (code, complained) == (0, "")
    assert "\nport = 9000\n" in (tmp_path / "holdfast.toml").read_text()
    assert (tmp_path / ".holdfast" / "secrets" / "jwt_secret").read_text() == secret, "tokens stay good"
    assert {path.name for path in tmp_path.iterdir()} == {".holdfast", ".holdfast.log", "holdfast.toml"}


async def test_a_device_is_not_replaced(tmp_path: Path) -> None:
    """HOLDFAST_CONFIG=/dev/null is for no file; root could put a file in its place."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code, _, complained = await holdfast(tmp_path, "init", "--yes", "--force", HOLDFAST_CONFIG=str(pipe))
    assert (code, "is no regular file and is not replaced" in complained) == (1, True)
    assert pipe.is_fifo()


async def test_init_and_serve_with_postgres_and_a_bucket(tmp_path: Path, postgres_url: str, s3_place: S3Place) -> None:
    """All that they need is in the file: the gateway's own environment has nothing of it."""
    given = s3_place.environ | {"HOLDFAST_STORE": postgres_url}
    code, said, complained = await holdfast(tmp_path, "init", "--yes", **given)
    assert (code, complained) == (0, "")
    assert s3_place.secret_access_key not in said
    settings = load_settings({}, read_config({"HOLDFAST_CONFIG": str(tmp_path / "holdfast.toml")}))
    assert settings.store.get_secret_value() == postgres_url
    async with GatewayOfFile(tmp_path) as gateway:
        await talk(gateway)
        assert not (gateway.data_dir / "objects").exists()
        assert not (gateway.data_dir / "holdfast.db").exists()


async def test_a_person_is_asked_and_passwords_are_not_shown(tmp_path: Path) -> None:
    env = base() | {"HOLDFAST_CONFIG": str(tmp_path / "gateway.toml"), "TERM": "xterm"}
    async with at_terminal("init", env=env) as person:
        await person.until(b"The directory for all data? [.holdfast] ")
        person.type(str(tmp_path / "data").encode() + b"\r")
        await person.until(b"Conversations: ")
        person.type(b"mysql://h\r")
        await person.until(b"this wants sqlite:///path, postgresql://user:password@host/database")
        person.type(b"postgresql://ann@127.0.0.1/db\r")
        await person.until(b"Workspaces: ")
        person.type(b"\r")
        await person.until(b"The address to listen on")
        person.type(b"0.0.0.0\r")
        await person.until(b"The port? [8080] ")
        person.type(b"9000\r")
        await person.until(b"The password of ann")
        person.type(b"gehe/im22\r")
        assert await person.finish() == 0
        await person.until(b"gateway.toml has the settings")
        assert b"gehe" not in person.seen
    settings = load_settings({}, read_config({"HOLDFAST_CONFIG": str(tmp_path / "gateway.toml")}))
    assert urlsplit(settings.store.get_secret_value()).password == "gehe%2Fim22"
    assert (settings.host, settings.port, settings.data_dir) == ("0.0.0.0", 9000, tmp_path / "data")


@pytest.mark.parametrize(
    ("words", "environ", "code", "told"),
    [
        ([], {}, 2, "to write the settings without being asked, add --yes"),
        (["--yes", "--store", "postgresql://u:geheim@h/db"], {}, 2, "--store: leave the password out"),
        (["--yes", "--store", "postgresql://u@h/db?passwd=geheim"], {}, 2, "--store: leave the password out"),
        (["--yes", "--store", "postgresql://u@h/db?sslmod=x"], {}, 2, "--store has no option sslmod; did you mean"),
        (["--yes", "--store", "postgresql://u@h/db?app.key=geheim"], {}, 2, "--store: leave the password out"),
        (["--yes", "--port", "many"], {}, 2, "--port wants a whole number"),
        (["--yes", "--objects", "s3://bucket/p"], {}, 2, "--objects needs ?region="),
        (["--yes"], {"HOLDFAST_PROT": "1"}, 2, "HOLDFAST_PROT is no setting; did you mean HOLDFAST_PORT?"),
        (["--yes"], {"HOLDFAST_CONFIG": "no/such/place.toml"}, 2, "no/such/place.toml cannot be written: No such file"),
    ],
    ids=str,
)
async def test_what_cannot_be_written_is_said_and_nothing_is(
    tmp_path: Path, words: list[str], environ: dict[str, str], code: int, told: str
) -> None:
    got, said, complained = await holdfast(tmp_path, "init", *words, **environ)
    assert (got, said) == (code, "")
    assert complained.startswith(f"holdfast: {told}")
    assert complained.count("\n") == 1
    assert "geheim" not in complained
    assert not list(tmp_path.iterdir()), "nothing was made"


@pytest.mark.parametrize("place", [".", "/", "..", "made"])
@pytest.mark.parametrize("words", [(), ("--force",)])
def test_a_directory_is_not_replaced(
    place: str, words: tuple[str, ...], alone: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (alone / "made").mkdir()
    monkeypatch.setenv("HOLDFAST_CONFIG", place)
    assert main(["init", "--yes", *words]) == 1
    told = f"holdfast: {place} is a directory: name a file in it with HOLDFAST_CONFIG\n"
    assert capsys.readouterr().err == told
    assert [path.name for path in alone.iterdir()] == ["made"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("p" * 255, "p" * 200 + "…"),
        ("a\n\x1bb", "a\\n\\x1bb"),
        ("p" * 256, "p" * 200 + "…"),
        ("p" * 5000, "p" * 200 + "…"),
    ],
    ids=["long", "unseen", "too long", "much too long"],
)
def test_a_file_of_any_name_is_written_or_refused_in_one_line(
    name: str, shown: str, alone: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_CONFIG", name)
    code = main(["init", "--yes"])
    said = capsys.readouterr()
    if len(name) > 255:
        assert code == 2
        told = f"{shown} cannot be written: File name too long; name another with HOLDFAST_CONFIG"
        assert said.err == f"holdfast: {told}\n"
        assert not list(alone.iterdir())
    else:
        assert (code, said.err) == (0, "")
        assert said.out.startswith(f"{shown} has the settings")
        assert (alone / name).is_file()


def test_init_elsewhere_names_the_same_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_CONFIG", "conf/x.toml")
    assert main(["init", "--yes", "--store", "sqlite:///a.db", "--objects", "file://o"]) == 0
    settings = load_settings({}, read_config(os.environ))
    assert settings.data_dir == tmp_path / ".holdfast"
    assert (settings.store.path, settings.objects.path) == (tmp_path / "a.db", tmp_path / "o")


LINE_1 = "holdfast.toml, line 1"
WRONG: dict[str, tuple[str | bytes, int, str]] = {
    "an unknown name": ("xyzzy = 1", 0o600, f"{LINE_1}: xyzzy is no setting: see `holdfast settings`"),
    "a misspelt name": ("prot = 1", 0o600, f"{LINE_1}: prot is no setting; did you mean port?"),
    "the environment's name": ("HOLDFAST_PORT = 1", 0o600, f"{LINE_1}: HOLDFAST_PORT is no setting; did you mean"),
    "a number for a text": ("host = 1", 0o600, f"{LINE_1}: host wants text in quotes"),
    "a text for a number": ('port = "many"', 0o600, f"port ({LINE_1}) wants a whole number from 0 to 65535"),
    "a number that is too large": ("port = 70000", 0o600, f"port ({LINE_1}) wants a whole number from 0 to 65535"),
    "a switch that is none": ("demo = 7", 0o600, f"demo ({LINE_1}) wants true or false"),
    "a duration that is none": ('sleep_after = "soon"', 0o600, f"sleep_after ({LINE_1}) wants seconds, or a duration"),
    "a date": ("sleep_after = 2026-01-01", 0o600, f"sleep_after ({LINE_1}) wants seconds, or a duration"),
    "a list for one value": ("port = [1]", 0o600, f"{LINE_1}: port wants one value and no list"),
    "a section": ("[server]\nport = 1", 0o600, f"{LINE_1}: server is a section: settings stand without sections"),
    "a name twice": ("port = 1\nport = 2", 0o600, "holdfast.toml, line 2: port stands a second time: keep one of them"),
    "no quotes": ("host = localhost", 0o600, f"{LINE_1}: host has no value that can be read: text stands in quotes"),
    "no TOML": ("port 80", 0o600, f"{LINE_1} cannot be read (Expected '=' after a key"),
    "a quote that does not end": ('host = "x', 0o600, f"{LINE_1}: host has text whose last quote is missing"),
    "not UTF-8": (b"host = '\xff'", 0o600, f"{LINE_1}: is not UTF-8: write the file in that encoding"),
    "too large": (b"#" * (MOST_BYTES + 1), 0o600, "holdfast.toml is larger than 256 KiB: it is no file of settings"),
    "deep": ("port = " + "[" * 9000, 0o600, "holdfast.toml is nested too deep: a line is written as port = 8080"),
    "a secret that others read": (f'api_token = "{LONG}"', 0o644, "holdfast.toml holds api_token, and others may read"),
    "a password that others read": (
        'store = "postgresql://u:p@h/db"', 0o644, "holdfast.toml holds store, and others may read it: chmod 600",
    ),
    "a secret that is short": ('api_token = "x"', 0o600, f"api_token ({LINE_1}) is too short: at least 16 bytes"),
    "everybody writes it": ("port = 1", 0o666, "holdfast.toml says which programs run, and all users may write it"),
    "a contradiction": ('network = "outbound"\nhost = "0.0.0.0"', 0o600, f"network ({LINE_1}) is outbound and"),
    "its own name": ('config = "x"', 0o600, f"{LINE_1}: config cannot be set in the file: HOLDFAST_CONFIG names"),
    "what is not built": ('redis = "redis://h"', 0o600, f"redis ({LINE_1}): running on many nodes is not built yet"),
}  # fmt: skip


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("HOLDFAST_") or name == "PORT"]:
        monkeypatch.delenv(name)
    return tmp_path


def refused(told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"holdfast: {told}")
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_file_gets_one_line_that_says_what_to_change(
    wrong: str, alone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, mode, told = WRONG[wrong]
    path = alone / "holdfast.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    refused(told, capsys)
    assert list(alone.iterdir()) == [path], "nothing was made"


def test_what_is_there_and_no_file_gets_one_line(
    alone: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = alone / "holdfast.toml"
    path.mkdir()
    refused("holdfast.toml is a directory: name the file in it with HOLDFAST_CONFIG", capsys)
    path.rmdir()
    os.mkfifo(path)
    refused("holdfast.toml is no regular file: name one with HOLDFAST_CONFIG", capsys)
    path.unlink()
    path.symlink_to(path)
    refused("holdfast.toml is a link that leads back to itself: remove it, or name another", capsys)
    monkeypatch.setenv("HOLDFAST_CONFIG", "gone.toml")
    refused("HOLDFAST_CONFIG: there is no file gone.toml", capsys)


async def test_a_file_that_may_not_be_read_gets_one_line(tmp_path: Path) -> None:
    """As somebody who is not root, whom no mode keeps out."""
    tmp_path.chmod(0o755)
    path = tmp_path / "holdfast.toml"
    path.write_text("port = 1")
    path.chmod(0)
    script = (
        "import os\nfrom gateway.config.config_file import read_config\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: read_config({})\nexcept Exception as e: print(e)"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, cwd=tmp_path, env=base(), stdout=subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert said.decode().startswith("holdfast.toml cannot be read: Permission denied; change its permissions")
