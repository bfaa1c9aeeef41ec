"""An agent is started when it is known that none runs, started again after a pause, and given up."""

from gateway.session.model.state import SessionStatus as Status
from gateway.session.sandbox.lifecycle import agent
from gateway.session.sandbox.lifecycle import effects as do
from gateway.session.sandbox.lifecycle import events as on_
from gateway.session.sandbox.lifecycle.life import AgentPhase
from tests.support.lives import LIMITS, Played


def test_a_hello_says_that_an_agent_runs_and_the_agent_says_so_itself() -> None:
    life = Played(link=1, wanted=True).life
    agent.greet(life, alive=False)
    assert (life.greeted, life.wanted, life.agent) == (True, True, AgentPhase.NONE)
    agent.greet(life, alive=True)
    assert (life.wanted, life.agent) == (False, AgentPhase.STARTING)
    life.agent = AgentPhase.ALIVE
    agent.greet(life, alive=True)
    assert life.agent is AgentPhase.ALIVE


def test_an_agent_is_started_once_and_not_before_it_is_known_whether_one_runs() -> None:
    life = Played(link=1).life
    agent.start_agent(life, on_.Facts())
    assert (life.wanted, life.effects) == (True, [])
    life.greeted = True
    agent.start_agent(life, on_.Facts(exit_due=True))
    assert life.effects == [], "its last words may be on their way"
    for _ in range(2):
        agent.start_agent(life, on_.Facts())
        assert (life.wanted, life.effects) == (False, [do.StartAgent(1)])


def test_a_restart_is_scheduled_once_and_can_be_called_off() -> None:
    life = Played().life
    agent.cancel_restart(life)
    assert life.effects == []
    for _ in range(2):
        agent.restart_later(life, on_.Facts())
        assert [type(effect) for effect in life.effects] == [do.ScheduleRestart]
    number = life.restart
    agent.cancel_restart(life)
    assert (life.restart, life.effects[-1]) == (0, do.Cancel(number))
    for _ in range(LIMITS.crashes):
        life.patience.failed(0.0)
    agent.restart_later(life, on_.Facts())
    assert life.restart == 0


def test_one_that_is_given_up_says_what_to_do() -> None:
    life = Played().life
    agent.give_up(life, "no such program")
    assert (life.status, "(last: no such program). Fix the cause" in life.reason) == (Status.ERROR, True)
    assert life.effects[-1] == do.TellError("crash_loop", life.reason)
