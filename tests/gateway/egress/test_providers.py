"""Whose API a sandbox may use without its key, and what of it."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.egress.providers import (
    BUILT_IN,
    Api,
    KeyHeader,
    ModelProvider,
    ModelProviders,
    key_headers,
    passage,
    read_providers,
)

KNOWN = ModelProviders()


def found(name: str, method: str, target: str) -> tuple[str, Api, bool, str] | None:
    provider = KNOWN.get(name)
    assert provider is not None
    passed = passage(provider, method, target)
    return None if passed is None else (passed.target, passed.api, passed.metered, passed.model)


@pytest.mark.parametrize(
    ("name", "method", "target", "asked", "api", "metered", "model"),
    [
        ("anthropic", "POST", "/v1/messages?beta=true", "/v1/messages?beta=true", Api.ANTHROPIC, True, ""),
        ("anthropic", "POST", "/v1/messages/count_tokens", "/v1/messages/count_tokens", Api.ANTHROPIC, False, ""),
        ("anthropic", "GET", "/v1/models/claude-x", "/v1/models/claude-x", Api.ANTHROPIC, False, ""),
        ("openai", "POST", "/v1/responses", "/v1/responses", Api.RESPONSES, True, ""),
        ("openai", "POST", "/v1/responses/compact", "/v1/responses/compact", Api.RESPONSES, True, ""),
        ("openai", "POST", "/v1/chat/completions", "/v1/chat/completions", Api.CHAT, True, ""),
        ("openai", "GET", "/v1/models", "/v1/models", Api.RESPONSES, False, ""),
        ("openrouter", "POST", "/v1/chat/completions", "/api/v1/chat/completions", Api.CHAT, True, ""),
        ("openrouter", "POST", "/v1/messages", "/api/v1/messages", Api.ANTHROPIC, True, ""),
        (
            "google",
            "POST",
            "/v1beta/models/gemini-x:streamGenerateContent?alt=sse&key=k",
            "/v1beta/models/gemini-x:streamGenerateContent?alt=sse",
            Api.GOOGLE,
            True,
            "gemini-x",
        ),
        (
            "google",
            "POST",
            "/v1beta/models/gemini-x:generateContent?key=k",
            "/v1beta/models/gemini-x:generateContent",
            Api.GOOGLE,
            True,
            "gemini-x",
        ),
        ("google", "GET", "/v1beta/models", "/v1beta/models", Api.GOOGLE, False, ""),
    ],
)
def test_what_agents_need_passes(
    name: str, method: str, target: str, asked: str, api: Api, metered: bool, model: str
) -> None:
    assert found(name, method, target) == (asked, api, metered, model)


@pytest.mark.parametrize(
    ("name", "method", "target"),
    [
        ("anthropic", "GET", "/v1/messages"),
        ("anthropic", "DELETE", "/v1/models/x"),
        ("anthropic", "POST", "/v1/organizations/api_keys"),
        ("anthropic", "POST", "/v1/messages/"),
        ("anthropic", "POST", "/v1/messages/../files"),
        ("anthropic", "POST", "/v1//messages"),
        ("anthropic", "GET", "/v1/models/..%2ffiles"),
        ("anthropic", "GET", "/v1/models/%2e%2e/files"),
        ("anthropic", "GET", "/v1/models/.%2E/files"),
        ("anthropic", "GET", "/v1/models/a%5c..%5cfiles"),
        ("anthropic", "GET", "/v1/models/%252e%252e/files"),
        ("anthropic", "GET", "/v1/models/a%0d%0ax:y"),
        ("google", "POST", "/v1beta/models/x:generateContent%3f:countTokens"),
        ("google", "POST", "/v1beta/models/x:generateContent%23:countTokens"),
        ("anthropic", "GET", "/v1/models/a\r\nx: y"),
        ("anthropic", "GET", "/v1/models/ä"),
        ("anthropic", "GET", ""),
        ("anthropic", "GET", "//evil.test/v1/models"),
        ("anthropic", "GET", "http://evil.test/v1/models"),
        ("anthropic", "POST", "/v1/chat/completions"),
        ("openai", "POST", "/v1/files"),
        ("openai", "GET", "/v1/organization/admin_api_keys"),
        ("openai", "POST", "/v1/messages"),
        ("google", "POST", "/v1beta/models/x:predict"),
        ("google", "GET", "/v1beta/files"),
        ("github", "GET", "/user"),
    ],
)
def test_nothing_else_does(name: str, method: str, target: str) -> None:
    assert found(name, method, target) is None


@pytest.mark.parametrize("query", ["fields=candidates", "$fields=candidates", "alt=proto", "$alt=proto", "callback=f"])
def test_no_parameter_hides_what_an_answer_cost(query: str) -> None:
    path = "/v1beta/models/x:generateContent"
    assert found("google", "POST", f"{path}?{query}&a=b") == (f"{path}?a=b", Api.GOOGLE, True, "x")


def test_a_model_has_its_price_however_its_name_is_written() -> None:
    asked = found("google", "POST", "/v1beta/models/%67emini-pro:generateContent")
    assert asked is not None
    assert asked[3] == "gemini-pro"


@given(
    st.sampled_from([each.name for each in BUILT_IN]),
    st.sampled_from(["GET", "POST"]),
    st.text(st.sampled_from("/.%2eEfF5cv1models:a?&=key#@\\ \r\n"), max_size=30).map(lambda text: f"/{text}"),
)
@example("anthropic", "GET", "/v1/models/a?key=secret&x=1")
def test_what_passes_stays_below_the_origin_and_brings_no_key(name: str, method: str, target: str) -> None:
    passed = found(name, method, target)
    if passed is not None:
        path, _, query = passed[0].partition("?")
        assert path.isprintable()
        assert " " not in passed[0]
        assert not {"..", ".", ""} & set(path.split("/")[1:])
        assert "&key=" not in f"&{query}".lower()


def test_a_key_goes_where_its_provider_looks_for_it() -> None:
    def headers(name: str, *, oauth: bool = False) -> dict[str, str]:
        provider = KNOWN.get(name)
        assert provider is not None
        return key_headers(provider, "k", oauth=oauth)

    assert headers("anthropic") == {"x-api-key": "k"}
    assert headers("anthropic", oauth=True) == {"authorization": "Bearer k", "anthropic-beta": "oauth-2025-04-20"}
    assert headers("openai") == headers("openai", oauth=True) == {"authorization": "Bearer k"}
    assert headers("google") == {"x-goog-api-key": "k"}


def test_git_hosts_are_found_by_their_host() -> None:
    github = KNOWN.git_host("GitHub.com")
    assert github is not None
    assert (github.name, github.key, github.is_git_host) == ("github", KeyHeader.BASIC, True)
    assert KNOWN.git_host("api.anthropic.com") is KNOWN.git_host("example.com") is KNOWN.get("nobody") is None


def test_every_origin_that_is_built_in_is_whole() -> None:
    for provider in BUILT_IN:
        assert provider.is_tls
        assert (provider.port, provider.of_operator) == (443, False)
        assert provider.authority == provider.host


FILE = b"""
[anthropic]
origin = "https://models.example.com:8443/anthropic/"
ca_file = "/etc/house.pem"

[house]
origin = "http://[fd00::7]:8000"
apis = ["openai-chat", "openai-chat"]
key = "x-api-key"

[forge]
origin = "https://git.example.com:3000"
apis = ["git"]
key_user = "token"
token_api = "https://git.example.com:3000/api/v3"
"""


def test_the_operators_file_adds_and_replaces() -> None:
    read = read_providers(FILE)
    anthropic, house, forge = (read.by_name[name] for name in ("anthropic", "house", "forge"))
    assert anthropic.origin == "https://models.example.com:8443/anthropic"
    assert (anthropic.key, anthropic.apis) == (KeyHeader.X_API_KEY, (Api.ANTHROPIC,))
    assert (anthropic.host, anthropic.port, anthropic.authority) == (
        "models.example.com",
        8443,
        "models.example.com:8443",
    )
    passed = passage(anthropic, "POST", "/v1/messages")
    assert passed is not None
    assert passed.target == "/anthropic/v1/messages"
    assert (house.host, house.port, house.is_tls, house.apis) == ("fd00::7", 8000, False, (Api.CHAT,))
    assert read.git_host("git.example.com:3000") == forge
    assert (forge.key, forge.key_user) == (KeyHeader.BASIC, "token")
    assert all(each.of_operator for each in (anthropic, house, forge))
    assert read.by_name["openai"] == KNOWN.by_name["openai"]
    assert read_providers(b'[plain]\norigin = "http://one.test"\napis = ["git"]').git_host("one.test") is not None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("\xff", "is no TOML"),
        ("[x", "is no TOML"),
        ("x = 1", "[x] wants a section"),
        ("[X]", "[X] wants a name of small letters"),
        ("[git]", "and none of git"),
        ("[house]", "wants origin and apis"),
        ('[house]\norigin = "https://a.test"', "wants origin and apis"),
        ("[openai]\nurl = 1", "has no url: it takes origin, apis"),
        ("[openai]\norigin = 1", "wants an origin such as"),
        ("[openai]\nca_file = 1", "wants texts"),
        ('[openai]\norigin = "a.test"', "wants an origin such as"),
        ('[openai]\norigin = "ftp://a.test"', "wants an origin such as"),
        ('[openai]\norigin = "https://u:p@a.test"', "wants an origin such as"),
        ('[openai]\norigin = "https://a.test?x"', "wants an origin such as"),
        ('[openai]\norigin = "https://a.test/../x"', "wants an origin such as"),
        ('[openai]\norigin = "https://a.test:99999"', "wants an origin such as"),
        ('[openai]\norigin = "https://a.test:0"', "wants an origin such as"),
        ('[openai]\norigin = "https://a b.test"', "wants an origin such as"),
        ('[openai]\norigin = "https://[::1"', "wants an origin such as"),
        ('[openai]\norigin = "https://a.test\\r\\nx"', "wants an origin such as"),
        ("[openai]\napis = []", "wants apis as a list of anthropic-messages"),
        ('[openai]\napis = ["x"]', "wants apis as a list of"),
        ("[openai]\napis = [[]]", "wants apis as a list of"),
        ('[openai]\nkey = "cookie"', "wants key as one of x-api-key"),
        ('[github]\nkey_user = "a:b"', "wants key_user as a name"),
        ('[github]\napis = ["git", "openai-chat"]', "give each a provider of its own"),
        ("\n".join(f"[a{number}]" for number in range(101)), "names more than 100 providers"),
    ],
)
def test_what_is_wrong_is_said(text: str, told: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the text is looked at below
        read_providers(text.encode("latin-1"))
    assert told in str(raised.value)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ValueError, match=r"\[openai\] has no x(.|\n)*\[house\] is a new provider"):
        read_providers(b"[openai]\nx = 1\n[house]")


@given(st.binary(max_size=60))
def test_garbage_is_refused_and_never_more(data: bytes) -> None:
    try:
        assert isinstance(read_providers(data).by_name["openai"], ModelProvider)
    except ValueError as error:
        assert str(error)  # noqa: PT017 - either is right
