"""A conversation with an agent, as a test holds it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from secrets import token_hex
from typing import Any

from websockets.asyncio.client import ClientConnection

from tests.agents.agents import MODEL, AgentUnderTest, Model
from tests.support.chat import Frame, hear, say
from tests.support.gateway import Gateway
from tests.support.waiting import until


def answered_by(said: Frame) -> list[int]:
    """The messages that a `done`, or the record of an answer, answers. The demo agent tells it in its own way."""
    metadata = said.get("metadata") or {}
    found: list[int] = said.get("answers") or metadata.get("answers") or [metadata.get("seq", 0)]
    return found


class AgentTalk:
    """One viewer of a session. `heard` has every frame that came so far."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self.heard: list[Frame] = []

    @property
    def errors(self) -> list[Frame]:
        return [frame for frame in self.heard if frame["type"] == "error"]

    async def send(self, kind: str, **members: Any) -> None:
        await say(self._socket, kind, **members)

    async def say(self, content: str, **metadata: bool) -> None:
        await self.send("message", content=content, metadata=metadata)

    async def hear(self, kind: str, *, answers: int | None = None, **members: Any) -> Frame:
        """The next frame of that type with these members; one that `answers` the message with that seq."""

        def is_meant(frame: Frame) -> bool:
            is_alike = frame["type"] == kind and all(frame.get(name) == each for name, each in members.items())
            return is_alike and (answers is None or answers in answered_by(frame))

        try:
            heard = await hear(self._socket, is_meant, passed=self.heard)
        except TimeoutError as late:
            late.add_note("\n".join([f"never {kind} {members}; the last it heard:", *map(str, self.heard[-8:])]))
            raise
        self.heard.append(heard)
        return heard

    async def turn(self, content: str) -> Frame:
        cid = token_hex(8)
        await self.send("message", content=content, cid=cid)
        ack = await self.hear("ack", cid=cid, stage="stored")
        return await self.hear("done", answers=ack["seq"])

    async def answer(self, kind: str, answer: str, what: str = "", **members: Any) -> Frame:
        """Answer what is asked next; about `what`, for a process may ask again what the one before it was not told."""
        asked = await self.hear(kind)
        while what not in str(asked):
            asked = await self.hear(kind)
        await self.send(answer, requestId=asked["requestId"], **members)
        return asked

    async def permit(self, allow: bool, what: str = "") -> Frame:
        return await self.answer("tool_permission_request", "permission_response", what, allow=allow)


@asynccontextmanager
async def talking(gateway: Gateway, session_id: str) -> AsyncIterator[AgentTalk]:
    async with gateway.chat(session_id) as socket:
        talk = AgentTalk(socket)
        await talk.hear("welcome")
        yield talk


async def begin(gateway: Gateway, session_id: str, under_test: AgentUnderTest, model: Model, **wish: str) -> None:
    """Make a session with that agent, which asks that model."""
    model.configure(gateway.data_dir / "sandboxes" / session_id / "kept" / "agent")
    wish = {"network": "outbound", **wish}
    await gateway.create(session_id, agent=under_test.agent, envVars=model.variables, **wish)
    async with talking(gateway, session_id) as talk:
        await talk.send("start", model=model.name)
    if model.name != MODEL:
        await order(gateway, session_id, "sleep")  # what is started from here on reads it first


async def last_answer(gateway: Gateway, session_id: str) -> str:
    return str((await gateway.messages(session_id))[-1]["content"])


async def settled(gateway: Gateway, session_id: str) -> list[dict[str, Any]]:
    """The history, when every message in it has had its last word."""

    async def look() -> list[dict[str, Any]]:
        history = await gateway.messages(session_id)
        asked = [each for each in history if (each["role"], each["type"]) == ("user", "message")]
        answers = [each for each in history if (each["role"], each["type"]) == ("assistant", "message")]
        answered = {seq for each in answers for seq in answered_by(each)}
        for each in asked:
            assert each["status"] != "stored", history[-4:]
            assert each["status"] != "delivered" or each["seq"] in answered, history[-4:]
        return history

    return await until(look, f"the last word on all messages of {session_id}")


async def order(gateway: Gateway, session_id: str, what: str, **members: Any) -> None:
    """What an owner asks for besides messages: sleep, resume, demo/kill-agent."""
    async with gateway.http() as ada:
        answer = await ada.post(f"/api/sandboxes/{session_id}/{what}", json=members)
    assert answer.status_code == 200, f"{what} {session_id}: {answer.text}\n{gateway.log[-4000:]}"


async def kill(gateway: Gateway, session_id: str, talk: AgentTalk) -> None:
    """kill -9 of the agent's process, as soon as there is one."""

    async def killed() -> bool:
        async with gateway.http() as ada:
            answer = await ada.post(f"/api/sandboxes/{session_id}/demo/kill-agent", json={})
        assert answer.status_code == 200 or "not_running" in answer.text, answer.text
        return answer.status_code == 200

    await until(killed, f"a process of the agent of {session_id}")
    await talk.hear("session_status", status="agent_exited")
