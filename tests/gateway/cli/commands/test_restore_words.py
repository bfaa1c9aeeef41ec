"""What `holdfast restore` says to type next uses what was restored, whoever said where things were before."""

from pathlib import Path

from gateway.cli.commands.backup import elsewhere, environment_for
from gateway.config.loading import load_settings
from gateway.config.settings import Settings
from gateway.config.sources import ConfigFile
from gateway.config.toml_settings import read_toml

NEW = Path("/srv/new")


def words(environ: dict[str, str], file: ConfigFile | None = None) -> str:
    given = load_settings(environ, file)
    return environment_for(given, elsewhere(given, Settings(data_dir=NEW)), NEW)


def test_a_variable_is_unset_and_a_line_of_the_file_is_outdone() -> None:
    assert words({}) == "HOLDFAST_DATA_DIR=/srv/new"
    environ = {"HOLDFAST_STORE": "sqlite:////old/x.db"}
    assert words(environ) == "env -u HOLDFAST_STORE HOLDFAST_DATA_DIR=/srv/new"
    file = read_toml(b'objects = "file:///old/o"\nstore = "sqlite:////old/y.db"', Path("holdfast.toml"))
    assert words(environ, file) == (
        "env -u HOLDFAST_STORE HOLDFAST_DATA_DIR=/srv/new HOLDFAST_OBJECTS=file:///srv/new/objects"
    )
    assert words({}, file) == (
        "HOLDFAST_DATA_DIR=/srv/new HOLDFAST_STORE=sqlite:////srv/new/holdfast.db "
        "HOLDFAST_OBJECTS=file:///srv/new/objects"
    )
