"""Passes a request's body on as it is framed, and not a byte further."""

from gateway.egress.head import RequestHead
from gateway.egress.stream import ByteStream, StreamLost
from gateway.egress.turn_share import TurnShare

PIECE = 64 * 1024
_LINE = 8 * 1024  # of a chunk's size line, with its extensions, and of a trailer
_TRAILERS = 100


async def send_body(head: RequestHead, near: ByteStream, far: ByteStream, share: TurnShare) -> None:
    """Copy the body from `near` to `far`. Raises StreamLost, also for a body that is not framed as its head says."""
    if head.length is None:
        return await _chunks(near, far, share)
    left = head.length
    while left:
        piece = await near.read(min(PIECE, left))
        if not piece:
            raise StreamLost("the request ended in its body")
        await share.take(len(piece))
        await far.write(piece)
        left -= len(piece)


async def _chunks(near: ByteStream, far: ByteStream, share: TurnShare) -> None:
    while size := await chunk_size(near):
        await far.write(b"%x\r\n" % size)
        while size:
            piece = await near.read(min(PIECE, size))
            if not piece:
                raise StreamLost("the request ended in its body")
            await share.take(len(piece))
            await far.write(piece)
            size -= len(piece)
        if await near.read_exactly(2) != b"\r\n":
            raise StreamLost("a chunk is longer than it says")
        await far.write(b"\r\n")
    await drop_trailers(near)
    await far.write(b"0\r\n\r\n")


async def chunk_size(near: ByteStream) -> int:
    """Read the size of the next chunk; 0: it was the last. Raises StreamLost."""
    line = await near.read_until(b"\r\n", _LINE)
    number = b"" if line is None else line.partition(b";")[0].strip(b" \t")
    if not number or len(number) > 15 or number.strip(b"0123456789abcdefABCDEF"):
        raise StreamLost("this is no chunk")
    return int(number, 16)


async def drop_trailers(near: ByteStream) -> None:
    """Read the trailers after the last chunk, and drop them. Raises StreamLost."""
    for _ in range(_TRAILERS):
        line = await near.read_until(b"\r\n", _LINE)
        if not line:
            if line is None:
                break
            return
    raise StreamLost("the request has no end")
