"""A label is the same for the same word, and there are never more than was said."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.telemetry.bounded_labels import OTHERS, BoundedLabels


@given(st.lists(st.tuples(st.sampled_from("ab"), st.text(max_size=2))))
def test_the_first_words_of_a_group_are_its_labels(said: list[tuple[str, str]]) -> None:
    labels, model = BoundedLabels(3), dict[str, list[str]]()
    for group, word in said:
        known = model.setdefault(group, [])
        if word not in known and len(known) < 3:
            known.append(word)
        assert labels.label(group, word) == (word if word in known else OTHERS)
