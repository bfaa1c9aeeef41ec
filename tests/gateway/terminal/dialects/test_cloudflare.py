"""The dialect of Cloudflare's sandbox client, frame by frame."""

import pytest

from gateway.terminal.dialects.cloudflare import CloudflareDialect
from gateway.terminal.dialects.ports import Typed, Wanted
from sandbox.protocol.terminal import Exit, Size
from tests.support.dialects import HELLO, RESET, TROUBLE, binaries, control


class TestCloudflare:
    def test_what_is_there_already_comes_before_ready(self) -> None:
        assert control(CloudflareDialect().greet(HELLO, None)) == [{"type": "ready"}]
        assert control(CloudflareDialect().greet(HELLO, b"\xffscreen")) == [b"\x1bc\xffscreen", {"type": "ready"}]
        assert control(CloudflareDialect().repaint(RESET, b"screen")) == [b"\x1bcscreen"]

    @pytest.mark.parametrize(
        ("ended", "told"),
        [
            (Exit(0, None), {"code": 0}),
            (Exit(None, "SIGKILL"), {"code": 137, "signal": "SIGKILL"}),
            (Exit(None, "SIGRTMIN+3"), {"code": 128, "signal": "SIGRTMIN+3"}),
            (Exit(1, "SIGTERM"), {"code": 1, "signal": "SIGTERM"}),
            (Exit(None, None), {"code": 128}),
        ],
    )
    def test_the_code_of_an_exit_is_a_number(self, ended: Exit, told: dict[str, object]) -> None:
        assert control(CloudflareDialect().exited(ended)) == [{"type": "exit", **told}]

    def test_of_the_rest_only_trouble_has_a_word(self) -> None:
        dialect = CloudflareDialect()
        assert control(dialect.told_trouble(TROUBLE)) == [{"type": "error", "message": "no such program"}]
        assert dialect.resized(Size(9, 8)) == b""
        assert dialect.told_status("running") == b""
        assert dialect.told_expiring("soon") == b""

    def test_it_hears_sizes_and_passes_over_what_is_none(self) -> None:
        dialect = CloudflareDialect()
        assert dialect.hear_text(b'{"type":"resize","cols":120,"rows":30}') == (Wanted(Size(120, 30)),)
        assert dialect.hear_text(b'{"type":"resize","cols":0,"rows":30}') == ()
        assert dialect.hear_text(b'{"type":"interrupt"}') == ()

    def test_bytes_pass_as_they_are(self) -> None:
        assert binaries(CloudflareDialect().output(b"\xff\x00")) == [b"\xff\x00"]
        assert CloudflareDialect().hear_binary(b"\xff\x00") == (Typed(b"\xff\x00"),)
