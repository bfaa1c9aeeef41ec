// The rows of a conversation. A row is drawn again only when its item is another object: an item that changed is a new one.
import type { AnswerItem, Item, Json, MessageItem, NoteItem } from "@holdfast/client";
import { partsOf } from "@holdfast/client/transcript";
import { Component, type ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { SessionHandle } from "../house.ts";
import { At } from "../when.tsx";
import { Button } from "../ui/button.tsx";
import { AlertIcon, CheckIcon, ClockIcon, DoubleCheckIcon, InfoIcon, RetryIcon, SendIcon, TrashIcon } from "../ui/icons.tsx";
import { UNSHOWN } from "../ui/guard.tsx";
import { Prose } from "./prose.tsx";
import { PermissionCard, QuestionCard } from "./requests.tsx";
import { whyNot } from "./turn.ts";
import { Changes, Plans, Thinking, ToolUse, Usage } from "./work.tsx";

interface RowProps {
  item: Item;
  session: SessionHandle;
}

interface RowState {
  unshown: Item | null; // an item that could not be drawn; another one may
}

export class Row extends Component<RowProps, RowState> {
  override state: RowState = { unshown: null };

  override shouldComponentUpdate(next: RowProps, { unshown }: RowState): boolean {
    return next.item !== this.props.item || next.session !== this.props.session || unshown !== this.state.unshown;
  }

  override componentDidCatch(error: unknown): void {
    console.error(error);
    this.setState({ unshown: this.props.item });
  }

  override render({ item, session }: RowProps, { unshown }: RowState) {
    if (unshown === item) return <Unshown item={item} />;
    switch (item.kind) {
      case "message":
        return item.role === "user" ? <Mine item={item} session={session} /> : <FromService item={item} />;
      case "answer":
        return <Answer item={item} />;
      case "permission":
        return <PermissionCard item={item} session={session} />;
      case "question":
        return <QuestionCard item={item} session={session} />;
      case "note":
        return <Note item={item} />;
    }
  }
}

const Unshown = ({ item }: { item: Item }) => (
  <div class="row note" data-testid="unshown" data-seq={item.seq}>
    <AlertIcon size={13} />
    <span>{UNSHOWN}</span>
  </div>
);

const STAGES: Record<string, { icon: ComponentChildren; word: string; meaning: string }> = {
  queued: { icon: <ClockIcon size={13} />, word: "waiting", meaning: "Waits here until there is a connection" },
  sent: { icon: <SendIcon size={13} />, word: "sent", meaning: "On its way to the gateway" },
  accepted: { icon: <CheckIcon size={13} />, word: "accepted", meaning: "On the gateway's disk; the store gets it next" },
  stored: { icon: <CheckIcon size={13} />, word: "stored", meaning: "Stored: it cannot get lost" },
  delivered: { icon: <DoubleCheckIcon size={14} />, word: "delivered", meaning: "The agent has it" },
};

const FAILED = ["expired", "interrupted", "cancelled", "refused", "rejected"];

function Mine({ item, session }: { item: MessageItem; session: SessionHandle }) {
  const failed = FAILED.includes(item.status);
  // A frame sent on a lost connection has not arrived: it is sent again, and waits until then.
  const status = item.status === "sent" && session.state.value.phase !== "online" ? "queued" : item.status;
  const stage = STAGES[status];
  return (
    <article class={`row mine${item.status === "cancelled" ? " cancelled" : failed ? " failed" : ""}`} data-testid="message" data-role="user" data-status={item.status} data-seq={item.seq} data-cid={item.cid} aria-label="You">
      <Bubble item={item} />
      <div class="below">
        {item.createdAt ? <At at={item.createdAt} /> : null}
        {item.metadata.steer === true ? <span title="Sent into the running answer">steers</span> : null}
        {failed ? (
          <Failed item={item} session={session} />
        ) : (
          <span class={`receipt receipt-${status}`} title={stage?.meaning} data-testid="receipt">
            <span class={status === "delivered" ? "sr-only" : undefined}>{stage?.word ?? status}</span>
            {stage?.icon}
          </span>
        )}
      </div>
    </article>
  );
}

function Failed({ item, session }: { item: MessageItem; session: SessionHandle }) {
  const waits = session.outbox.value.some((one) => one.cid === item.cid);
  const [sentAgain, setSentAgain] = useState(false);
  const again = (): void => {
    setSentAgain(true);
    session.transcript.resend(item.cid);
  };
  return (
    <span class="failure" data-testid="failure">
      <span class="failure-why">
        {item.status === "cancelled" ? null : <AlertIcon size={13} />}
        {whyNot(item.status, item.reason)}
      </span>
      {sentAgain ? null : (
        <Button small icon={<RetryIcon size={13} />} data-testid="send-again" onClick={again}>
          Send again
        </Button>
      )}
      {waits ? (
        <Button small kind="quiet" icon={<TrashIcon size={13} />} data-testid="remove" onClick={() => session.client.withdraw(item.cid)}>
          Remove
        </Button>
      ) : null}
    </span>
  );
}

const LONG = 4000;

/** The text; only the beginning of a very long one, until somebody asks for all. */
function Bubble({ item }: { item: MessageItem }) {
  const [all, setAll] = useState(false);
  const { text } = item;
  if (!text) return <div class="bubble" data-testid="message-text"><code>{JSON.stringify(item.content)}</code></div>;
  if (all || text.length <= LONG * 1.5) return <div class="bubble" data-testid="message-text">{text}</div>;
  return (
    <>
      <div class="bubble" data-testid="message-text">{text.slice(0, LONG)}…</div>
      <Button small kind="quiet" onClick={() => setAll(true)}>
        Show all of it ({Math.round(text.length / 1024).toLocaleString()} KiB)
      </Button>
    </>
  );
}

function FromService({ item }: { item: MessageItem }) {
  return (
    <article class="row theirs" data-testid="message" data-role={item.role} data-status={item.status} data-seq={item.seq} aria-label={item.role}>
      <p class="who">{item.role}</p>
      <Prose text={item.text} growing={false} />
    </article>
  );
}

const ENDINGS = new Map<string | undefined, string>([
  ["incomplete", "The agent ended in the middle of this answer."],
  ["aborted", "Stopped."],
]);

/** Finished text is not parsed again with each new word. */
class Said extends Component<{ text: string; growing: boolean }> {
  override shouldComponentUpdate({ text, growing }: { text: string; growing: boolean }): boolean {
    return text !== this.props.text || growing !== this.props.growing;
  }

  override render({ text, growing }: { text: string; growing: boolean }) {
    return <Prose text={text} growing={growing} />;
  }
}

function Answer({ item }: { item: AnswerItem }) {
  const ending = ENDINGS.get(item.status) ?? (item.metadata.error === true ? "It ended with an error." : undefined);
  const parts = partsOf(item);
  const last = parts.at(-1);
  return (
    <article class="row theirs" data-testid="answer" data-status={item.status} data-streaming={item.streaming} data-seq={item.seq} aria-label="Agent" aria-busy={item.streaming}>
      <Thinking item={item} />
      <Plans work={item.work} />
      {parts.map((part, at) =>
        part.kind === "tool" ? (
          <ToolUse key={at} part={part} running={item.streaming} />
        ) : (
          <div key={at} data-testid="answer-text" class={item.streaming && part === last ? "growing" : undefined}>
            <Said text={part.text} growing={item.streaming && part === last} />
          </div>
        ),
      )}
      {last?.kind === "text" ? null : <div data-testid="answer-text" class={item.streaming ? "growing" : undefined} />}
      <Changes changes={item.work.changes} />
      {ending ? <p class="ending">{ending}</p> : null}
      {item.streaming ? null : <Usage work={item.work} />}
    </article>
  );
}

const MARKERS = new Map([
  ["duplicate", "A repeated message. It did not run again."],
  ["rejected", "The store refused a record here."],
  ["agent_status", "The agent has lost its memory of the conversation above."],
]);

function exitWords({ code, signal }: Json, reason: string): string {
  const how = typeof signal === "string" && signal ? `by ${signal}` : typeof code === "number" ? `with code ${code}` : reason;
  return code === 0 ? "The agent ended." : `The agent ended ${how}. The next message starts another.`;
}

const capital = (text: string): string => (text ? text.charAt(0).toUpperCase() + text.slice(1) : "The agent reports an error.");

function Note({ item }: { item: NoteItem }) {
  const text = item.type === "agent_exited" ? exitWords(item.metadata, item.text) : (MARKERS.get(item.type) ?? item.text);
  return (
    <div class={`row note note-${item.type}`} role={item.type === "agent_status" ? "status" : undefined} data-testid="note" data-type={item.type} data-seq={item.seq}>
      {item.type === "error" ? <AlertIcon size={13} /> : <InfoIcon size={13} />}
      <span>{item.type === "error" ? capital(text) : text || item.type.replaceAll("_", " ")}</span>
      {item.createdAt ? <At at={item.createdAt} /> : null}
    </div>
  );
}
