"""What deploy/ and the Procfile say must be true of this repository."""

import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.agents.catalogue import AGENTS as KNOWN_AGENTS
from gateway.cli.main import parser
from gateway.config.loading import load_settings
from gateway.config.settings import KNOWN, Settings
from gateway.http.site.static_page import BUILT
from sandbox.providers.container import document
from sandbox.providers.container.image import no_image
from sandbox.providers.local import bubblewrap

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
COMPOSE = ROOT / "deploy" / "compose.yaml"
CONTAINED = ROOT / "deploy" / "compose.contained.yaml"
DOCKER = ROOT / "deploy" / "compose.docker.yaml"
SANDBOX = ROOT / "deploy" / "sandbox.Dockerfile"
AGENTS = ROOT / "deploy" / "agents.Dockerfile"
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
    """The gateway's service, as compose merges the files: maps by their keys, lists one behind the other."""
    service: dict[str, Any] = {}
    for file in files:
        for name, value in yaml.safe_load(file.read_text())["services"]["gateway"].items():
            assert name not in service or isinstance(value, dict | list)
            if isinstance(value, dict):
                service[name] = {**service.get(name, {}), **value}
            else:
                service[name] = [*service.get(name, []), *value] if isinstance(value, list) else value
    return service


@pytest.fixture(
    scope="module",
    params=[[COMPOSE], [COMPOSE, CONTAINED], [COMPOSE, DOCKER]],
    ids=["trusted", "contained", "docker"],
)
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
    """hatch_build.py builds it into the directory that the packages are copied around."""
    (built,) = [number for number, (name, rest) in enumerate(dockerfile) if name == "RUN" and "build_page" in rest]
    assert last(dockerfile[:built], "WORKDIR") == "/src"
    copied = [shlex.split(rest) for name, rest in dockerfile[:built] if name == "COPY"]
    assert ["web", "web"] in copied
    assert any("hatch_build.py" in words for words in copied)
    assert BUILT.relative_to(ROOT) == Path("gateway/page")
    script = json.loads((ROOT / "web" / "console" / "package.json").read_text())["scripts"]["build"]
    assert script
    left_out = (ROOT / ".dockerignore").read_text().splitlines()
    assert "gateway/page" in left_out, "that of the host would hide it"


def test_what_is_built_on_the_host_stays_out_of_the_image() -> None:
    left_out = (ROOT / ".dockerignore").read_text().splitlines()
    assert {"**/node_modules", "gateway/page", ".venv*", ".holdfast", ".git", ".artefacts"} <= set(left_out)


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


def test_the_environment_is_not_where_sandboxes_have_theirs(dockerfile: list[tuple[str, str]]) -> None:
    """It once was, and no contained sandbox could start."""
    (place,) = [shlex.split(rest)[-1] for name, rest in dockerfile if name == "COPY" and "--from=build" in rest]
    inside = (bubblewrap.KEPT, bubblewrap.WORKSPACE, bubblewrap.AGENT, bubblewrap.STATE, bubblewrap.CODE)
    for mounted in (*inside, document.KIT, document.DOOR):
        assert not Path(place).is_relative_to(mounted)
        assert not Path(mounted).is_relative_to(place)
    assert image_settings(dockerfile)["HOLDFAST_DATA_DIR"] not in inside


@pytest.mark.parametrize("file", [DOCKERFILE, SANDBOX, AGENTS])
def test_a_base_can_be_chosen_and_is_no_address(file: Path) -> None:
    layout = instructions(file.read_text())
    given = {rest.partition("=")[0] for name, rest in layout if name == "ARG"}
    stages = [rest.split()[0] for name, rest in layout if name == "FROM"]
    assert stages
    assert {stage.strip("${}") for stage in stages} <= given
    names = [rest.partition("=")[2] for name, rest in layout if name == "ARG"]
    assert not [name for name in names if "/" in name]
    assert re.findall(r"://([^/:]+)", file.read_text()) in ([], ["127.0.0.1"])


@pytest.mark.parametrize("file", [DOCKERFILE, SANDBOX, AGENTS])
def test_what_a_build_is_given_of_a_machine_is_in_no_image(file: Path) -> None:
    """Neither its proxies nor its certificate authorities. They are predefined arguments, and of the building stage."""
    text = file.read_text()
    assert not re.search(r"(?i)_proxy|certs?\b.*COPY|COPY.*certs?\b|http_|index[-_]url", text)
    layout = instructions(text)
    after = layout[max(number for number, (name, _) in enumerate(layout) if name == "FROM") :]
    assert "BUILD_IMAGE" not in after[0][1]


def test_the_sandbox_image_is_no_roots_and_needs_no_files() -> None:
    layout = instructions(SANDBOX.read_text())
    user, _, group = last(layout, "USER").partition(":")
    assert int(user) > 0 < int(group)
    assert not [name for name, _ in layout if name in ("COPY", "ADD", "ENTRYPOINT", "VOLUME")]
    (installed,) = [rest for name, rest in layout if name == "RUN"]
    assert {"git", "python3", "ripgrep", "build-essential", "ca-certificates"} <= set(installed.split())
    assert "node" in next(rest for name, rest in layout if name == "ARG")


def test_the_image_with_agents_has_each_of_the_catalogue_as_it_was_tried() -> None:
    layout = instructions(AGENTS.read_text())
    installed = {rest.removeprefix("holdfast agents install ") for name, rest in layout if name == "RUN"}
    assert installed == {f"{agent.name}@{agent.version}" for agent in KNOWN_AGENTS}
    assert {name for name, _ in layout} == {"ARG", "FROM", "USER", "ENV", "RUN", "COPY"}


def test_each_agent_is_a_layer_of_its_own_and_nothing_else_of_the_build_is() -> None:
    layout = instructions(AGENTS.read_text())
    copied = [rest.split() for name, rest in layout if name == "COPY"]
    place = image_settings(layout)["HOLDFAST_AGENTS_DIR"]
    assert [from_build for from_build, _, _ in copied] == ["--from=build"] * len(copied)
    assert [source for _, source, _ in copied] == [target for _, _, target in copied]
    parts = ("node", *(agent.name for agent in KNOWN_AGENTS), "bin")
    assert sorted(source for _, source, _ in copied) == sorted(f"{place}/{part}" for part in parts)
    runs = [number for number, (name, _) in enumerate(layout) if name in ("RUN", "USER")]
    assert max(runs) < max(number for number, (name, _) in enumerate(layout) if name == "FROM"), (
        "root builds, and is gone"
    )


def test_the_image_that_sessions_run_in_has_one_name() -> None:
    built = f"docker build -t {Settings().docker_image} -f deploy/sandbox.Dockerfile deploy"
    pages = (ROOT / name for name in ("deploy/README.md", "docs/containers.md", "docs/operations/containers.md"))
    told = [SANDBOX, DOCKER, *pages]
    assert [file for file in told if built not in file.read_text()] == []
    assert built in no_image(Settings().docker_image)


def test_the_gateway_may_have_its_sandboxes_beside_it() -> None:
    assert set(yaml.safe_load(DOCKER.read_text())) == {"services"}
    service = service_of(DOCKER)
    assert set(service) == {"environment", "group_add", "volumes"}, "it is given the socket, and nothing is lifted"
    assert service["environment"] == {"HOLDFAST_SANDBOX": "docker", "HOLDFAST_DOCKER_IMAGE": None}
    (socket,) = service["volumes"]
    assert f"unix://{socket['target']}" == Settings().docker
    assert socket["type"] == "bind", "the short form would make a directory where there is no socket"
    (group,) = service["group_add"]
    asked = "stat -c %g /var/run/docker.sock"
    assert asked in group
    assert f"export DOCKER_GID=$({asked})" in (ROOT / "deploy/README.md").read_text()


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
    given = {name: str(value) for name, value in gateway_service["environment"].items() if value is not None}
    environ = image_settings(dockerfile) | given
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
    assert "security_opt" not in service_of(COMPOSE, DOCKER)
    assert service_of(COMPOSE)["environment"]["HOLDFAST_LOCAL_LEVEL"] == "trusted"


def test_the_override_asks_for_isolation_and_what_that_needs() -> None:
    assert set(yaml.safe_load(CONTAINED.read_text())) == {"services"}
    service = service_of(CONTAINED)
    assert set(service) == {"environment", "security_opt"}
    assert service["environment"] == {"HOLDFAST_LOCAL_LEVEL": "contained"}
    assert service["security_opt"] == ["seccomp=unconfined", "apparmor=unconfined", "systempaths=unconfined"]


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose (v1) is not installed")
@pytest.mark.parametrize("files", [[COMPOSE], [COMPOSE, DOCKER]], ids=["alone", "docker"])
def test_compose_v1_takes_the_files(files: list[Path]) -> None:
    done = composed(files, DOCKER_GID="998", HOLDFAST_DOCKER_IMAGE="debian:12")
    assert done.returncode == 0, done.stderr
    service = yaml.safe_load(done.stdout)["services"]["gateway"]
    asked = {name: str(value or "debian:12") for name, value in service_of(*files)["environment"].items()}
    assert service["environment"] == asked
    assert service["build"]["dockerfile"] == "deploy/Dockerfile"
    assert service.get("group_add", ["998"]) == ["998"]


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose (v1) is not installed")
def test_who_does_not_name_the_sockets_group_hears_what_to_type() -> None:
    done = composed([COMPOSE, DOCKER])
    assert done.returncode != 0
    assert "export DOCKER_GID=`stat -c %g /var/run/docker.sock`" in done.stderr


def composed(files: list[Path], **env: str) -> subprocess.CompletedProcess[str]:
    argv = ["docker-compose", *(word for file in files for word in ("-f", str(file))), "config"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, env={"PATH": os.environ["PATH"], **env})


@pytest.mark.parametrize(
    "name",
    ["Dockerfile", "agents.Dockerfile", "compose.yaml", "compose.contained.yaml", "compose.docker.yaml", "README.md"],
)
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
