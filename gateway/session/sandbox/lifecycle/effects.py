"""What a session's life asks of the world. Values alone.

Effects are performed in the order in which they are returned. An `Asked` one is answered once, by an `EffectReply` with
its number; at most one is awaited. `ScheduleRestart`, `Flush` and `HearHello` are answered by events of their own, and
nothing waits for those. The others are not answered.
"""

import msgspec

from gateway.session.model.state import SessionStatus


class Effect(msgspec.Struct, frozen=True):
    pass


class Asked(Effect, frozen=True):
    number: int


class AskTurn(Asked, frozen=True):
    """TurnGiven. `runs`: the sandbox runs already and only has to be found. `visit`: it is not shown as one that
    starts."""

    runs: bool = False
    visit: bool = False


class LookForNewest(Asked, frozen=True):
    """Which generation is the newest: Looked, Unrestorable, StartFailed."""

    keep: bool = False


class StartHeld(Asked, frozen=True):
    """A sandbox with its agent held, after the end of one that runs: SandboxStarted, StartFailed, Unavailable."""

    incarnation: int = 0
    empty: bool = False
    keep: bool = False
    visit: bool = False  # without the session's environment


class Prepare(Asked, frozen=True):
    """The disk is to hold what it should: Prepared, Unrestorable, StartFailed, Unavailable; unless it is a `visit`
    RestoredUnseen."""

    empty: bool = False
    keep: bool = False
    visit: bool = False  # no program runs in it


class Release(Asked, frozen=True):
    """Make it durable that the disk is ahead of the store, then let the agent go: AgentReleased, Unrestorable,
    StartFailed, Unavailable; only if `bounded` StoreSilent."""

    bounded: bool = False


class Connect(Asked, frozen=True):
    """Linked, DialRefused, Unavailable. The number is the link's from then on."""


class AskRuns(Asked, frozen=True):
    """Runs, DoesNotRun, Unavailable."""


class AskHeld(Asked, frozen=True):
    """Whether the agent is held still: LetGo, StillHeld, Unavailable; DialRefused if its bridge does not say."""


class Lull(Asked, frozen=True):
    """Wait for the sync that is under way: Lulled, NotKept."""


class Keep(Asked, frozen=True):
    """Freeze the programs unless it is a `visit`, then sync: WorkspaceKept, Overfull, NotKept, Unavailable; DoesNotRun
    if the sandbox has ended by itself."""

    visit: bool = False


class StopSandbox(Asked, frozen=True):
    """Stop the sandbox, if it runs: Stopped, NotStopped, Unavailable."""


class WriteArchived(Asked, frozen=True):
    """ArchivedWritten when it is durable that the session is archived; StoreSilent."""


class Destroy(Asked, frozen=True):
    """Remove the sandbox, its disk and its snapshots: Destroyed, NotDestroyed, Unavailable."""


class ConfirmOwner(Asked, frozen=True):
    """OwnerConfirmed when the store has taken a write of this gateway: no other has the session; StoreSilent."""


class PutBackGeneration(Asked, frozen=True):
    """PutInPlace, NotPutInPlace."""

    generation: int = 0


class Schedule(Asked, frozen=True):
    """Due, after `seconds`."""

    seconds: float = 0.0


# -- what is not awaited -----------------------------------------------------------------------------------------------


class Cancel(Effect, frozen=True):
    """That effect is not wanted any more. What it got (a turn, a link) or gets is given back; no answer counts."""

    number: int


class EndTurn(Effect, frozen=True):
    number: int


class DropLink(Effect, frozen=True):
    link: int


class HearHello(Effect, frozen=True):
    """Deal with the link's hello behind all that was told before it, then: GreetingDone."""

    link: int


class StartAgent(Effect, frozen=True):
    link: int


class TellAgentToStop(Effect, frozen=True):
    link: int


class CutSync(Effect, frozen=True):
    """The link is lost: an attempt at a sync ends with it."""


class EndSync(Effect, frozen=True):
    """Nothing of the workspace is synced or thawed from now on: the sandbox has ended, or the session is deleted."""


class PauseSync(Effect, frozen=True):
    """No more attempts at a sync until the sandbox is found again: it is being stopped with what cannot be kept."""


class MarkProven(Effect, frozen=True):
    """An earlier gateway proved the workspace of the sandbox that was found: it may be synced."""


class Thaw(Effect, frozen=True):
    """Programs may start again. Asked for until the bridge has answered."""


class Flush(Effect, frozen=True):
    """Keep what is on the disk now, beside all else: Flushed, NotFlushed."""

    flush: int


class Save(Effect, frozen=True):
    """Store where the session stands, and tell its viewers the status if it is another."""

    status: SessionStatus
    reason: str
    incarnation: int
    clean: bool
    overfull: bool
    has_workspace: bool


class ForgetUnsure(Effect, frozen=True):
    """The sandbox is gone for good: say what it had and did not finish, in the link's order."""

    reason: str


class EndEpoch(Effect, frozen=True):
    """The agent process is gone, in the link's order; what is unsure stays so, if something is."""

    reason: str


class DiscardWindow(Effect, frozen=True):
    """What waits will not be delivered."""


class TellError(Effect, frozen=True):
    code: str
    text: str


class TellConnection(Effect, frozen=True):
    word: str


class ScheduleRestart(Effect, frozen=True):
    """RestartDue with that number, after `seconds`."""

    number: int
    seconds: float


class Answer(Effect, frozen=True):
    """What was asked for is done, or overtaken: the description says which."""

    ask: int


class RefuseAsk(Effect, frozen=True):
    ask: int
    code: str
    text: str
