"""Where a setting comes from, in words."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gateway.config.sources import ConfigFile, SettingEntry, Source


def test_a_source_is_said_as_people_look_for_it() -> None:
    assert str(Source()) == "default"
    assert str(Source("environment", "HOLDFAST_PORT")) == "environment"


@given(st.integers(1, 10**6))
def test_of_a_file_the_line_is_said(line: int) -> None:
    entry = SettingEntry("port", "9", line)
    file = ConfigFile(Path("conf/holdfast.toml"), {"HOLDFAST_PORT": entry})
    assert str(file.source(entry)) == f"conf/holdfast.toml, line {line}"
    assert file.source(entry).name == "port"
