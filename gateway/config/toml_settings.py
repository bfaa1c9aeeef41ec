"""A file of settings, read strictly: one `name = value` for each, no sections. Pure.

Names are those of the environment in small letters, without HOLDFAST_. Each value becomes the text that the environment
would hold, and the setting's one reader checks it. A line number goes with each, for whoever has to change it.
"""

import difflib
import re
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.config.settings import BUCKET_NAMES, CONFIG, KNOWN, PREFIX, SettingsError, WrittenForm, form_of
from gateway.config.sources import ConfigFile, SettingEntry
from gateway.config.store_url import store_url
from gateway.config.values import without_credentials

_KEY = re.compile(r"\s*[\"']?([A-Za-z0-9_.-]+)[\"']?\s*=")
_SECTION = re.compile(r"\s*\[+\s*[\"']?([A-Za-z0-9_-]+)")
_PLACE = re.compile(r"(.+) \(at (?:line (\d+), column \d+|end of document)\)")
_CREDENTIALS = re.compile(r"://[^/@]*:[^/]*@|password=", re.IGNORECASE)
_HINTS = {"Invalid value": "has no value that can be read: text stands in quotes"}
_WRITTEN = 'a line is written as port = 8080 or as host = "127.0.0.1"'
NAMES = {name.removeprefix(PREFIX).lower(): name for name in (*KNOWN, *BUCKET_NAMES) if name != CONFIG}
_SECRETS = {name for name, known in KNOWN.items() if "Secret" in str(known.type)} | set(BUCKET_NAMES)


def read_toml(data: bytes, path: Path) -> ConfigFile:
    """Raises SettingsError if nothing can be read of it. What single settings have wrong is among the problems."""
    text, found = _parse(data, path)
    lines = text.splitlines()
    entries: dict[str, SettingEntry] = {}
    problems = []
    for key, value in found.items():
        line = _line_of(key, lines)
        try:
            name = _known(key, value)
            written = as_text(form_of(name), value)
        except ValueError as exc:
            problems.append(f"{path}, line {line}: {key} {exc}")
            continue
        if written:
            entries[name] = SettingEntry(key, written, line)
    return ConfigFile(path, entries, tuple(problems))


def secrets_in(file: ConfigFile) -> list[str]:
    """The names of those that nobody else may read."""
    return [entry.name for name, entry in file.entries.items() if _is_secret(name, entry.text)]


def as_text(form: WrittenForm, value: Any) -> str:
    """As the environment would hold it. Raises ValueError with what is wanted."""
    if isinstance(value, list) and form in (WrittenForm.LIST, WrittenForm.WORDS):
        if not all(isinstance(each, str) for each in value):
            raise ValueError("wants texts in its list, each in quotes")
        if form is WrittenForm.LIST and any("," in each for each in value):
            raise ValueError("wants no comma in a text of its list")
        text = shlex.join(value) if form is WrittenForm.WORDS else ",".join(value)
    elif isinstance(value, list):
        raise ValueError("wants one value and no list")
    elif isinstance(value, str):
        text = value
    elif form is WrittenForm.PLAIN:
        text = str(value).lower()
    else:
        raise ValueError("wants text in quotes" + ("" if form is WrittenForm.TEXT else ", or a list of texts"))
    if "\0" in text:
        raise ValueError("wants text without NUL")
    return text


def _is_secret(name: str, text: str) -> bool:
    if name == "HOLDFAST_JWT_JWKS_URL" and without_credentials(text) != text:
        return True
    if name == "HOLDFAST_STORE" and "?" in text:
        try:
            return bool(store_url(text).passwords)
        except ValueError:
            return True  # what is wrong in it may be the password's name
    return name in _SECRETS or _CREDENTIALS.search(text) is not None


def _known(key: str, value: object) -> str:
    if isinstance(value, dict) or (isinstance(value, list) and value and isinstance(value[0], dict)):
        raise ValueError("is a section: settings stand without sections, such as port = 8080")
    if key in NAMES:
        return NAMES[key]
    plain = key.lower().replace("-", "_").removeprefix(PREFIX.lower())
    if plain == CONFIG.removeprefix(PREFIX).lower():
        raise ValueError(f"cannot be set in the file: {CONFIG} names the file")
    near = [plain] if plain in NAMES else difflib.get_close_matches(plain, NAMES, n=1)
    raise ValueError(f"is no setting; did you mean {near[0]}?" if near else "is no setting: see `holdfast settings`")


def _parse(data: bytes, path: Path) -> tuple[str, Mapping[str, Any]]:
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as exc:
        line = data[: exc.start].count(b"\n") + 1
        raise SettingsError([f"{path}, line {line}: is not UTF-8: write the file in that encoding"]) from None
    try:
        return text, tomllib.loads(text)
    except RecursionError:
        raise SettingsError([f"{path} is nested too deep: {_WRITTEN}"]) from None
    except ValueError as exc:
        raise SettingsError([_told(str(exc), text.splitlines(), path)]) from None


def _told(words: str, lines: list[str], path: Path) -> str:
    """Of an error of TOML, whose words name no value."""
    match = _PLACE.fullmatch(words)
    if match is None:
        return f"{path} cannot be read ({words}): {_WRITTEN}"
    number = int(match[2] or len(lines) or 1)
    line = lines[number - 1] if number <= len(lines) else ""
    key = _KEY.match(line)
    if key and match[1].startswith("Cannot overwrite"):
        return f"{path}, line {number}: {key[1]} stands a second time: keep one of them"
    if key and match[1] in _HINTS:
        return f"{path}, line {number}: {key[1]} {_HINTS[match[1]]}"
    told = match[1].replace("\n", "\\n")
    return f"{path}, line {number} cannot be read ({told}): {_WRITTEN}"


def _line_of(key: str, lines: list[str]) -> int:
    """Where it is set. A line of a longer text may look the same: of several, the first that the text before it does
    not run into."""
    found = [number for number, line in enumerate(lines, 1) if _named(line) == key]
    if len(found) > 1:
        found = [number for number in found if _is_whole(lines[: number - 1])] or found
    return found[0] if found else 1


def _named(line: str) -> str:
    match = _KEY.match(line) or _SECTION.match(line)
    return match[1].partition(".")[0] if match else ""


def _is_whole(lines: list[str]) -> bool:
    try:
        tomllib.loads("\n".join(lines))
    except (ValueError, RecursionError):
        return False
    return True
