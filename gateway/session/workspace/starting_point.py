"""Decides with which files a workspace begins: the newest generation, the disk as it is, or none. Pure.

Never: an agent starts in less than its session had, unless a request asked for exactly that (`empty`, `keep`). Where
that cannot be known, NotRestored says why and what to do.
"""

from gateway.session.model.state import SessionState
from gateway.session.workspace.errors import NotRestored
from sandbox.protocol.tree import Survey
from sync.format.pointer import Generation
from sync.machine.reconcile import Decision, Newest, decide, lost_most


def newest_found(found: Generation | None, state: SessionState, *, keep: bool) -> Newest | None:
    """The object store has answered: return the generation to begin with, None for none. `keep`: the disk is to take
    its place. Raises NotRestored."""
    if found is not None and keep:
        raise NotRestored(
            f"the object store has generation {found.number} of this session: resume without {{keep:true}} to have it "
            "restored"
        )
    if found is None and state.generation and not keep:
        raise NotRestored(
            f"generation {state.generation} was stored, and the object store has nothing of this session: check "
            "HOLDFAST_OBJECTS, or resume with {keep:true} to go on with the files that are on its disk, or with "
            "{empty:true} to begin without files"
        )
    return None if found is None else Newest(found.manifest, found.files)


def newest_unknown(state: SessionState, cause: Exception, *, keep: bool) -> Newest | None:
    """The same if the object store does not answer; `cause` is the error."""
    if state.generation and not keep:  # the disk may be that generation
        return Newest(state.tree, state.files)
    if state.incarnation <= 1:  # it is started for the first time
        return None
    raise NotRestored(f"the object store does not answer whether a snapshot exists: {cause!r}") from cause


def begins_with_disk(state: SessionState, *, empty: bool) -> bool:
    """True if the disk is right whatever is stored: it began with less than the newest generation, or is to begin
    empty."""
    return empty or (state.fresh and not state.clean)


def starting_point(survey: Survey, newest: Newest | None, state: SessionState, *, empty: bool, keep: bool) -> Decision:
    """The decision about a disk in the state of `survey`. Raises NotRestored."""
    if keep and not survey.files:
        raise NotRestored(
            "this session's disk has no files to keep: check HOLDFAST_OBJECTS and the data directory, or resume with "
            "{empty:true} to begin without files"
        )
    if begins_with_disk(state, empty=empty) or (state.overfull and survey.files > 0):
        return Decision.KEEP_AND_SYNC
    return decide(survey, newest, state.clean)


def restored_before(survey: Survey, restored: Newest) -> Decision:
    """The previous sandbox put `restored` on the disk, and no program has run since. Raises NotRestored."""
    if restored.is_noted_in(survey):
        return Decision.KEEP
    if lost_most(restored.files, survey.files):
        raise NotRestored(
            f"{restored.files} files were restored, and the sandbox that was started then finds {survey.files}: check "
            "the disk of the data directory, then wake the session"
        )
    return Decision.KEEP_AND_SYNC  # the files are there; the note about them is not
