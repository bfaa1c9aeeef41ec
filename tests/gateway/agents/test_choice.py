"""How the choice of an agent is written and read."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agents.catalogue import ACP, KNOWN, NAMES
from gateway.agents.choice import AgentChoice, of_command, read_choice
from sandbox.protocol.agent_server import read_server

VERSIONS = st.from_regex(r"[0-9][0-9A-Za-z.+-]{0,20}", fullmatch=True)
COMMANDS = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1), min_size=1)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_that_agent(name: str) -> None:
    assert read_choice(name) == read_choice(f" {name}\n") == AgentChoice(name)


@given(st.sampled_from(sorted(KNOWN)), VERSIONS)
def test_a_name_may_have_a_version(name: str, version: str) -> None:
    assert read_choice(f"{name}@{version}") == AgentChoice(name, version)


@given(COMMANDS)
def test_what_was_read_reads_the_same_again(command: list[str]) -> None:
    named = read_choice(f"{ACP}:{shlex.join(command)}")
    assert named == AgentChoice(ACP, command=tuple(command))
    assert not named.is_plain_command
    assert read_choice(named.said) == named
    for choice in (AgentChoice("pi", "0.74.2"), AgentChoice("none")):
        assert read_choice(choice.said) == choice


@given(COMMANDS)
def test_anything_else_is_a_command_line(command: list[str]) -> None:
    asked = ["/opt/agent", *command]
    assert read_choice(shlex.join(asked)) == of_command(tuple(asked))
    assert of_command(("claude-code",)).is_plain_command, "what is given word by word is no name"


@pytest.mark.parametrize("health", ["", "/health"])
@given(command=COMMANDS)
def test_a_command_may_be_a_server(health: str, command: list[str]) -> None:
    said = " ".join(
        ["ws://localhost:8080/chat", *([f"health={health}"] if health else []), "serve", shlex.join(command)]
    )
    choice = read_choice(said)
    assert choice == AgentChoice(command=("serve", *command), server=read_server("ws://localhost:8080/chat", health))
    assert choice.is_plain_command
    assert (choice.said, read_choice(choice.said)) == (said, choice)


def test_a_name_with_arguments_is_a_command() -> None:
    assert read_choice("codex exec --json").command == ("codex", "exec", "--json")
    assert read_choice("codex exec --json").said == "codex exec --json"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "",
            "wants one of demo, claude-code, codex, pi, opencode, gemini, none, acp:COMMAND, ws://HOST:PORT COMMAND",
        ),
        ("''", "wants one of demo,"),
        ("'open", "wants a command line (No closing quotation)"),
        ("acp:", "wants a command behind acp:"),
        ("acp: ''", "wants a command behind acp:"),
        ("claude", "wants claude-code: claude is the name of its program"),
        ("pi@", "wants pi@VERSION, such as pi@"),
        ("pi@latest", "wants pi@VERSION, such as pi@"),
        ("pi@../../etc", "wants pi@VERSION, such as pi@"),
        ("demo@1", "wants demo without a version"),
        ("none@1", "wants none without a version"),
        ("ws://127.0.0.1:80", "wants the command of the server behind ws://127.0.0.1:80"),
        ("ws://127.0.0.1:80 health=/up", "wants the command of the server behind ws://127.0.0.1:80"),
        ("ws://127.0.0.1:80 ''", "wants the command of the server behind ws://127.0.0.1:80"),
        ("ws://example.com:80 agent", "wants as connect: ws://HOST:PORT, perhaps with a path; HOST is localhost"),
        ("ws://127.0.0.1:80 health=up agent", "wants as health: a path of the same server"),
        ("ws://127.0.0.1:80 'agent", "wants a command line (No closing quotation)"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_words(text: str, told: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 -- its words are compared
        read_choice(text)
    assert str(refused.value).startswith(told)
