"""Settings: typed, all problems at once, secrets made once and kept private."""

import fcntl
import os
import re
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agents.choice import AgentChoice
from gateway.config import values
from gateway.config.data_dir import (
    DatabaseBusy,
    DatabaseLock,
    DataDirBusy,
    DataDirLock,
    holder,
    is_database_held,
    read_note,
)
from gateway.config.loading import load_settings
from gateway.config.settings import (
    KNOWN,
    SecretStr,
    Settings,
    SettingsError,
    read_sandbox_env,
    resolve_secrets,
)

LONG = "0123456789abcdef0123456789abcdef"


def problems_of(**environ: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load_settings({f"HOLDFAST_{name}": value for name, value in environ.items()})
    return caught.value.problems


def test_nothing_set_gives_the_documented_defaults() -> None:
    settings = load_settings({"PATH": "/bin"})
    assert (settings.host, settings.port, settings.data_dir) == ("127.0.0.1", 8080, Path(".holdfast"))
    assert settings.store.get_secret_value() == "sqlite:///.holdfast/holdfast.db"
    assert settings.spool_path == Path(".holdfast/spool.db")
    assert (settings.store_pool, settings.spool_bytes) == (8, 1 << 30)
    assert (settings.retention_age, settings.retention_count) == (None, None)
    assert (str(settings.objects), settings.objects_unchecked) == ("file://.holdfast/objects", False)
    assert (settings.pending_limit, settings.pending_ttl, settings.sleep_after) == (100, 300, 600)
    assert (settings.max_connections, settings.max_connections_per_user) == (9000, 100)
    assert (settings.max_frames_per_user, settings.max_input_per_user) == (5000, 16 << 20)
    assert (settings.max_connections_per_address, settings.max_frame_bytes) == (200, 1 << 20)
    assert (settings.start_timeout, settings.exec_timeout, settings.restore_timeout) == (30, 600, 60)
    assert (settings.sync_debounce, settings.sync_max_wait, settings.sync_attempts) == (2, 10, 3)
    assert settings.agent == AgentChoice("demo")
    assert settings.query_tokens
    assert not settings.compression


def test_every_setting_can_be_given() -> None:
    given = {
        "HOST": "0.0.0.0",
        "PORT": "0",
        "DATA_DIR": "/var/lib/holdfast",
        "STORE": "sqlite:////var/lib/x.db",
        "STORE_POOL": "20",
        "SPOOL_BYTES": "64MiB",
        "RETENTION_AGE": "30d",
        "RETENTION_COUNT": "5000",
        "OBJECTS": "file:///var/o",
        "OBJECTS_UNCHECKED": "true",
        "AGENT": "my-agent --flag 'two words'",
        "LIMIT_MEMORY": "512m",
        "LIMIT_CPUS": "1.5",
        "LIMIT_PIDS": "500",
        "SLEEP_AFTER": "10m",
        "PENDING_TTL": "500ms",
        "PENDING_BYTES": "4MiB",
        "CREATE_ON_ATTACH": "yes",
        "ALLOWED_ORIGINS": "https://a.example, http://localhost:3000",
        "TRUSTED_PROXIES": "10.0.0.0/8,::1",
        "LOCAL_LEVEL": "trusted",
        "LOG_LEVEL": "debug",
        "API_TOKEN": LONG,
    }
    settings = load_settings({f"HOLDFAST_{name}": value for name, value in given.items()})
    assert settings.agent == AgentChoice(command=("my-agent", "--flag", "two words"))
    assert (settings.sleep_after, settings.pending_ttl, settings.pending_bytes) == (600, 0.5, 4 << 20)
    assert settings.allowed_origins == ("https://a.example", "http://localhost:3000")
    assert settings.store.path == Path("/var/lib/x.db")
    assert (settings.objects.kind, settings.objects.path) == ("file", Path("/var/o"))
    assert settings.objects_unchecked
    assert (settings.retention_age, settings.retention_count) == (30 * 86400, 5000)
    assert (settings.store_pool, settings.spool_bytes) == (20, 64 << 20)
    assert settings.api_token is not None
    assert settings.api_token.get_secret_value() == LONG
    assert not settings.loopback_only


@pytest.mark.parametrize(
    ("host", "alone"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("h.example", False),
    ],
)
def test_whether_only_this_machine_can_reach_it_is_known(host: str, alone: bool) -> None:
    assert Settings(host=host).loopback_only == alone


def test_a_platforms_port_is_honoured_and_our_own_name_wins() -> None:
    assert load_settings({"PORT": "5000"}).port == 5000
    assert load_settings({"PORT": "5000", "HOLDFAST_PORT": "6000"}).port == 6000
    assert load_settings({"PORT": "", "HOLDFAST_PORT": "6000"}).port == 6000


def test_with_a_platforms_port_the_gateway_listens_on_all_addresses() -> None:
    """A platform's router comes from another machine; on loopback it met nobody."""
    by_platform = load_settings({"PORT": "5000"})
    assert by_platform.host == "0.0.0.0"
    assert not by_platform.loopback_only
    assert by_platform.network_max == "none", "what users may ask for follows the address"
    assert load_settings({"PORT": "5000", "HOLDFAST_PORT": "6000"}).host == "0.0.0.0"
    for host in ("127.0.0.1", "::1", "::"):
        assert load_settings({"PORT": "5000", "HOLDFAST_HOST": host}).host == host
    for without in ({}, {"HOLDFAST_PORT": "5000"}, {"HOLDFAST_HOST": ""}):
        assert load_settings(without).loopback_only


@pytest.mark.parametrize("port", ["", " ", "eighty", "-1", "65536", "80 80", "8080/tcp", "tcp://10.0.0.1:80", "٣"])
def test_a_platforms_port_that_is_none_is_refused_by_its_own_name(port: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({"PORT": port})
    (told,) = caught.value.problems
    assert told == "PORT wants a whole number from 0 to 65535; unset it, or set HOLDFAST_PORT, which counts instead"


def test_all_problems_are_told_at_once_and_no_secret_with_them() -> None:
    told = problems_of(
        PROT="1",
        PORT="eighty",
        SLEEP_AFTER="-1",
        JWT_SECRET="abcde",
        STORE="postgresql://u:hunter22@h/db/x",
        REDIS="redis://h",
    )
    assert len(told) == 6
    assert "HOLDFAST_PROT is no setting; did you mean HOLDFAST_PORT?" in told
    assert not any("abcde" in line or "hunter22" in line or "\n" in line for line in told)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("STORE", "mysql://h/db", "wants sqlite"),
        ("STORE", "sqlite:///", "wants sqlite"),
        ("STORE", "sqlite://x.db", "wants sqlite"),
        ("STORE", "postgresql:h/db", "wants sqlite"),
        ("STORE", "postgresql://h", "must name one database"),
        ("STORE", "postgresql://h/a/b", "must name one database"),
        ("STORE", "https://", "without a user"),
        ("STORE", "https://u:p@api.example/", "without a user"),
        ("STORE", "https://api.example/?x=1", "without a query"),
        ("STORE", "http://api.example/", "only on loopback"),
        ("STORE", "http://127.0.0.1.example/", "only on loopback"),
        ("STORE", "http://127.0.0.1:99999/", "a port from 1 to 65535"),
        ("STORE", "https://api.example:0/", "a port from 1 to 65535"),
        ("STORE", "postgresql://u:p@h:99999/db", "a port from 1 to 65535"),
        ("STORE", "postgresql://one:5432,two:654321/db", "a port from 1 to 65535"),
        ("STORE", "postgresql:///db?host=one,two&port=5432,65536", "a port from 1 to 65535"),
        ("STORE", "postgresql:///db?host=h&port=many", "a port from 1 to 65535"),
        ("STORE_POOL", "1", "from 2 to 100"),
        ("SPOOL_BYTES", "5", "wants bytes"),
        ("RETENTION_AGE", "59m", "at least 1h"),
        ("RETENTION_COUNT", "99", "from 100"),
        ("OBJECTS", "s3://bucket/prefix", "needs ?region="),
        ("OBJECTS", "s3://bucket/prefix?region=eu-central-1", "needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        ("OBJECTS", "ftp://x", "wants file"),
        ("OBJECTS_UNCHECKED", "perhaps", "true or false"),
        ("REDIS", "redis://h", "not built yet"),
        ("LIMIT_DISK", "1g", "HOLDFAST_LIMIT_DISK: no sandbox can be held to it"),
        ("LIMIT_MEMORY", "64m", "wants bytes from 134217728 to"),
        ("LIMIT_CPUS", "0.05", "wants a number from 0.1 to 4096"),
        ("LIMIT_CPUS", "two", "wants a number"),
        ("LIMIT_PIDS", "10", "wants a whole number from 64"),
        ("SANDBOX", "cloudflare", "not built yet"),
        ("SANDBOX", "chroot", "wants local or docker"),
        ("PROVIDERS", "local,cloudflare", "cloudflare is not built yet"),
        ("PROVIDERS", "local,chroot", "wants local or docker"),
        ("PROVIDERS", "Local", "names of lower-case letters"),
        ("DOCKER", "tcp://10.0.0.1:2375", "unix:///var/run/docker.sock"),
        ("DOCKER", "/var/run/docker.sock", "unix:///var/run/docker.sock"),
        ("DOCKER_IMAGE", "--privileged", "wants a name"),
        ("DOCKER_IMAGE", "two words", "wants a name"),
        ("IMAGES", "debian two", "wants at most 100 patterns of images such as debian"),
        ("DOCKER_RUNTIME", "run c", "wants a name"),
        ("DOCKER_PULL", "always", "wants one of missing, never"),
        ("DOCKER_PULL_TIMEOUT", "0", "wants a duration above 0"),
        ("LOCAL_LEVEL", "open", "wants one of"),
        ("AGENT", "a 'b", "a command line"),
        ("QUERY_TOKENS", "perhaps", "true or false"),
        ("MAX_FRAME_BYTES", "12 parsecs", "wants bytes"),
        ("MAX_FRAME_BYTES", "2MiB", "wants bytes"),
        ("MAX_CONNECTIONS", "0", "whole number"),
        ("JWT_JWKS_URL", "http://keys.example/jwks", "https"),
        ("JWT_JWKS_URL", "https://[keys]/jwks", "wants an https:// address"),
        ("JWT_JWKS_URL", "https://u:p/w@keys.example/jwks", "wants an https:// address"),
        ("JWT_JWKS_URL", "https://keys.example/jwks", "needs HOLDFAST_JWT_ISSUER"),
        ("ALLOWED_ORIGINS", "*", "as browsers send them"),
        ("ALLOWED_ORIGINS", "https://A.example", "as browsers send them"),
        ("ALLOWED_ORIGINS", "https://a.example/", "as browsers send them"),
        ("ALLOWED_ORIGINS", "https://a.example:443", "as browsers send them"),
        ("ALLOWED_ORIGINS", "https://a.example:x", "as browsers send them"),
        ("TRUSTED_PROXIES", "proxy.example", "addresses or networks"),
        ("GONE_PROVIDERS", "a cloud", "names of lower-case letters"),
        ("GONE_PROVIDERS", "cloud,local", "names local"),
        ("API_TOKEN", "has a space in it, really", "printable"),
        ("HOST", "no such host!", "an address"),
        ("SNAPSHOT_GRACE", "1m", "10m"),
        ("SYNC_AGENT_SKIP", "[[:x:", "[[:x:"),
        ("SYNC_AGENT_SKIP", "a" * 300, "at most 200"),
        ("SLEEP_AFTER", "0", "above 0"),
    ],
)
def test_a_wrong_value_is_refused_in_one_line(name: str, value: str, says: str) -> None:
    (line,) = problems_of(**{name: value})
    assert line.startswith(f"HOLDFAST_{name}")
    assert says in line


def test_sessions_may_run_in_containers_of_a_named_image() -> None:
    chosen = load_settings({"HOLDFAST_SANDBOX": "docker", "HOLDFAST_DOCKER_IMAGE": "debian:bookworm"})
    assert (chosen.sandbox, chosen.providers) == ("docker", ("docker",))
    assert (chosen.docker, chosen.docker_runtime) == ("unix:///var/run/docker.sock", "")
    assert Settings().providers == ("local",)
    unnamed = load_settings({"HOLDFAST_SANDBOX": "docker"})
    assert unnamed.docker_image == "holdfast-sandbox"
    both = load_settings({"HOLDFAST_PROVIDERS": "local,docker", "HOLDFAST_DOCKER_IMAGE": "registry:5000/a/b@sha256:0"})
    assert (both.sandbox, both.providers) == ("local", ("local", "docker"))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"PROVIDERS": "local", "SANDBOX": "docker", "DOCKER_IMAGE": "x"}, "HOLDFAST_PROVIDERS lacks docker"),
        ({"PROVIDERS": "docker"}, "HOLDFAST_PROVIDERS lacks local: add it, or change HOLDFAST_SANDBOX"),
        ({"DOCKER_RUNTIME": "a b"}, "HOLDFAST_DOCKER_RUNTIME wants a name such as runc"),
        (
            {"SANDBOX": "docker", "DOCKER_IMAGE": "x", "NETWORK": "outbound", "DOCKER_RUNTIME": "runsc"},
            "HOLDFAST_NETWORK: containers of gVisor have no way out yet",
        ),
        (
            {"PROVIDERS": "local,docker", "DOCKER_IMAGE": "x", "GONE_PROVIDERS": "docker"},
            "HOLDFAST_GONE_PROVIDERS names docker, which HOLDFAST_PROVIDERS says is here",
        ),
    ],
)
def test_providers_that_do_not_fit_together_are_refused(given: dict[str, str], says: str) -> None:
    (line,) = problems_of(**given)
    assert line.startswith(says)


PASSWORD = "S3cr3t-hunter22"


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://u:{PASSWORD}@h/db",
        f"postgres://u:{PASSWORD}@[::1]:5432/db?sslmode=require",
        f"postgresql://u:{PASSWORD}@one:5432,two:5433/db?target_session_attrs=read-write",
        f"postgresql:///db?host=/run/postgresql&password={PASSWORD}&user=u",
        f"postgresql:///db?host=one,two&port=1,65535&password={PASSWORD}",
        f"postgresql://u:%40{PASSWORD}%2F@h/db?sslpassword={PASSWORD}",
    ],
)
def test_a_password_in_the_store_is_never_shown(address: str) -> None:
    settings = load_settings({"HOLDFAST_STORE": address})
    shown = f"{settings!r} {settings.store} {settings.store!r} {settings.store.place}"
    assert PASSWORD not in shown
    assert "***" in str(settings.store)
    assert settings.store.get_secret_value() == address
    assert any(PASSWORD in form for form in settings.store.passwords)
    assert settings.store.kind == "postgresql"


@pytest.mark.parametrize("mark", ["@", "/", "?", "#", "[", "]", " ", "\n", "é", "@/", "#@"])
def test_a_password_that_needs_escaping_is_refused_without_being_repeated(mark: str) -> None:
    (line,) = problems_of(STORE=f"postgresql://u:S3cr3t{mark}hunter22@h/db")
    assert "S3cr3t" not in line
    assert "hunter22" not in line
    assert "\n" not in line


@given(st.text(max_size=20))
def test_whatever_the_password_it_is_not_told(text: str) -> None:
    from urllib.parse import quote

    address = f"postgresql://u:{quote('S3' + text, safe='')}hunter22@h/db"
    assert "hunter22" not in str(load_settings({"HOLDFAST_STORE": address}).store)
    try:
        store = load_settings({"HOLDFAST_STORE": f"postgresql://u:{text}hunter22@h/db"}).store
        told = f"{store} {store.place}"
    except SettingsError as error:
        told = str(error)
    assert "hunter22" not in told


def test_contradictions_are_refused() -> None:
    jwks = {"JWT_JWKS_URL": "https://k/j", "JWT_ISSUER": "i", "JWT_AUDIENCE": "a"}
    assert "not both" in problems_of(**jwks, JWT_SECRET=LONG)[0]
    assert "are the same" in problems_of(API_TOKEN=LONG, RELAY_SECRET=LONG)[0]
    assert "SYNC_MAX_WAIT" in problems_of(SYNC_DEBOUNCE="20")[0]
    assert load_settings({f"HOLDFAST_{name}": value for name, value in jwks.items()}).jwt_issuer == "i"
    for wrong in ({"HOST": "0.0.0.0", "NETWORK": "outbound"}, {"NETWORK": "outbound", "NETWORK_MAX": "none"}):
        assert "HOLDFAST_NETWORK_MAX=outbound" in problems_of(**wrong)[0]


def test_users_may_ask_for_the_hosts_network_where_nobody_else_can_reach_the_gateway() -> None:
    listed = {"NETWORK": "A.example, *.b.example:8443", "NETWORK_MAX": "*.b.example:8443,a.example"}
    assert (
        load_settings({f"HOLDFAST_{name}": value for name, value in listed.items()}).network
        == "a.example,*.b.example:8443"
    )
    (told,) = problems_of(NETWORK="c.example", NETWORK_MAX="a.example")
    assert "HOLDFAST_NETWORK_MAX=c.example" in told
    assert "list of hosts" in problems_of(NETWORK="a b")[0]
    inner = load_settings({"HOLDFAST_NETWORK_INNER": "10.0.0.0/8, git.corp"}).network_inner
    assert inner == ("10.0.0.0/8", "git.corp")
    assert "10.0.0.0/8" in problems_of(NETWORK_INNER="10.0.0.1/8")[0]
    assert (Settings().network, Settings().network_max) == ("none", "outbound")
    assert Settings(host="0.0.0.0").network_max == "none"
    assert Settings(host="0.0.0.0", network_max="outbound").network_max == "outbound"


def test_names_of_the_test_suite_are_left_alone_and_an_empty_value_is_no_value() -> None:
    settings = load_settings({"HOLDFAST_TEST_SEED": "7", "HOLDFAST_PORT": "", "HOLDFAST_REDIS": ""})
    assert settings.port == 8080


@pytest.mark.parametrize(
    ("given", "found"),
    [({}, ".holdfast/agents"), ({"DATA_DIR": "data"}, "data/agents"), ({"AGENTS_DIR": "there"}, "there")],
)
def test_agents_lie_at_a_place_that_is_the_same_from_everywhere(given: dict[str, str], found: str) -> None:
    settings = load_settings({f"HOLDFAST_{name}": value for name, value in given.items()})
    assert settings.agents_dir == Path(found).absolute()


def test_settings_are_frozen_and_print_no_secret() -> None:
    settings = Settings(jwt_secret=SecretStr(LONG))
    assert LONG not in repr(settings)
    assert LONG not in str(settings.jwt_secret)
    with pytest.raises(FrozenInstanceError):
        settings.port = 1  # type: ignore[misc]


def test_every_field_has_a_reader() -> None:
    assert {f"HOLDFAST_{known.name.upper()}" for known in fields(Settings)} - {"HOLDFAST_SOURCES"} == set(KNOWN)
    assert all(callable(known.metadata["read"]) for known in KNOWN.values())


@given(st.integers(1, 10**6), st.sampled_from([("ms", 0.001), ("s", 1), ("m", 60), ("h", 3600), ("d", 86400), ("", 1)]))
def test_durations_are_numbers_with_a_unit(number: int, unit: tuple[str, float]) -> None:
    assert values.duration(f"{number}{unit[0]}") == pytest.approx(number * unit[1])


@given(st.text(max_size=12))
def test_no_text_makes_a_reader_fail_otherwise_than_with_valueerror(text: str) -> None:
    readers = [known.metadata["read"] for known in KNOWN.values()]
    silent = []
    for read in readers:
        try:
            read(text)
        except ValueError as exc:
            silent += [] if str(exc) else [read]
    assert silent == []


def test_secrets_are_made_once_private_and_different(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    first, second = resolve_secrets(settings), resolve_secrets(settings)
    assert first.jwt_secret is not None
    made = [first.jwt_secret, first.api_token, first.internal_token, first.relay_secret, first.vault_key]
    texts = [secret.get_secret_value() for secret in made]
    assert len(set(texts)) == 5
    assert min(map(len, texts)) >= 32
    assert second.api_token.get_secret_value() == first.api_token.get_secret_value()
    home = tmp_path / "data" / "secrets"
    assert home.stat().st_mode & 0o777 == 0o700
    names = {"jwt_secret", "api_token", "internal_token", "relay_secret", "vault_key"}
    assert {path.name for path in home.iterdir()} == names
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in home.iterdir())


def test_racing_starts_agree_on_the_secrets(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda _: resolve_secrets(settings).api_token.get_secret_value(), range(64)))
    assert len(set(found)) == 1
    assert not list((tmp_path / "secrets").glob(".*"))


def test_given_secrets_win_and_jwks_needs_none_of_its_own(tmp_path: Path) -> None:
    secrets = resolve_secrets(
        Settings(
            data_dir=tmp_path, api_token=SecretStr(LONG), jwt_jwks_url="https://k", jwt_issuer="i", jwt_audience="a"
        )
    )
    assert secrets.api_token.get_secret_value() == LONG
    assert secrets.jwt_secret is None
    assert {path.name for path in (tmp_path / "secrets").iterdir()} == {"internal_token", "relay_secret", "vault_key"}


def test_a_secret_others_may_read_or_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    resolve_secrets(settings)
    path = tmp_path / "secrets" / "api_token"
    path.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        resolve_secrets(settings)
    path.chmod(0o600)
    path.write_text("short")
    with pytest.raises(SettingsError, match="damaged"):
        resolve_secrets(settings)


def test_a_data_directory_that_cannot_be_made_says_which_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="HOLDFAST_DATA_DIR"):
        resolve_secrets(Settings(data_dir=tmp_path / "file"))
    with pytest.raises(SettingsError, match="HOLDFAST_DATA_DIR"), DataDirLock(tmp_path / "file"):
        pass


def test_a_data_directory_is_closed_to_others_whichever_command_makes_it(tmp_path: Path) -> None:
    resolve_secrets(Settings(data_dir=tmp_path / "new"))
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


def test_the_sandbox_env_file_is_private_and_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_text("# keys\nAPI_KEY=abc=def\n\nexport NAME='two words'\n")
    with pytest.raises(SettingsError, match="chmod 600"):
        read_sandbox_env(path)
    path.chmod(0o600)
    assert read_sandbox_env(path) == {"API_KEY": "abc=def", "NAME": "two words"}
    path.write_text("no equals\n9X=1\nGOOD=1")
    with pytest.raises(SettingsError) as caught:
        read_sandbox_env(path)
    assert [re.search(r"line (\d)", line)[1] for line in caught.value.problems] == ["1", "2"]  # type: ignore[index]
    with pytest.raises(SettingsError, match="cannot be read"):
        read_sandbox_env(tmp_path / "absent")


def test_the_second_gateway_of_a_data_directory_is_told_who_holds_it(tmp_path: Path) -> None:
    with DataDirLock(tmp_path) as lock:
        lock.note_address("http://127.0.0.1:8080")
        with (
            pytest.raises(DataDirBusy, match=rf"pid {os.getpid()}, since .*http://127.0.0.1:8080"),
            DataDirLock(tmp_path),
        ):
            pass
    with DataDirLock(tmp_path):
        note = read_note(tmp_path)
        assert note is not None
        assert "address" not in note
    assert read_note(tmp_path) is None
    assert read_note(tmp_path / "nowhere") is None


def test_a_killed_holder_leaves_the_data_directory_free(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys, time\nfrom gateway.config.data_dir import DataDirLock\n"
        f"with DataDirLock(pathlib.Path({str(tmp_path)!r})):\n"
        "    sys.stdout.write('held\\n'); sys.stdout.flush(); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(DataDirBusy, match=f"pid {process.pid}"), DataDirLock(tmp_path):
            pass
        process.kill()
    with DataDirLock(tmp_path):
        pass


def test_a_lock_that_is_removed_keeps_others_out_and_comes_back_with_its_note(tmp_path: Path) -> None:
    assert holder(tmp_path) is None
    with DataDirLock(tmp_path) as lock:
        lock.note_address("http://127.0.0.1:8080")
        assert lock.mend() is False
        (tmp_path / "lock").unlink()
        with pytest.raises(DataDirBusy), DataDirLock(tmp_path):
            pass
        (tmp_path / "lock").unlink(missing_ok=True)
        assert holder(tmp_path) == {}
        assert lock.mend() is True
        assert holder(tmp_path) == read_note(tmp_path)
        assert (read_note(tmp_path) or {})["address"] == "http://127.0.0.1:8080"
    assert holder(tmp_path) is None
    assert holder(tmp_path / "nowhere") is None


def test_a_gateway_of_an_earlier_version_that_took_a_removed_lock_is_told_of(tmp_path: Path) -> None:
    with DataDirLock(tmp_path) as lock:
        (tmp_path / "lock").unlink()
        with (tmp_path / "lock").open("w") as theirs:  # it locks the file alone
            fcntl.flock(theirs, fcntl.LOCK_EX)
            with pytest.raises(DataDirBusy, match="another gateway uses"):
                lock.mend()


def test_importing_the_settings_loads_nothing_heavy() -> None:
    program = "import sys, gateway.config.settings; sys.stdout.write(' '.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pydantic", "structlog", "jwt", "starlette", "httpx", "uvicorn", "asyncio"} & set(loaded)


def test_what_of_an_agents_home_is_not_kept_is_a_list_of_patterns() -> None:
    def skip(text: str) -> tuple[str, ...]:
        return load_settings({"HOLDFAST_SYNC_AGENT_SKIP": text}).sync_agent_skip

    assert ".cache/" in skip("")
    assert skip(" .cache/ , *.log,") == (".cache/", "*.log")
    assert skip("-") == ()


def test_a_database_has_one_gateway_whatever_names_it_by_which_data_directory(tmp_path: Path) -> None:
    database = tmp_path / "place" / "messages.db"
    with DatabaseLock(database, tmp_path / "a"):  # nowhere yet: the store says so
        assert not database.parent.exists()
    database.parent.mkdir()
    (tmp_path / "link").symlink_to("place")
    with DatabaseLock(database, tmp_path / "a"):
        assert is_database_held(database)
        with (
            pytest.raises(DatabaseBusy, match=rf"pid {os.getpid()}, HOLDFAST_DATA_DIR={tmp_path}/a\)"),
            DatabaseLock(tmp_path / "link" / "messages.db", tmp_path / "b"),
        ):
            pass
        with DatabaseLock(database.with_name("other.db"), tmp_path / "b"):
            pass
    assert not is_database_held(database)
