/**
 * The conversation as a page shows it: the shell around `Telling`. It listens to a session, and reads history at the
 * start, at every hole and after every cut, one request at a time. Create it in the same turn as the session: the
 * beginning of an unfinished answer comes only once.
 */
import { Events, HoldfastError } from "./events.ts";
import type { Question } from "./history.ts";
import { pause } from "./returning.ts";
import type { Session } from "./session.ts";
import { Telling } from "./telling.ts";
export { partsOf, stepsOf } from "./work.ts";
import type { AgentNow, Item, MessageItem, Sent, TranscriptEvents } from "./types.ts";

const FIRST_AGAIN = 2; // the exponent of the first pause after a failed request: about a second

export function transcript(session: Session): Transcript {
  return new Transcript(session);
}

export class Transcript extends Events<TranscriptEvents> {
  private telling = new Telling();
  private session: Session;
  private undo: Array<() => void>;
  private reading: Promise<void> | undefined;
  private failures = 0;
  private connections = 0;
  private stop: (() => void) | undefined;
  private scheduled = false;
  private over = false; // no further request

  constructor(session: Session) {
    super();
    this.session = session;
    const { telling } = this;
    telling.kept(session.outbox);
    const hear = <Name extends Parameters<Session["on"]>[0]>(...[name, listener]: Parameters<typeof session.on<Name>>) =>
      session.on(name, (event) => {
        listener(event);
        this.changed();
      });
    this.undo = [
      hear("welcome", (event) => {
        telling.welcomed(event);
        if (event.first) this.connections += 1;
        this.failures = 0;
        this.stop?.();
        this.stop = undefined;
      }),
      hear("record", (event) => telling.told(event)),
      hear("frame", (event) => telling.framed(event)),
      hear("ack", (event) => telling.acked(event)),
      hear("nack", (event) => telling.nacked(event)),
      hear("receipt", (event) => telling.moved(event, "delivered")),
      hear("expired", (event) => telling.moved(event, event.reason === "cancelled" ? "cancelled" : "expired")),
      hear("interrupted", (event) => telling.moved(event, "interrupted")),
      hear("outbox", ({ items }) => telling.kept(items)),
      hear("status", (event) => telling.status(event)),
    ];
    queueMicrotask(() => this.changed());
  }

  get items(): Item[] {
    return this.telling.items;
  }

  /** The agent's reports on itself since this page listens; a change emits `change`, as for items. */
  get agent(): AgentNow {
    return this.telling.agent;
  }

  /** Whether the newest page is here: before that, an empty list means nothing. */
  get loaded(): boolean {
    return this.telling.history.ready;
  }

  /** Whether there are items before the first one. */
  get more(): boolean {
    return this.telling.history.more;
  }

  /** Load the page before the first item; returns whether there are more. Throws HoldfastError if it cannot be read. */
  async earlier(): Promise<boolean> {
    while (this.reading) await this.reading;
    const question = this.telling.history.earlier();
    try {
      if (question) await this.read(question);
    } finally {
      this.changed();
    }
    return this.more;
  }

  /** Send a message that was refused, expired or interrupted again, as a new one. */
  resend(cid: string): Sent {
    const item = this.items.find((each): each is MessageItem => each.kind === "message" && each.cid === cid);
    return this.session.resend(cid, item);
  }

  /** Stop listening. The session stays. */
  close(): void {
    this.over = true;
    this.stop?.();
    for (const undo of this.undo) undo();
  }

  private changed(): void {
    this.pump();
    if (this.scheduled) return;
    this.scheduled = true;
    queueMicrotask(() => {
      this.scheduled = false;
      // A page that draws once a frame should not pay for the items of every word.
      const { telling } = this;
      this.emit("change", {
        get items() {
          return telling.items;
        },
      });
    });
  }

  private pump(): void {
    const question = this.telling.history.wanted;
    if (!question || this.reading || this.stop || this.over) return;
    this.read(question)
      .then(
        () => {
          const next = this.telling.history.wanted;
          if (next && next.after === question.after && next.before === question.before) this.later();
          else this.failures = 0;
        },
        (error: HoldfastError) => {
          this.later();
          this.emit("error", { code: error.code, error: error.message });
        },
      )
      .then(() => this.changed());
  }

  /** One at a time: `reading` is the running request, and never rejects. */
  private async read(question: Question): Promise<void> {
    const { connections } = this;
    const page = this.session.history({ ...question });
    this.reading = page.then(() => {}, () => {});
    try {
      this.telling.read(question, await page, connections !== this.connections);
    } finally {
      this.reading = undefined;
    }
  }

  /** After a failed request, or for records that are not there yet: request them again after a pause, or on the next
   * connection. */
  private later(): void {
    const { platform } = this.session;
    if (this.session.state.phase === "ended") this.over = true; // the session never connects again
    if (this.over) return;
    this.stop = platform.after(500 + pause(FIRST_AGAIN + this.failures++, platform.random()), () => {
      this.stop = undefined;
      this.pump();
    });
  }
}
