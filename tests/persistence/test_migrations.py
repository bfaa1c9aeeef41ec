import pytest

from persistence.errors import CannotOpen
from persistence.migrations import Migration, missing, shipped

THREE = [Migration(number, f"step{number}", "") for number in (1, 2, 3)]


@pytest.mark.parametrize(("version", "numbers"), [(0, [1, 2, 3]), (2, [3]), (3, [])])
def test_a_database_gets_what_it_lacks_in_order(version: int, numbers: list[int]) -> None:
    assert [migration.number for migration in missing(THREE, version)] == numbers


def test_a_database_from_the_future_is_refused_with_advice() -> None:
    with pytest.raises(CannotOpen, match="schema 4, this Holdfast knows up to 3: start the newer"):
        missing(THREE, 4)


def test_shipped_migrations_are_numbered_from_one_without_holes() -> None:
    numbers = [migration.number for migration in shipped("sqlite")]
    assert numbers == list(range(1, len(numbers) + 1))
    assert numbers
