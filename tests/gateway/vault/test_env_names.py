"""Which variables the vault takes the place of."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.vault.env_names import PROVIDER_OF, providers_of


@given(st.sets(st.sampled_from([*PROVIDER_OF, "DATABASE_URL", "openai_api_key"])))
def test_all_of_them_are_keys_or_nothing_takes_their_place(names: set[str]) -> None:
    known = [PROVIDER_OF[name] for name in names if name in PROVIDER_OF]
    assert providers_of(names) == (tuple(sorted(set(known))) if len(known) == len(names) else ())
