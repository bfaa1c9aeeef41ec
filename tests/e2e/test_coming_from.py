"""docs/coming-from.md: its calls work as printed, and its tables name what there is."""

import asyncio
import re
from pathlib import Path

from gateway.config.settings import KNOWN
from gateway.session.model.state import SessionStatus
from tests.support.gateway import Gateway
from tests.support.routes import SPECS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/coming-from.md").read_text()
CALLS = re.findall(r"^    (\w+=.*|curl .*)$", PAGE, re.MULTILINE)
OURS = [row.split(" | ")[1] for row in re.findall(r"^\| (.*) \|$", PAGE, re.MULTILINE) if " | " in row]
CHECKED = 'curl() { command curl -sS --fail-with-body "$@" && echo; }\n'  # else an error would look like an answer


async def run(script: str, gateway: Gateway) -> str:
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-ec", CHECKED + script, env=gateway.environment(), stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        async with asyncio.timeout(60):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, said.decode()
    return said.decode()


async def test_the_calls_of_a_relay_and_of_a_worker_work_as_printed(tmp_path: Path) -> None:
    assert len(CALLS) == 12
    async with Gateway(tmp_path / "data") as gateway:
        script = "\n".join(CALLS).replace(".holdfast/", f"{gateway.data_dir}/")
        said = await run(script.replace("http://127.0.0.1:8080", gateway.url), gateway)
    assert [word for word in re.findall(r'"status":"(\w+)"', said) if word in ("paused", "archived")] == [
        "paused",
        "archived",
    ]
    answer = said[said.index("id: 2") :]
    assert '"role":"assistant"' in answer
    assert '"content":"hello"' in answer


def test_every_setting_it_names_exists() -> None:
    assert set(re.findall(r"HOLDFAST_[A-Z_]+[A-Z]", PAGE)) <= set(KNOWN)


def test_every_metric_it_names_exists() -> None:
    known = set(re.findall(r"holdfast_[a-z_]+", (ROOT / "docs/operations/watching.md").read_text()))
    assert set(re.findall(r"holdfast_[a-z_]+", PAGE)) <= known


def test_every_status_of_a_session_is_explained() -> None:
    table = PAGE.partition("## Words for a status")[2].partition("\n## ")[0]
    assert {each.value for each in SessionStatus} <= set(re.findall(r"`(\w+)`", table))


def test_every_route_it_sends_people_to_exists() -> None:
    def plain(path: str) -> str:
        return re.sub(r"\{[^}]*\}|:\w+|\.\.\.$|newest", "*", path.rstrip("/"))

    known = {(spec.method, plain(spec.path)) for spec in SPECS}
    named = {
        (method, plain(path))
        for cell in OURS
        for method, path in re.findall(r"`(GET|POST|PATCH|DELETE|WS) (/[^ `?]*)", cell)
    }
    assert len(named) > 10
    assert named - known == set()
