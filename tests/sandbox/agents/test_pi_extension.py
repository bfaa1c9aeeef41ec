"""The extension that pi is given: tests/sandbox/agents/golden/pi shows the real pi with it."""

from sandbox.agents.pi_extension import ALLOW, DENY, EXTENSION, PERMISSION, QUESTION


def test_the_extension_asks_in_the_words_that_the_core_reads() -> None:
    source = EXTENSION.decode()
    for words in (PERMISSION, QUESTION, ALLOW, DENY):
        assert f'"{words}"' in source
    assert source.count("{") == source.count("}")
    assert source.count("(") == source.count(")")
