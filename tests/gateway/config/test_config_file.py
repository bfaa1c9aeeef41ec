"""The file of settings: which one is read, who may have written it, and how it goes together with the environment."""

import os
import socket
from pathlib import Path

import pytest

from gateway.config.config_file import MOST_BYTES, read_config
from gateway.config.loading import load_settings
from gateway.config.settings import Settings, SettingsError
from gateway.config.sources import Source

LONG = "0123456789abcdef0123456789abcdef"
OTHER = 4242


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str | bytes, path: str = "holdfast.toml", mode: int = 0o600) -> Path:
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(text if isinstance(text, bytes) else text.encode())
    place.chmod(mode)
    return place


def load(**environ: str) -> Settings:
    return load_settings(environ, read_config(environ))


def refusal(**environ: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load(**environ)
    (told,) = caught.value.problems
    assert "\n" not in told
    return told


def test_without_a_file_all_is_as_before() -> None:
    assert read_config({}) is None
    assert load().config is None


def test_the_file_in_this_directory_is_read_and_the_environment_wins() -> None:
    write('port = 9000\nhost = "::1"\nsleep_after = "20m"\n')
    settings = load(HOLDFAST_PORT="9001", HOLDFAST_HOST="")
    assert (settings.port, settings.host, settings.sleep_after) == (9001, "::1", 1200)
    assert settings.config == Path("holdfast.toml")
    assert settings.sources["HOLDFAST_PORT"] == Source("environment", "HOLDFAST_PORT")
    assert str(settings.sources["HOLDFAST_SLEEP_AFTER"]) == "holdfast.toml, line 3"
    assert "HOLDFAST_STORE" not in settings.sources


def test_a_platforms_port_is_of_the_environment() -> None:
    write("port = 9000")
    settings = load(PORT="5000")
    assert (settings.port, settings.host) == (5000, "0.0.0.0")
    assert settings.sources["HOLDFAST_HOST"] == Source("environment", "PORT")
    assert settings.sources["HOLDFAST_PORT"] == Source("environment", "PORT")
    write('port = 9000\nhost = "127.0.0.1"')
    settings = load(PORT="5000")
    assert settings.host == "127.0.0.1", "the operator says otherwise"
    assert settings.sources["HOLDFAST_HOST"].kind == "file"


def test_another_file_is_named_and_its_paths_start_there() -> None:
    write('port = 1\ndata_dir = "elsewhere"')
    write(
        'data_dir = "data"\nstore = "sqlite:///x.db"\nobjects = "file://o"\nagents_dir = "/opt/agents"',
        "conf/gateway.toml",
    )
    settings = load(HOLDFAST_CONFIG="conf/gateway.toml")
    assert (settings.port, settings.data_dir) == (8080, Path("conf/data"))
    assert (settings.store.path, settings.objects.path) == (Path("conf/x.db"), Path("conf/o"))
    assert settings.agents_dir == Path("/opt/agents")
    assert load(HOLDFAST_CONFIG="conf/gateway.toml", HOLDFAST_DATA_DIR="d").data_dir == Path("d")
    assert load(HOLDFAST_CONFIG=os.devnull).port == 8080


def test_keys_of_a_bucket_may_stand_in_it_and_are_never_mixed() -> None:
    write(
        'objects = "s3://bucket/p?region=eu-central-1"\naws_access_key_id = "file-id"\n'
        'aws_secret_access_key = "file-secret"\naws_session_token = "file-token"\n'
    )
    keys = load().objects.keys
    assert keys is not None
    assert (keys.access_key_id, keys.secret_access_key.get_secret_value()) == ("file-id", "file-secret")
    other = load(AWS_ACCESS_KEY_ID="id", AWS_SECRET_ACCESS_KEY="secret").objects.keys
    assert other is not None
    assert (other.access_key_id, other.session_token) == ("id", None)
    told = refusal(AWS_ACCESS_KEY_ID="id")
    assert told == (
        "objects (holdfast.toml, line 1) needs AWS_SECRET_ACCESS_KEY for a bucket: AWS_ACCESS_KEY_ID of the "
        "environment hides all keys of the file; set the others there, too, or unset AWS_ACCESS_KEY_ID"
    )
    write('objects = "s3://bucket/p?region=eu-central-1"\n')
    told = refusal(AWS_ACCESS_KEY_ID="id")
    assert told == "objects (holdfast.toml, line 1) needs AWS_SECRET_ACCESS_KEY for a bucket"


def test_problems_are_told_with_the_files_names_and_lines_and_all_at_once() -> None:
    write('prot = 1\nport = "many"\njwt_jwks_url = "https://k/j"\nsleep_after = 0\n')
    with pytest.raises(SettingsError) as caught:
        load(HOLDFAST_HOST="no such host!")
    assert caught.value.problems == [
        "holdfast.toml, line 1: prot is no setting; did you mean port?",
        "HOLDFAST_HOST wants an address or a host name",
        "port (holdfast.toml, line 2) wants a whole number from 0 to 65535",
        "sleep_after (holdfast.toml, line 4) wants a duration above 0",
        "jwt_jwks_url (holdfast.toml, line 3) needs HOLDFAST_JWT_ISSUER and HOLDFAST_JWT_AUDIENCE",
    ]


def test_a_file_with_secrets_is_its_owners_alone() -> None:
    path = write(f'port = 1\njwt_secret = "{LONG}"', mode=0o640)
    told = refusal()
    assert told == "holdfast.toml holds jwt_secret, and others may read it: chmod 600 holdfast.toml"
    path.chmod(0o600)
    assert load().jwt_secret is not None
    write("port = 1", mode=0o644)
    assert load().port == 1, "one without secrets may be read by everybody"


def test_a_file_that_everybody_may_write_is_refused() -> None:
    write("port = 1", mode=0o666)
    assert refusal() == "holdfast.toml says which programs run, and all users may write it: chmod o-w holdfast.toml"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_is_read_only_if_it_is_named() -> None:
    write("port = 1", mode=0o644)
    os.chown("holdfast.toml", OTHER, OTHER)
    told = "belongs to another user: to use it anyway, set HOLDFAST_CONFIG=holdfast.toml"
    assert refusal() == f"holdfast.toml {told}"
    assert load(HOLDFAST_CONFIG="holdfast.toml").port == 1
    os.chmod("holdfast.toml", 0o640)
    write(f'jwt_secret = "{LONG}"', "given.toml", mode=0o640)
    os.chown("given.toml", OTHER, OTHER)
    assert load(HOLDFAST_CONFIG="given.toml").jwt_secret is not None, "how else could its group read it"


def test_what_is_no_file_of_settings_is_refused() -> None:
    assert refusal(HOLDFAST_CONFIG="gone.toml") == "HOLDFAST_CONFIG: there is no file gone.toml"
    Path("there").mkdir()
    assert refusal(HOLDFAST_CONFIG="there") == "there is a directory: name the file in it with HOLDFAST_CONFIG"
    os.mkfifo("pipe")
    assert refusal(HOLDFAST_CONFIG="pipe") == "pipe is no regular file: name one with HOLDFAST_CONFIG"
    write(b"#" * (MOST_BYTES + 1), "large.toml")
    assert refusal(HOLDFAST_CONFIG="large.toml").startswith("large.toml is larger than 256 KiB: it is no file of")
    write("port = 1", "file")
    assert (
        refusal(HOLDFAST_CONFIG="file/x") == "file/x cannot be read: Not a directory; name another with HOLDFAST_CONFIG"
    )
    os.symlink("nowhere", "holdfast.toml")
    told = "is a link to a file that is not there: make that file, or remove the link"
    assert refusal() == f"holdfast.toml {told}"
    assert refusal(HOLDFAST_CONFIG="holdfast.toml") == f"holdfast.toml {told}"
    os.symlink("loop", "loop")
    told = "is a link that leads back to itself: remove it, or name another with HOLDFAST_CONFIG"
    assert refusal(HOLDFAST_CONFIG="loop") == f"loop {told}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("listener")
        told = "listener is no regular file: name one with HOLDFAST_CONFIG"
        assert refusal(HOLDFAST_CONFIG="listener") == told
    assert refusal(HOLDFAST_CONFIG="a\n\x1bb") == "HOLDFAST_CONFIG: there is no file a\\n\\x1bb"
    assert (
        refusal(HOLDFAST_CONFIG="p" * 5000)
        == f"{'p' * 200}… cannot be read: File name too long; name another with HOLDFAST_CONFIG"
    )
