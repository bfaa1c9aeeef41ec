"""The file of `holdfast init` reads back as what was chosen, and so do its comments when they are taken out."""

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gateway.config.loading import load_settings
from gateway.config.new_file import PARTS, new_file, written
from gateway.config.settings import BUCKET_NAMES, KNOWN, Settings
from gateway.config.toml_settings import NAMES, read_toml

PATH = Path("holdfast.toml")
ALL = [NAMES[name] for names in PARTS.values() for name in names]
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)


def test_every_name_in_it_is_a_setting_and_stands_once() -> None:
    assert set(ALL) <= {*KNOWN, *BUCKET_NAMES}
    assert len(ALL) == len(set(ALL))


@given(st.dictionaries(st.sampled_from(ALL), TEXTS))
def test_what_was_chosen_is_read_back(chosen: dict[str, str]) -> None:
    file = read_toml(new_file(chosen).encode(), PATH)
    assert file.problems == ()
    assert {name: entry.text for name, entry in file.entries.items()} == chosen


def test_without_its_hashes_every_default_is_what_it_is_without_a_file() -> None:
    text = new_file({})
    uncommented = re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE)
    settings = load_settings({}, read_toml(uncommented.encode(), PATH))
    assert set(settings.sources) >= {"HOLDFAST_PORT", "HOLDFAST_SLEEP_AFTER", "HOLDFAST_MAX_STORED_PER_USER"}
    assert settings == load_settings({}, read_toml(b"", PATH))
    assert settings.port == Settings().port
    assert all(line.startswith("#") or not line for line in text.splitlines())


def test_numbers_stand_without_quotes_and_texts_in_them() -> None:
    assert written("HOLDFAST_PORT", "9000") == "9000"
    assert written("HOLDFAST_MAX_STORED_PER_USER", "1GiB") == '"1GiB"'
    assert written("HOLDFAST_JWT_ISSUER", "9000") == '"9000"'
    assert written("AWS_ACCESS_KEY_ID", '1"\x7f') == '"1\\"\\u007f"'
