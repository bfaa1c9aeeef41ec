from sandbox.agents.catalogue import CORES, DEFAULT
from sandbox.agents.plain import PlainCore


def test_the_default_is_plain_and_each_process_gets_a_core_of_its_own() -> None:
    assert DEFAULT == "plain"
    assert CORES[DEFAULT] is PlainCore
    assert all(callable(make) and make() == make() for make in CORES.values())
