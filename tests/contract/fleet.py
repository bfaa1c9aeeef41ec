"""What every Fleet promises. An adapter's test class inherits this and gives the `fleet` fixture."""

import pytest

from sandbox.ports.fleet import Fleet
from sandbox.ports.link import LinkRefused
from tests.contract.sandbox import attach, run_agent, spec
from tests.support.bridge import Owner


class FleetContract:
    async def test_a_provider_that_answers_has_no_problem(self, fleet: Fleet) -> None:
        health = await fleet.health()
        assert health.problem is None
        assert health.cpus is None or health.cpus > 0
        assert health.memory is None or health.memory > 1 << 20

    async def test_what_is_started_runs_until_it_is_stopped(self, fleet: Fleet) -> None:
        await fleet.start(spec())
        assert await fleet.running() == ["s1"]
        await fleet.sandbox("s1").stop()
        await fleet.sandbox("s1").stop()
        assert await fleet.running() == []
        with pytest.raises(LinkRefused):
            await fleet.sandbox("s1").connect(Owner(), None)
        await fleet.sandbox("s1").destroy()
        await fleet.sandbox("s1").destroy()

    async def test_nothing_is_known_of_a_session_that_was_never_started(self, fleet: Fleet) -> None:
        await fleet.sandbox("s1").stop()
        await fleet.sandbox("s1").destroy()
        assert await fleet.sandbox("s1").logs() == b""
        with pytest.raises(LinkRefused):
            await fleet.sandbox("s1").connect(Owner(), None)

    async def test_killing_one_sandbox_harms_no_other(self, fleet: Fleet) -> None:
        await fleet.start(spec("s1"))
        await fleet.start(spec("s1x"))
        other = Owner()
        link = await attach(fleet, other, session_id="s1x")
        assert await fleet.sandbox("s1").kill()
        await run_agent(link, other)
        assert other.lost == []

    async def test_sandboxes_do_not_disturb_each_other(self, fleet: Fleet) -> None:
        await fleet.start(spec("s1"))
        await fleet.start(spec("s1x"))
        one, other = Owner(), Owner()
        link = await attach(fleet, other, session_id="s1x")
        await attach(fleet, one, session_id="s1")
        assert sorted(await fleet.running()) == ["s1", "s1x"]
        await fleet.sandbox("s1").destroy()
        assert await fleet.running() == ["s1x"]
        await run_agent(link, other)
        assert other.lost == []

    async def test_a_handle_is_of_the_session_whenever_it_was_made(self, fleet: Fleet) -> None:
        before = fleet.sandbox("s1")
        assert (before.session_id, before.provider, before.level) == ("s1", fleet.name, fleet.level)
        assert not await before.runs()
        await fleet.start(spec())
        assert await before.runs()
        assert not await fleet.sandbox("s1x").runs()
        await fleet.sandbox("s1").stop()
        assert not await before.runs()
        await fleet.start(spec(incarnation=2))
        assert await before.runs(), "also of the next incarnation"

    async def test_what_is_asked_for_is_checked_without_looking_anything_up(self, fleet: Fleet) -> None:
        fleet.check(spec("never-started"))
