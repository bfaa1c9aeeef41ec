"""How a connection to a bridge is opened: dialled, greeted, or given up with a reason."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sandbox.ports.provider import LinkRefused

Dial = Callable[[Callable[[], asyncio.Protocol]], Awaitable[object]]


class BridgeConnection(asyncio.Protocol):
    """The gateway's end of a connection to a bridge."""

    __slots__ = ()

    def close(self) -> None:
        """Let go; whoever owns it hears nothing more of it."""
        raise AssertionError("every link has its own")


L = TypeVar("L", bound=BridgeConnection)


async def open_link(dial: Dial, link: L, opened: "asyncio.Future[None]", seconds: float) -> L:
    """`dial` takes a protocol factory and connects it, like `loop.create_unix_connection`; `link`
    is returned when `opened` says so. Raises LinkRefused; then the link is closed."""
    try:
        async with asyncio.timeout(seconds):
            await dial(lambda: link)
            await opened
    except TimeoutError:
        if opened.done() and not opened.cancelled() and opened.exception() is None:
            return link  # at the last moment: its owner has heard of it already
        link.close()
        raise LinkRefused("the bridge does not answer") from None
    except OSError as exc:
        link.close()
        raise LinkRefused(f"the bridge cannot be reached: {exc.strerror or exc}") from exc
    except BaseException:
        link.close()
        raise
    return link
