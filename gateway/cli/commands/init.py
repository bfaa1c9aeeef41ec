"""`holdfast init`: a file of settings for this machine, and the secrets that a gateway needs."""

import os
import re
import secrets
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from getpass import getpass
from pathlib import Path
from urllib.parse import quote, urlsplit

from gateway.cli.arguments import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from gateway.cli.console.output import as_typed, complain, say
from gateway.config.config_file import USUAL
from gateway.config.loading import load_settings
from gateway.config.new_file import new_file
from gateway.config.settings import BUCKET_NAMES, CONFIG, KNOWN, PREFIX, Settings, SettingsError, resolve_secrets
from gateway.config.sources import shown_path
from gateway.config.store_url import store_url

ASKED = ("HOLDFAST_DATA_DIR", "HOLDFAST_STORE", "HOLDFAST_OBJECTS", "HOLDFAST_HOST", "HOLDFAST_PORT")
_KEYS = BUCKET_NAMES[:2]
_QUESTIONS = {
    "HOLDFAST_DATA_DIR": "The directory for all data?",
    "HOLDFAST_STORE": "Conversations: a file there, or the address of a Postgres (postgresql://user@host/database)?",
    "HOLDFAST_OBJECTS": "Workspaces: files there, or a bucket (s3://bucket/prefix?endpoint=https://host)?",
    "HOLDFAST_HOST": "The address to listen on (0.0.0.0: every machine that can reach this one)?",
    "HOLDFAST_PORT": "The port?",
}
_USUAL = {
    "HOLDFAST_DATA_DIR": ".holdfast",
    "HOLDFAST_STORE": "file",
    "HOLDFAST_OBJECTS": "files",
    "HOLDFAST_HOST": "127.0.0.1",
    "HOLDFAST_PORT": "8080",
}


@dataclass(frozen=True, slots=True)
class InitOptions:
    """`said` has texts by the names of the environment."""

    said: Mapping[str, str]
    asks: bool
    replaces: bool


def init(options: InitOptions) -> int:
    """Write the file and the secrets. Raises SettingsError; then nothing was written."""
    path = Path(os.environ.get(CONFIG) or USUAL)
    if problem := _in_the_way(path, replaces=options.replaces):
        complain(problem)
        return EXIT_FAILED
    if options.asks and not sys.stdin.isatty():
        complain("to write the settings without being asked, add --yes")
        return EXIT_USAGE
    if "HOLDFAST_STORE" in options.said and _password(options.said["HOLDFAST_STORE"]):
        told = "leave the password out, other users here could see it; set HOLDFAST_STORE in the environment instead"
        raise SettingsError([f"--store: {told}"])
    try:
        chosen = _choose(options)
    except EOFError:
        complain("nothing was written: not all questions were answered")
        return EXIT_FAILED
    try:
        settings = _checked(chosen, path)
    except SettingsError as error:
        raise SettingsError([_as_said(problem, options.said) for problem in error.problems]) from None
    with _draft(path, new_file(chosen)) as draft:
        resolve_secrets(settings)
        _put(draft, path, replaces=options.replaces)
    _tell(path, settings)
    return EXIT_OK


def _in_the_way(path: Path, *, replaces: bool) -> str | None:
    """The reason why the file cannot be written there. Raises SettingsError if no file can have that name."""
    shown = shown_path(path)
    try:
        os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise _cannot_write(path, exc) from exc
    if os.path.isdir(path):
        return f"{shown} is a directory: name a file in it with {CONFIG}"
    if os.path.exists(path) and not os.path.isfile(path):
        return f"{shown} is no regular file and is not replaced: name another with {CONFIG}"
    return None if replaces else f"{shown} is there already: --force replaces it, and {CONFIG} names another"


def _as_said(problem: str, said: Mapping[str, str]) -> str:
    """The problem with the option in place of the setting, where an option gave the value."""
    for name in said:
        option = "--" + name.removeprefix(PREFIX).lower().replace("_", "-")
        problem = re.sub(rf"\b{name}\b", option, problem)
    return problem


def _choose(options: InitOptions) -> dict[str, str]:
    """By the names of the environment; usual values are left out, except the data directory."""
    given = {name: os.environ[name] for name in (*ASKED, *BUCKET_NAMES) if os.environ.get(name)} | dict(options.said)
    if options.asks:
        for name in ASKED:
            if name not in given:
                given[name] = _ask(name)
        _ask_for_secrets(given)
    chosen = {name: text for name, text in given.items() if text != _USUAL.get(name)}
    if not chosen.get("HOLDFAST_OBJECTS", "").startswith("s3://"):
        chosen = {name: text for name, text in chosen.items() if name not in BUCKET_NAMES}
    return {"HOLDFAST_DATA_DIR": _USUAL["HOLDFAST_DATA_DIR"]} | chosen


def _ask(name: str) -> str:
    while True:
        answer = _line(f"{_QUESTIONS[name]} [{_USUAL[name]}] ") or _USUAL[name]
        if answer == _USUAL[name]:
            return answer
        try:
            KNOWN[name].metadata["read"](answer)
        except ValueError as exc:
            complain(f"this {exc}")
        else:
            return answer


def _ask_for_secrets(given: dict[str, str]) -> None:
    """Ask for the secrets that an address needs and does not have. They are not shown."""
    store = given["HOLDFAST_STORE"]
    user = urlsplit(store).username if store.startswith("postgres") else None
    if user and not _password(store) and (password := getpass(f"The password of {user} (empty: none): ")):
        given["HOLDFAST_STORE"] = store.replace("@", f":{quote(password, safe='')}@", 1)
    if given["HOLDFAST_OBJECTS"].startswith("s3://"):
        for name in _KEYS:
            while not given.get(name):
                given[name] = getpass(f"{name}: ")


def _line(question: str) -> str:
    sys.stderr.write(question)
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer:
        raise EOFError
    return answer.strip()


def _password(store: str) -> bool:
    try:
        return bool(store_url(store).passwords)
    except ValueError as wrong:  # a wrong address may hold one
        return "@" in store and ("no option" not in str(wrong) or "password" in str(wrong))


def _checked(chosen: dict[str, str], path: Path) -> Settings:
    """The settings as a gateway would read them; paths in `chosen` are changed so that they mean the same from the
    file's directory."""
    others = {name: text for name, text in os.environ.items() if name != CONFIG and name not in chosen}
    settings = load_settings(others | chosen)
    if path.parent != Path():
        chosen["HOLDFAST_DATA_DIR"] = str(settings.data_dir.absolute())
        if "HOLDFAST_STORE" in chosen and settings.store.kind == "sqlite":
            chosen["HOLDFAST_STORE"] = f"sqlite:///{settings.store.path.absolute()}"
        if "HOLDFAST_OBJECTS" in chosen and settings.objects.kind == "file":
            chosen["HOLDFAST_OBJECTS"] = f"file://{settings.objects.path.absolute()}"
    return settings


@contextmanager
def _draft(path: Path, text: str) -> Iterator[Path]:
    """The text in a file beside `path`, until the end. Raises SettingsError if none can be written there."""
    draft = path.parent / f".{USUAL}.{secrets.token_hex(8)}"
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError as exc:
        raise _cannot_write(path, exc) from exc
    try:
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except (OSError, UnicodeEncodeError) as exc:
            raise _cannot_write(path, exc) from exc
        yield draft
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()


def _put(draft: Path, path: Path, *, replaces: bool) -> None:
    """The file appears whole or not at all. Raises SettingsError."""
    try:
        if replaces:
            os.replace(draft, path)
        else:
            os.link(draft, path)
    except FileExistsError:
        raise SettingsError([f"{shown_path(path)} is there already: --force replaces it"]) from None
    except OSError as exc:
        raise _cannot_write(path, exc) from exc


def _cannot_write(path: Path, error: OSError | UnicodeEncodeError) -> SettingsError:
    why = error.strerror if isinstance(error, OSError) else "a name is not UTF-8"
    return SettingsError([f"{shown_path(path)} cannot be written: {why}; name another with {CONFIG}"])


def _tell(path: Path, settings: Settings) -> None:
    prefix = f"{CONFIG}={shlex.quote(str(path))} " if os.environ.get(CONFIG) else ""
    kept = shown_path(settings.data_dir / "secrets")
    say(f"{shown_path(path)} has the settings, {kept} the secrets; both are yours alone to read")
    say(f"  conversations:  {settings.store}")
    say(f"  workspaces:     {settings.objects}")
    say(f"  does it work:   {prefix}{as_typed('doctor')}")
    say(f"  start it:       {prefix}{as_typed('serve')}")
