"""A program's bytes as text: cut between characters, and invalid UTF-8 becomes U+FFFD. Pure.

However the bytes were cut, the pieces together are `bytes.decode("utf-8", "replace")` of the whole: the beginning of a
character at the end of a piece waits for the next one. No more than three bytes ever wait.
"""

_LEAD = 0xC0  # bytes from here on begin a character of several; 0x80 up to here continue one


class Utf8Cutter:
    __slots__ = ("_begun",)

    def __init__(self) -> None:
        self._begun = b""

    def cut(self, payload: bytes) -> bytes:
        """The complete characters so far, as valid UTF-8."""
        if not self._begun and payload.isascii():
            return payload
        whole = self._whole(payload)
        try:
            str(whole, "utf-8")  # only a check: encoding it again would cost as much as this
        except UnicodeDecodeError:
            return whole.decode(errors="replace").encode()
        return whole

    def text(self, payload: bytes) -> str:
        """The same, as a string."""
        return self._whole(payload).decode(errors="replace")

    def finish(self) -> str:
        """No more bytes come: return U+FFFD for the waiting ones, and begin again."""
        begun, self._begun = self._begun, b""
        return begun.decode(errors="replace")

    def _whole(self, payload: bytes) -> bytes:
        """All but the last character, if that may go on.

        It is enough to find its first byte: a cut before such a byte is a cut between characters, whatever stands on
        either side of it.
        """
        if self._begun:
            payload = self._begun + payload
        for back, byte in enumerate(payload[:-4:-1], 1):
            if byte >= _LEAD and back < _length(byte):
                self._begun = payload[-back:]
                return payload[:-back]
            if not 0x80 <= byte < _LEAD:
                break
        self._begun = b""
        return payload


def _length(lead: int) -> int:
    """The length of the character that begins with this byte."""
    return 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
