"""The session's link to its bridge. One owner dials it, puts it in its place, receives its events and drops it.

A link has the number of the `Connect` that dialled it. A link is dialled beside the session's task and arrives through
the inbox: then it is put in its place, or given back.
"""

from typing import Protocol

from gateway.protocol import chat_frames
from gateway.protocol.errors import ApiError
from gateway.session.conversation.delivery import Delivery
from gateway.session.conversation.log import SessionLog
from gateway.session.conversation.outbound import AgentOutput
from gateway.session.model.ports import Publisher, Tasks
from gateway.session.sandbox.lifecycle import effects as do
from gateway.session.sandbox.lifecycle import events as on_
from gateway.session.sandbox.link_listener import LinkListener
from gateway.session.workspace.workspace import Workspace
from sandbox.ports.link import Link
from sandbox.ports.sandbox import Sandbox
from sandbox.protocol.values import AgentExit, Hello


class LifeEvents(Protocol):
    """Takes the events of the session's life."""

    def on(self, event: on_.Event) -> None:
        """Process an event. Called in the session's task."""
        ...


LinkEffect = do.DropLink | do.HearHello | do.StartAgent | do.TellAgentToStop


class LinkOwner:
    __slots__ = (
        "_delivery",
        "_dialled",
        "_hello",
        "_life",
        "_listener",
        "_log",
        "_output",
        "_publisher",
        "_sandbox",
        "_tasks",
        "_workspace",
    )

    def __init__(
        self,
        sandbox: Sandbox,
        log: SessionLog,
        delivery: Delivery,
        output: AgentOutput,
        publisher: Publisher,
        workspace: Workspace,
        tasks: Tasks,
        life: LifeEvents,
    ) -> None:
        self._sandbox = sandbox
        self._log = log
        self._delivery = delivery
        self._output = output
        self._publisher = publisher
        self._workspace = workspace
        self._tasks = tasks
        self._life = life
        self._listener: LinkListener | None = None  # listener of the link in its place
        self._dialled: tuple[int, LinkListener, Link] | None = None  # not in its place yet
        self._hello: Hello | None = None  # the hello of the link in its place, until it is processed

    async def dial(self, number: int) -> tuple[LinkListener, Link]:
        """Dial the bridge. Raises LinkRefused, SandboxFailed, SandboxUnavailable."""
        listener = LinkListener(number, self, self._output, self._tasks)
        link = await self._sandbox.connect(listener, self._output.received)
        link.configure(await self._tasks.agent_setup(self._log))
        return listener, self._tasks.outside(f"link {number}", link)

    def dialled(self, number: int, listener: LinkListener, link: Link) -> None:
        """A link was dialled: put it in its place if it is still wanted."""
        self._dialled = number, listener, link
        self._life.on(on_.Linked(number))
        self.give_back(number)

    def put_in_place(self, number: int) -> None:
        if self._dialled is not None and self._dialled[0] == number:
            _, self._listener, self._delivery.link = self._dialled
            self._dialled = None
            self._listener.open()

    @staticmethod
    def turn_away(listener: LinkListener, link: Link) -> None:
        """The session has ended here: close the new link."""
        listener.close()
        link.close()

    def give_back(self, number: int) -> None:
        """Close a dialled link that is not wanted any more."""
        if self._dialled is not None and self._dialled[0] == number:
            _, listener, link = self._dialled
            self._dialled = None
            listener.close()
            link.close()

    def let_go(self) -> None:
        """The gateway leaves: close the link without reporting a loss."""
        if self._listener is not None:
            self._listener.close()
        self._listener = self._hello = None
        if self._delivery.link is not None:
            self._delivery.link.close()
            self._delivery.link = None

    def perform(self, effect: LinkEffect) -> None:
        link = self._delivery.link
        match effect:
            case do.DropLink():
                self.let_go()
                self._output.on_lost()
            case do.HearHello(number):
                self._hear_hello(number)
            case do.StartAgent() if link is not None:
                link.start(self._log.spec.start_line())
            case do.TellAgentToStop() if link is not None:
                link.stop_agent()

    def kill_agent(self) -> None:
        """Send SIGKILL to the agent, to show how the session recovers. Raises ApiError if none runs."""
        if self._delivery.link is None or not self._output.agent_alive:
            raise ApiError(409, "not_running", "the session's agent does not run")
        self._delivery.link.kill_agent()

    def _hear_hello(self, number: int) -> None:
        hello, self._hello = self._hello, None
        assert hello is not None, "it was said"

        def heard() -> None:
            state = self._log.state
            ended = state.ended and state.epoch == hello.epoch  # since it said so
            self._life.on(on_.GreetingDone(number, hello.alive and not ended))

        self._output.on_hello(hello, heard)

    # -- events from the listener -------------------------------------------------------------------------------------

    def said_hello(self, link: int, hello: Hello) -> None:
        self._hello = hello
        self._life.on(on_.BridgeHello(link, hello.held))

    def agent_exited(self, link: int, exit: AgentExit) -> None:
        self._output.on_exit(exit, lambda current: self._after_exit(link, exit))

    def _after_exit(self, link: int, exit: AgentExit) -> None:
        self._publisher.tell(
            chat_frames.dump(
                "session_status", status="agent_exited", code=exit.code, signal=exit.signal, reason=exit.reason
            )
        )
        self._life.on(on_.AgentExited(link, exit.code, exit.reason))

    def had_problem(self, link: int, reason: str) -> None:
        self._life.on(on_.AgentProblem(link, reason))

    def files_changed(self) -> None:
        self._workspace.request()

    def lost(self, link: int, reason: str) -> None:
        self._life.on(on_.LinkLost(link, reason))
