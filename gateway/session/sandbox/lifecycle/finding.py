"""How a sandbox that should run is found again: ask whether it runs, dial it, wait for its hello. Pure.

A silent provider proves nothing about the sandbox: it is asked again for as long as it takes, and the sandbox is not
stopped. A sandbox that runs and refuses its link `link_attempts` times is stopped, because it cannot be reached. So is
one whose bridge reports that its agent is held, and does not answer questions about its workspace. A bridge that closes
each link before its hello is dialled again and again; stops and syncs go on without a link.
"""

from gateway.session.model.state import SessionStatus
from gateway.session.sandbox.lifecycle import effects as do
from gateway.session.sandbox.lifecycle.clearing import SANDBOX_ENDED, WAS_HELD, clear
from gateway.session.sandbox.lifecycle.events import (
    BridgeHello,
    DialRefused,
    DoesNotRun,
    Due,
    Facts,
    LetGo,
    Linked,
    LinkLost,
    Runs,
    StillHeld,
    TurnGiven,
    Unavailable,
)
from gateway.session.sandbox.lifecycle.life import After, Life, LifeStage
from persistence.backoff import delay

STEADY_SECONDS = 10.0  # after a shorter link the next look waits, longer each time


def find(life: Life) -> None:
    life.wait(LifeStage.ASKING, do.AskRuns(life.next()))


def find_after_load(life: Life) -> None:
    life.loading = True
    life.wait(LifeStage.FIND_QUEUED, do.AskTurn(life.next(), runs=True))


def find_turn_given(life: Life, event: TurnGiven, facts: Facts) -> None:
    life.turn = event.number
    find(life)


def find_now(life: Life, event: Due, facts: Facts) -> None:
    find(life)


def runs(life: Life, event: Runs, facts: Facts) -> None:
    life.wait(LifeStage.LINKING, do.Connect(life.next()))


def does_not_run(life: Life, event: DoesNotRun, facts: Facts) -> None:
    clear(life, After.GONE if life.loading else After.DIED, SessionStatus.SLEEPING, SANDBOX_ENDED)


def refused(life: Life, event: DialRefused, facts: Facts) -> None:
    life.attempts += 1
    if life.attempts >= life.limits.link_attempts:
        clear(life, After.GONE if life.loading else After.DIED, SessionStatus.SLEEPING, SANDBOX_ENDED)
    else:
        _find_later(life, delay(life.attempts, life.rng, base=0.1, cap=2.0))


def unanswered(life: Life, event: Unavailable, facts: Facts) -> None:
    """Unknown is not dead: the sandbox is not stopped, no message is lost, and waiting requests are refused."""
    life.drop_link()
    life.end_turn()
    life.refuse_unavailable(event.reason)
    if life.reason != event.reason:
        life.become(life.status, event.reason)
    life.flaps += 1
    _find_later(life, delay(life.flaps, life.rng, base=0.2, cap=10.0))


def _find_later(life: Life, seconds: float) -> None:
    life.wait(LifeStage.FIND_LATER, do.Schedule(life.next(), seconds))


def found(life: Life, event: Linked, facts: Facts) -> None:
    life.link, life.greeted, life.linked_at = event.number, False, facts.now
    life.stage, life.awaited = LifeStage.GREETING, 0


def greeting(life: Life, event: BridgeHello, facts: Facts) -> None:
    if event.held:
        life.wait(LifeStage.SURVEYING, do.AskHeld(life.next()))
    else:
        greet(life)


def let_go(life: Life, event: LetGo, facts: Facts) -> None:
    """The agent was released after the bridge had said hello."""
    greet(life)


def still_held(life: Life, event: StillHeld, facts: Facts) -> None:
    """The gateway that was to release the agent is gone."""
    clear(life, After.HELD, SessionStatus.SLEEPING, WAS_HELD)


def find_unsurveyed(life: Life) -> bool:
    """The bridge reports that its agent is held, and does not answer the survey. Return True if it will be looked for
    again. The state of its disk is unknown, so in the end it is stopped like a sandbox that reports `StillHeld`."""
    life.attempts += 1
    life.drop_link()
    life.end_turn()
    if life.attempts >= life.limits.link_attempts:
        clear(life, After.HELD, SessionStatus.SLEEPING, WAS_HELD)
        return False
    _find_later(life, delay(life.attempts, life.rng, base=0.2, cap=10.0))
    return True


def greet(life: Life) -> None:
    """The sandbox runs, and its agent is not held. Whether an agent runs is known when its hello is processed."""
    if life.status is not SessionStatus.RUNNING or life.reason:
        life.become(SessionStatus.RUNNING)
    life.effects += [do.MarkProven(), do.HearHello(life.link)]
    life.settle(LifeStage.UP)
    life.attempts, life.loading = 0, False


def lost(life: Life, event: LinkLost, facts: Facts) -> None:
    """The link is lost: it alone, or the whole sandbox."""
    life.flaps = life.flaps + 1 if facts.now - life.linked_at < STEADY_SECONDS else 0
    life.effects.append(do.CutSync())
    if life.awaited:
        life.effects.append(do.Cancel(life.awaited))
    life.drop_link()
    life.end_turn()
    if life.flaps:  # a bridge that lets us in only to throw us out costs us next to nothing
        _find_later(life, delay(life.flaps, life.rng, base=0.05, cap=5.0))
    else:
        find(life)
