"""What deploy/ and the Procfile say must be true of this repository."""

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.cli.main import parser
from gateway.config.settings import KNOWN, load_settings
from gateway.http.site.static_page import BUILT

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
COMPOSE = ROOT / "deploy" / "compose.yaml"
CONTAINED = ROOT / "deploy" / "compose.contained.yaml"
SETTING = re.compile(r"HOLDFAST_[A-Z_]+[A-Z]")


def instructions(text: str) -> list[tuple[str, str]]:
    """A Dockerfile's instructions with their continuation lines joined."""
    joined = re.sub(r"\\\n\s*", " ", re.sub(r"(?m)^\s*#.*\n", "", text))
    found = []
    for line in joined.splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            found.append((word.upper(), rest.strip()))
    return found


@pytest.fixture(scope="module")
def dockerfile() -> list[tuple[str, str]]:
    return instructions(DOCKERFILE.read_text())


def service_of(*files: Path) -> dict[str, Any]:
    """The gateway's service, as compose merges the files: maps by their keys; lists only the later file has."""
    service: dict[str, Any] = {}
    for file in files:
        for name, value in yaml.safe_load(file.read_text())["services"]["gateway"].items():
            assert name not in service or isinstance(value, dict)
            service[name] = {**service.get(name, {}), **value} if isinstance(value, dict) else value
    return service


@pytest.fixture(scope="module", params=[[COMPOSE], [COMPOSE, CONTAINED]], ids=["trusted", "contained"])
def gateway_service(request: pytest.FixtureRequest) -> dict[str, Any]:
    return service_of(*request.param)


def last(dockerfile: list[tuple[str, str]], word: str) -> str:
    return [rest for name, rest in dockerfile if name == word][-1]


def image_settings(dockerfile: list[tuple[str, str]]) -> dict[str, str]:
    pairs = [pair for name, rest in dockerfile if name == "ENV" for pair in shlex.split(rest)]
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs) if name.startswith("HOLDFAST_")}


def console_scripts() -> dict[str, str]:
    scripts: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    return scripts


def is_command(words: list[str]) -> bool:
    """Whether these words are a console script of ours and arguments it understands."""
    if words[0] not in console_scripts():
        return False
    try:
        return parser().parse_args(words[1:]).command is not None
    except SystemExit:
        return False


def test_every_copied_path_is_in_the_repository(dockerfile: list[tuple[str, str]]) -> None:
    copied = [shlex.split(rest) for name, rest in dockerfile if name == "COPY"]
    sources = [path for words in copied if not words[0].startswith("--from") for path in words[:-1]]
    assert "gateway" in sources
    assert [path for path in sources if not (ROOT / path).exists()] == []


def test_the_image_has_every_package_of_the_distribution(dockerfile: list[tuple[str, str]]) -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    copied = {path for name, rest in dockerfile if name == "COPY" for path in shlex.split(rest)[:-1]}
    assert set(build["packages"]) <= copied


def test_the_image_has_the_page_where_the_gateway_looks_for_it(dockerfile: list[tuple[str, str]]) -> None:
    scripts = json.loads((ROOT / "web" / "package.json").read_text())["scripts"]
    built = next(rest for name, rest in dockerfile if name == "RUN" and "npm" in rest)
    assert built.startswith("npm ci ")
    assert built.endswith("npm run build")
    assert "build" in scripts
    copied = [shlex.split(rest) for name, rest in dockerfile if name == "COPY"]
    assert ["--from=page", "/src/gateway/page", str(BUILT.relative_to(ROOT))] in copied
    assert copied.index(["gateway", "gateway"]) < copied.index(["--from=page", "/src/gateway/page", "gateway/page"])


def test_what_is_built_on_the_host_stays_out_of_the_image() -> None:
    left_out = (ROOT / ".dockerignore").read_text().splitlines()
    assert {"**/node_modules", "gateway/page", ".venv*", ".holdfast", ".git"} <= set(left_out)


def test_the_image_runs_the_console_script(dockerfile: list[tuple[str, str]]) -> None:
    words = yaml.safe_load(last(dockerfile, "CMD"))
    assert words == ["holdfast", "serve"]
    assert is_command(words)


def test_the_image_runs_as_a_user_it_made(dockerfile: list[tuple[str, str]]) -> None:
    user = last(dockerfile, "USER")
    assert user not in ("root", "0")
    assert any(name == "RUN" and "useradd" in rest and rest.rstrip().count(user) for name, rest in dockerfile)
    names = [name for name, _ in dockerfile]
    assert names.index("USER") < len(names) - 1 - names[::-1].index("CMD")


def test_ports_agree_from_the_settings_to_the_published_one(
    dockerfile: list[tuple[str, str]], gateway_service: dict[str, Any]
) -> None:
    port = image_settings(dockerfile)["HOLDFAST_PORT"]
    assert last(dockerfile, "EXPOSE") == port
    assert f":{port}/health" in last(dockerfile, "HEALTHCHECK")
    assert gateway_service["environment"]["HOLDFAST_PORT"] == port
    published = [mapping.rsplit(":", 1)[1] for mapping in gateway_service["ports"]]
    assert published == [port]


def test_the_settings_of_image_and_compose_file_are_accepted(
    dockerfile: list[tuple[str, str]], gateway_service: dict[str, Any]
) -> None:
    environ = image_settings(dockerfile) | {name: str(v) for name, v in gateway_service["environment"].items()}
    settings = load_settings(environ)
    assert settings.host == "0.0.0.0"
    assert settings.drain_timeout < float(gateway_service["stop_grace_period"].removesuffix("s"))


def test_data_lives_in_a_volume(dockerfile: list[tuple[str, str]], gateway_service: dict[str, Any]) -> None:
    data = image_settings(dockerfile)["HOLDFAST_DATA_DIR"]
    assert last(dockerfile, "VOLUME") == data
    volume, _, mounted = gateway_service["volumes"][0].partition(":")
    assert mounted == data
    volumes = yaml.safe_load(COMPOSE.read_text())["volumes"]
    assert volumes[volume] == {"name": "holdfast_data"}, "its name when the project had one: upgrades find it"


def test_the_compose_file_builds_this_dockerfile(gateway_service: dict[str, Any]) -> None:
    build = gateway_service["build"]
    assert (COMPOSE.parent / build["context"] / build["dockerfile"]).resolve() == DOCKERFILE


def test_the_compose_file_asks_for_nothing_that_only_v2_knows() -> None:
    """v1 refuses `name`, and hands `systempaths` to an engine that does not know it."""
    assert set(yaml.safe_load(COMPOSE.read_text())) == {"services", "volumes"}
    assert "security_opt" not in service_of(COMPOSE)
    assert service_of(COMPOSE)["environment"]["HOLDFAST_LOCAL_LEVEL"] == "trusted"


def test_the_override_asks_for_isolation_and_what_that_needs() -> None:
    assert set(yaml.safe_load(CONTAINED.read_text())) == {"services"}
    service = service_of(CONTAINED)
    assert set(service) == {"environment", "security_opt"}
    assert service["environment"] == {"HOLDFAST_LOCAL_LEVEL": "contained"}
    assert service["security_opt"] == ["seccomp=unconfined", "apparmor=unconfined", "systempaths=unconfined"]


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose (v1) is not installed")
def test_compose_v1_takes_the_file() -> None:
    done = subprocess.run(["docker-compose", "-f", str(COMPOSE), "config"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    service = yaml.safe_load(done.stdout)["services"]["gateway"]
    assert service["environment"] == {name: str(v) for name, v in service_of(COMPOSE)["environment"].items()}
    assert service["build"]["dockerfile"] == "deploy/Dockerfile"


@pytest.mark.parametrize("name", ["Dockerfile", "compose.yaml", "compose.contained.yaml", "README.md"])
def test_every_setting_named_in_deploy_is_known(name: str) -> None:
    named = set(SETTING.findall((ROOT / "deploy" / name).read_text()))
    assert named
    assert named - KNOWN.keys() == set()


def test_the_procfile_starts_a_command_that_exists() -> None:
    processes = dict(line.split(":", 1) for line in (ROOT / "Procfile").read_text().splitlines() if line.strip())
    assert list(processes) == ["web"]
    assert is_command(shlex.split(processes["web"]))


def test_the_check_for_commands_can_fail() -> None:
    assert not is_command(["holdfast", "swerve"])
    assert not is_command(["gunicorn", "serve"])
