"""`holdfast attach SESSION`: a session's terminal in this one, or by pipe for scripts."""

from gateway.cli.commands.attach_pipe import PipedAttachment
from gateway.cli.commands.attach_screen import Attachment
from gateway.cli.commands.terminal_access import TerminalAccess, TerminalChoice
from gateway.cli.console.detach_keys import DetachKeys, read_keys
from gateway.cli.console.exits import Left, leaving_by_signal
from gateway.cli.console.output import as_typed, complain
from gateway.cli.console.tty import Tty, is_terminal
from gateway.config.settings import Settings


async def attach(settings: Settings, chosen: TerminalChoice, *, view: bool, detach_keys: str) -> int:
    """Until the program ends, whose exit code it is then, or the person leaves: 0."""
    door = TerminalAccess(settings, chosen)
    if is_terminal():
        left = await _on_screen(door, view=view, detach_keys=detach_keys)
    else:
        left = await _by_pipe(door, view=view)
    if left.detached:
        complain(f"left; the program goes on. Come back with: {_come_back(chosen, view=view)}")
    elif left.words:
        complain(left.words)
    return left.code


async def _on_screen(door: TerminalAccess, *, view: bool, detach_keys: str) -> Left:
    keys = DetachKeys(read_keys(detach_keys))
    async with door.api() as api:
        await door.check(api)
    with Tty() as tty:
        async with door.link("view" if view else "drive", None if view else tty.size) as link:
            attachment = Attachment(link, tty, keys, drives=not view, leaving_keys=detach_keys)
            with leaving_by_signal(attachment.leave):
                return await attachment.run()


async def _by_pipe(door: TerminalAccess, *, view: bool) -> Left:
    async with door.api() as api:
        await door.check(api)
        ended = await door.ended_epoch(api)
        async with door.link("view" if view else "drive", None) as link:
            piped = PipedAttachment(link, lambda: door.wake(api), drives=not view, ended=ended)
            with leaving_by_signal(piped.leave):
                return await piped.run()


def _come_back(chosen: TerminalChoice, *, view: bool) -> str:
    named = {"--name": None if chosen.name == "main" else chosen.name, "--url": chosen.url, "--user": chosen.user}
    words = [word for name, value in named.items() if value for word in (name, value)]
    return as_typed("attach", chosen.session_id, *words, *(["--view"] if view else []))
