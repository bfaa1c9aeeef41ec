"""Makes sure that a sandbox declared dead is dead: it is stopped before its end is reported. Pure.

While the provider does not confirm the stop, waiting requests are refused, and the stop is repeated.
"""

from gateway.session.model.state import SessionStatus
from gateway.session.sandbox.lifecycle import agent
from gateway.session.sandbox.lifecycle import effects as do
from gateway.session.sandbox.lifecycle.events import Due, Facts, Failure, Stopped, Unavailable
from gateway.session.sandbox.lifecycle.life import After, Life, LifeStage
from persistence.backoff import delay

STORE_AWAY = "it was not started, because the store does not answer"
SANDBOX_ENDED = "its sandbox ended"
WAS_HELD = "its gateway ended during its start or stop"
RETRY_BASE, RETRY_CAP = 0.2, 10.0


def clear(life: Life, after: After, to: SessionStatus, why: str) -> None:
    life.after, life.to, life.why = after, to, why
    life.drop_link()
    life.end_turn()
    life.wait(LifeStage.CLEARING, do.StopSandbox(life.next()))


def clear_later(life: Life, event: Failure, facts: Facts) -> None:
    """The provider does not answer: refuse the requests that wait, and try again later. A restore that failed for this
    reason proves nothing about the workspace."""
    if isinstance(event, Unavailable) and life.after is After.FAILED and life.to is SessionStatus.UNRESTORED:
        unanswered(life, event)
    life.refuse_unavailable(event.reason)
    life.trouble = None
    seconds = delay(life.attempts, life.rng, base=RETRY_BASE, cap=RETRY_CAP)
    life.attempts += 1
    life.wait(LifeStage.CLEAR_LATER, do.Schedule(life.next(), seconds))


def unanswered(life: Life, event: Unavailable) -> None:
    life.after, life.to, life.why = After.UNANSWERED, SessionStatus.SLEEPING, event.reason
    life.become(SessionStatus.STARTING, life.why)


def clear_again(life: Life, event: Due, facts: Facts) -> None:
    life.wait(LifeStage.CLEARING, do.StopSandbox(life.next()))


def cleared(life: Life, event: Stopped, facts: Facts) -> None:
    """No sandbox runs now. Set the status and its reason, and decide whether to start again."""
    life.effects.append(do.EndSync())
    if life.after is not After.UNANSWERED:
        life.attempts = 0
    match life.after:
        case After.FAILED:
            _failed(life, facts)
        case After.UNWRITTEN:
            life.become(SessionStatus.SLEEPING, STORE_AWAY)
            if facts.waiting:
                agent.restart_later(life, facts)
        case After.UNANSWERED:
            life.become(SessionStatus.SLEEPING, life.why)
            life.again = facts.waiting or life.wanted or not life.by_name  # requests for it by name were refused
        case After.DIED | After.HELD:
            _died(life, facts)
        case After.GIVEN_UP:
            life.become(SessionStatus.SLEEPING)
        case After.GONE:
            life.effects.append(do.EndEpoch(life.why))
            life.become(SessionStatus.SLEEPING, life.why)
            life.again = life.wanted or facts.waiting
        case _:  # visited, or a leftover: the status is right already
            pass
    life.settle(LifeStage.REST)
    if life.trouble is None:
        life.answer()
    else:
        life.refuse(*life.trouble)
        life.trouble = None


def _failed(life: Life, facts: Facts) -> None:
    life.patience.failed(facts.now)
    life.effects.append(do.ForgetUnsure(life.why))
    life.become(life.to, life.why)
    code = "unrestored" if life.to is SessionStatus.UNRESTORED else "sandbox_failed"
    life.effects.append(do.TellError(code, life.why))
    if facts.waiting:
        agent.restart_later(life, facts)


def _died(life: Life, facts: Facts) -> None:
    life.patience.failed(facts.now)
    if life.after is After.HELD:
        life.effects.append(do.EndEpoch(life.why))
    life.become(SessionStatus.SLEEPING, life.why)
    life.again = life.after is After.DIED or life.wanted or facts.waiting
    if life.again and life.patience.exhausted(facts.now):
        life.again = False
        life.effects.append(do.ForgetUnsure(life.why))
        agent.give_up(life, life.why)
