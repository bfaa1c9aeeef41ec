"""A file of settings, read strictly: one `name = value` for each, no sections. Pure.

Names are those of the environment in small letters, without HOLDFAST_. Each value becomes the text that the environment
would hold, and the setting's one reader checks it. Each entry carries its line number, for error messages.
"""

import difflib
import re
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.config.settings import BUCKET_NAMES, CONFIG, KNOWN, PREFIX, SettingsError, WrittenForm, form_of
from gateway.config.sources import ConfigFile, SettingEntry, shown_path
from gateway.config.store_url import store_url
from gateway.config.values import without_credentials
from gateway.protocol.text import visible_line

_KEY = re.compile(r"\s*[\"']?([A-Za-z0-9_.-]+)[\"']?\s*=")
_SECTION = re.compile(r"\s*\[+\s*[\"']?([A-Za-z0-9_-]+)")
_PLACE = re.compile(r"(.+) \(at (?:line (\d+), column \d+|end of document)\)")
_CREDENTIALS = re.compile(r"://[^/@]*:[^/]*@|password=", re.IGNORECASE)
_LONG_NUMBER = re.compile(r"[\d_]{4300}", re.ASCII)
_NO_QUOTE = "has text whose last quote is missing"
_HINTS = {
    "Invalid value": "has no value that can be read: text stands in quotes",
    "Unterminated string": _NO_QUOTE,
    "Illegal character '\\n'": _NO_QUOTE,
    'Expected "\'"': _NO_QUOTE,
}
_NO_SECTIONS = "is a section: settings stand without sections, such as port = 8080"
_MOST_TOLD, _MOST_LOOKS = 20, 20
_LONGEST_KEY, _LONGEST_WORDS = 60, 200
_WRITTEN = 'a line is written as port = 8080 or as host = "127.0.0.1"'
NAMES = {name.removeprefix(PREFIX).lower(): name for name in (*KNOWN, *BUCKET_NAMES) if name != CONFIG}
_SECRETS = {name for name, known in KNOWN.items() if "Secret" in str(known.type)} | set(BUCKET_NAMES)


def read_toml(data: bytes, path: Path) -> ConfigFile:
    """Parse a file. Raises SettingsError if it cannot be parsed at all. Faults of single settings are among the
    problems."""
    text, found = _parse(data, path)
    places = _Places(text.split("\n"))
    entries: dict[str, SettingEntry] = {}
    problems: list[str] = []
    left_out = 0
    for key, value in found.items():
        if key not in NAMES and len(problems) == _MOST_TOLD:
            left_out += 1
            continue
        try:
            name = _known(key, value)
            written = as_text(form_of(name), value)
        except ValueError as exc:
            problems.append(f"{shown_path(path)}, line {places.line_of(key)}: {_shown_key(key)} {exc}")
            continue
        if written:
            entries[name] = SettingEntry(key, written, places.line_of(key))
    left_out += len(problems[_MOST_TOLD:])
    if left_out:
        problems[_MOST_TOLD:] = [f"{shown_path(path)}: {left_out} more are wrong"]
    return ConfigFile(path, entries, tuple(problems))


def secrets_in(file: ConfigFile) -> list[str]:
    """The names of the settings that no other user may read."""
    return [entry.name for name, entry in file.entries.items() if _is_secret(name, entry.text)]


def as_text(form: WrittenForm, value: Any) -> str:
    """The value in the environment's form. Raises ValueError with the expected form."""
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
            return True  # an option of the wrong name may be the password
    return name in _SECRETS or _CREDENTIALS.search(text) is not None


def _known(key: str, value: object) -> str:
    if isinstance(value, dict) or (isinstance(value, list) and value and isinstance(value[0], dict)):
        raise ValueError(_NO_SECTIONS)
    if key in NAMES:
        return NAMES[key]
    plain = key.lower().replace("-", "_").removeprefix(PREFIX.lower())
    if plain == CONFIG.removeprefix(PREFIX).lower():
        raise ValueError(f"cannot be set in the file: {CONFIG} names the file")
    near = [plain] if plain in NAMES else difflib.get_close_matches(plain[:_LONGEST_KEY], NAMES, n=1)
    raise ValueError(f"is no setting; did you mean {near[0]}?" if near else "is no setting: see `holdfast settings`")


def _shown_key(key: str) -> str:
    """The key as it is written where that is plain; else in quotes, on one line."""
    shown = visible_line(key, longest=_LONGEST_KEY)
    return shown if re.fullmatch(r"[A-Za-z0-9_-]+…?", shown) else f'"{shown}"'


def _parse(data: bytes, path: Path) -> tuple[str, Mapping[str, Any]]:
    shown = shown_path(path)
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as exc:
        line = data[: exc.start].count(b"\n") + 1
        raise SettingsError([f"{shown}, line {line}: is not UTF-8: write the file in that encoding"]) from None
    try:
        return text, tomllib.loads(text)
    except RecursionError:
        raise SettingsError([f"{shown} is nested too deep: {_WRITTEN}"]) from None
    except ValueError as exc:
        raise SettingsError([_told(str(exc), text.rstrip().split("\n"), shown)]) from None


def _told(words: str, lines: list[str], shown: str) -> str:
    """The problem for a TOML error, whose text names no value."""
    match = _PLACE.fullmatch(words)
    if match is None:  # Python's int, whose error names no place
        found = [number for number, line in enumerate(lines, 1) if _LONG_NUMBER.search(line)]
        return f"{shown}, line {[*found, 1][0]} has a number that is too large"
    number = int(match[2] or len(lines) or 1)
    line = lines[number - 1] if number <= len(lines) else ""
    section = _SECTION.match(line)
    if section and match[1].startswith("Cannot declare"):
        return f"{shown}, line {number}: {_shown_key(section[1])} {_NO_SECTIONS}"
    key = _KEY.match(line)
    if key and match[1].startswith("Cannot overwrite"):
        return f"{shown}, line {number}: {_shown_key(key[1])} stands a second time: keep one of them"
    if key and match[1] in _HINTS:
        return f"{shown}, line {number}: {_shown_key(key[1])} {_HINTS[match[1]]}"
    return f"{shown}, line {number} cannot be read ({visible_line(match[1], longest=_LONGEST_WORDS)}): {_WRITTEN}"


class _Places:
    """The lines on which settings stand."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._found: dict[str, list[int]] = {}
        self._looks = 0
        for number, line in enumerate(lines, 1):
            self._found.setdefault(_named(line), []).append(number)

    def line_of(self, key: str) -> int:
        """The line where a setting is set. A line inside a longer text may look the same: of several, this is the first
        that the text before it does not run into. That check takes long, so it is done a few times for each file."""
        found = self._found.get(key, [1])
        if len(found) == 1:
            return found[0]
        return next((number for number in found if self._is_whole(number)), found[0])

    def _is_whole(self, number: int) -> bool:
        self._looks += 1
        if self._looks > _MOST_LOOKS:
            return False
        try:
            tomllib.loads("\n".join(self._lines[: number - 1]))
        except (ValueError, RecursionError):
            return False
        return True


def _named(line: str) -> str:
    match = _KEY.match(line) or _SECTION.match(line)
    return match[1].partition(".")[0] if match else ""
