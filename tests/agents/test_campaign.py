"""Gateways, bridges, agents and connections end at random while people talk to real agents over the fake model: nothing
that was acknowledged is lost, doubled or reordered, and each answer is the one to its message.

A message is its own `cid` and says `@@say` what its answer shall be. So the campaign's checker and its participants,
who know nothing of agents, judge what was promised; here is what only history can tell of the answers.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.agents.agents import AGENTS, MODEL, Model
from tests.agents.conftest import FORGIVING
from tests.agents.talk import order, talking
from tests.campaign.size import report, seeded, sized
from tests.campaign.stage import Stage, cutting, staged
from tests.support.fake_model.serving import INNER
from tests.support.launcher import Launcher
from tests.support.waiting import until

PATIENCE = 240.0  # seconds: agents start anew after each kill, two at a time on a small machine
PAUSE = 0.3  # seconds between two messages of one sender: faults shall meet agents at work
NAMES = ("claude-code", "codex", "pi")
SAYS = "@@say "
LAST_WORDS = ("delivered", "interrupted", "expired")


def _faults(rng: Random, each: int) -> list[str]:
    faults = ["cut", "agent", "bridge", "gateway"] * each
    rng.shuffle(faults)
    return faults


async def _harm(stage: Stage, fault: str, proxy: Any) -> None:
    victim = stage.rng.choice(list(stage.participants))
    match fault:
        case "cut":
            await proxy.harm_one(stage.rng)
        case "agent":
            async with stage.gateway.http() as ada:
                await ada.post(f"/api/sandboxes/{victim}/demo/kill-agent", json={})  # none may run just now
        case "bridge":
            stage.kill_bridge_now(victim)
        case "gateway":
            await stage.gateway.restart(kill=True)
    stage.journal.note("fault", kind=fault)


def _open(history: Sequence[dict[str, Any]]) -> list[str]:
    """The messages about which history has not said its last word."""
    answered = set(_answered(history))
    return [
        each["cid"]
        for each in history
        if (each["role"], each["type"]) == ("user", "message")
        and (each["status"] not in LAST_WORDS or (each["status"] == "delivered" and each["seq"] not in answered))
    ]


def _answered(history: Sequence[dict[str, Any]]) -> list[int]:
    return [
        seq
        for each in history
        if (each["role"], each["type"], each["status"]) == ("assistant", "message", "complete")
        for seq in each["metadata"]["answers"]
    ]


def _problems(session_id: str, history: Sequence[dict[str, Any]]) -> list[str]:
    """What is wrong with the answers."""
    asked = {each["seq"]: each for each in history if (each["role"], each["type"]) == ("user", "message")}
    answered = _answered(history)
    found = [f"{session_id}: {seq} was answered {count} times" for seq, count in Counter(answered).items() if count > 1]
    if answered != sorted(answered):
        found.append(f"{session_id}: answered in the order {answered}")
    for each in history:
        if each["role"] == "assistant" and each["type"] == "message" and each["status"] == "complete":
            wanted = [str(asked[seq]["content"]).removeprefix(SAYS) for seq in each["metadata"]["answers"]]
            if [each["content"]] != wanted:
                found.append(f"{session_id}: the answer to {wanted} is {each['content']!r}")
    for seq in set(answered):
        if asked[seq]["status"] != "delivered":
            found.append(f"{session_id}: {seq} is {asked[seq]['status']} and has an answer")
    return found


@pytest.mark.soak
async def test_nothing_is_lost_when_everything_around_a_real_agent_dies(
    agents_dir: Path, model: str, tmp_path: Path
) -> None:
    seed, rng = seeded()
    # What a gateway knows of a session's variables goes with it: these are every sandbox's.
    variables = tmp_path / "variables"
    variables.write_text("".join(f"{name}={value}\n" for name, value in Model(model).variables.items()))
    variables.chmod(0o600)
    settings: dict[str, Any] = {
        **{"AGENTS_DIR": agents_dir, "SANDBOX_ENV_FILE": variables, "DEMO": "true"},
        **{"LOCAL_LEVEL": "contained", "NETWORK": "outbound", "NETWORK_INNER": INNER},
    }
    chosen = [each for each in AGENTS if each.name in NAMES]
    messages, each = sized(24, 240), sized(1, 10)
    async with (
        Launcher() as launcher,
        staged(tmp_path, seed, rng, launcher=launcher, tampering=FORGIVING, **settings) as stage,
        cutting(stage.gateway) as proxy,
    ):
        near = f"ws://127.0.0.1:{proxy.port}"
        for under_test in chosen:
            Model(model).configure(stage.gateway.data_dir / "sandboxes" / under_test.session / "kept" / "agent")
            await stage.gateway.create(under_test.session, agent=under_test.agent)
            async with talking(stage.gateway, under_test.session) as talk:
                await talk.send("start", model=MODEL)
            await order(stage.gateway, under_test.session, "sleep")  # what is started from here on has read it
            stage.participants[under_test.session] = []
            for sender in ("a", "b"):
                name = f"{SAYS}{under_test.session}.{sender}"
                stage.join(under_test.session, name, messages // 2, address=lambda: near, pause=PAUSE)
        faults = _faults(rng, each)
        async with stage.playing():
            for number, fault in enumerate(faults, 1):
                await stage.progress(number * messages * len(chosen) // (len(faults) + 1), within=PATIENCE)
                await _harm(stage, fault, proxy)
            await until(lambda: all(who.finished for who in stage.everybody), "all is settled", within=PATIENCE)
            for session_id in stage.participants:

                async def over(session_id: str = session_id) -> bool:
                    return not _open(await stage.gateway.messages(session_id))

                await until(over, f"the last word on everything in {session_id}", within=PATIENCE)
        histories = {session_id: await stage.gateway.messages(session_id) for session_id in stage.participants}
        problems = [problem for session_id, history in histories.items() for problem in _problems(session_id, history)]
        problems += [violation for who in stage.everybody for violation in who.violations]
        assert problems == [], f"seed={seed}"
        statuses = Counter(str(each["status"]) for history in histories.values() for each in history)
        report(f"real agents: {len(faults)} faults, {dict(statuses)}, 0 wrong answers, seed={seed}")
        (await stage.check("real agents")).acquit(*set(faults))
