"""Names of container images."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.ports.images import ImageReference, asked_of_engine, read_reference, split_reference

DIGEST = f"sha256:{'0a' * 32}"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("debian", ImageReference("docker.io", "library/debian", "latest")),
        ("debian:bookworm-slim", ImageReference("docker.io", "library/debian", "bookworm-slim")),
        ("docker.io/debian", ImageReference("docker.io", "library/debian", "latest")),
        ("index.docker.io/library/debian:1", ImageReference("docker.io", "library/debian", "1")),
        ("team/image", ImageReference("docker.io", "team/image", "latest")),
        ("localhost/image", ImageReference("localhost", "image", "latest")),
        ("127.0.0.1:5000/a/b__c/d-e.f:v1_2", ImageReference("127.0.0.1:5000", "a/b__c/d-e.f", "v1_2")),
        (f"ghcr.io/team/image@{DIGEST}", ImageReference("ghcr.io", "team/image", "", DIGEST)),
        (f"ghcr.io/team/image:1@{DIGEST}", ImageReference("ghcr.io", "team/image", "1", DIGEST)),
    ],
)
def test_names_are_read_as_docker_reads_them(text: str, meant: ImageReference) -> None:
    assert read_reference(text) == meant
    assert meant.repository == f"{meant.registry}/{meant.path}"


@pytest.mark.parametrize(
    "text",
    [
        *("", "Debian", "debian:", "debian@", "debian:@" + DIGEST, "debian:-x", "debian:a:b", "debian/", "/debian"),
        *("a//b",),
        *("a b", "a\nb", "debian:latest\n", "-debian", "debian-", "a..b", "../etc", "debian:a/b", "a:x/b", "http://a/b"),
        *(DIGEST, f"docker.io/library/{DIGEST}", "0a" * 32, "debian@sha256:0a", "debian@md5:" + "0" * 32, "ä"),
        *("localhost:/x", "a.b-/c", f"x@{DIGEST}@{DIGEST}", "x:" + "t" * 129, "x" * 256, "a.example:123456/x"),
    ],
)  # fmt: skip
def test_what_is_no_name_of_an_image_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="wants the name of an image, such as debian:bookworm"):
        read_reference(text)


def test_an_engine_is_never_asked_for_what_could_be_the_beginning_of_an_id() -> None:
    assert asked_of_engine("deadbeef") == "deadbeef:latest"
    assert asked_of_engine("localhost:5000/x") == "localhost:5000/x:latest"
    for whole in ("debian:12", f"debian@{DIGEST}", f"debian:12@{DIGEST}"):
        assert asked_of_engine(whole) == whole
    for an_operators_id in (DIGEST, "0a" * 32):
        assert asked_of_engine(an_operators_id) == an_operators_id


WORD = st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True)
NAMES = st.builds(
    ImageReference,
    st.one_of(st.just("docker.io"), st.from_regex(r"[a-z]{1,8}\.[a-z]{2,3}(:[0-9]{1,5})?", fullmatch=True)),
    st.lists(WORD, min_size=2, max_size=4).map("/".join),
    WORD,
    st.sampled_from(["", DIGEST]),
)


@given(NAMES)
def test_a_name_written_out_is_the_same_name(name: ImageReference) -> None:
    written = f"{name.repository}:{name.tag}" + (f"@{name.digest}" if name.digest else "")
    assert read_reference(written) == name
    assert asked_of_engine(written) == written


@given(st.text(alphabet="ab.:/@*-_ \n", max_size=20))
def test_whatever_is_split_is_refused_or_read_alike(text: str) -> None:
    registry, path, tag, _ = split_reference(text)
    try:
        found = read_reference(text)
    except ValueError:
        return
    assert (found.registry, found.path) == (registry, path)
    assert found.tag == (tag or "latest")
