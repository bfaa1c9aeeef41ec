/**
 * A session for a page: the shell around `Conversation`, on one `Line` to `/ws/v2`.
 *
 * Messages stay in the outbox and are sent until the gateway has them; each event is reported once. Nothing that the
 * gateway or an agent sends makes this throw: a wrong frame is an `error` event.
 */
import { Access, type AccessOptions } from "./access.ts";
import { Conversation } from "./conversation.ts";
import { HoldfastError } from "./events.ts";
import { isCount, isObject, readObject, readRecord, tidy, words } from "./frames.ts";
import { Keeper } from "./keeper.ts";
import { Linked } from "./linked.ts";
import { indexedDBOutbox, type Outbox } from "./outbox.ts";
import { pledgeError, Pledges } from "./pledges.ts";
import { browser, type Platform } from "./platform.ts";
import { Requests, type RequestNews } from "./requests.ts";
import { TerminalChannel, type TerminalOptions } from "./terminal.ts";
import type { Content, Json, Mode, OutboxItem, Page, PendingMessage, Sent, SessionEvents, State, StoredRecord, Welcome } from "./types.ts";

export interface ConnectOptions extends AccessOptions {
  session: string;
  /** Stores unsettled messages over a reload; IndexedDB by default. */
  outbox?: Outbox;
  /** The last record that the page already has: missing records after it are reported as a `gap`. */
  lastSeq?: number;
  platform?: Platform;
}

/** Connect to a session, and stay so until `leave`. */
export function connect(options: ConnectOptions): Session {
  return new Session(options);
}

export class Session extends Linked<SessionEvents> {
  readonly id: string;
  /** The environment: its clock and random numbers. */
  readonly platform: Platform;
  private talk = new Conversation();
  private requests = new Requests();
  private pledges = new Pledges();
  private keeper: Keeper;
  private terminals = new Set<TerminalChannel>();
  private adopted = false;
  private seen: number | undefined;
  private order = 0;
  private starting: { frame: Json; id: string } | undefined;
  private wake: (() => void) | undefined;

  constructor(options: ConnectOptions) {
    const platform = options.platform ?? browser;
    const access = new Access(options, platform);
    super(access, "/ws/v2", "holdfast.chat.v2", options.session);
    this.id = options.session;
    this.seen = options.lastSeq;
    this.platform = platform;
    this.keeper = new Keeper(options.outbox ?? indexedDBOutbox(), `${access.base} ${this.id}`, platform, (error) =>
      this.trouble("outbox_failed", `what is not sent will not survive a reload: ${String(error)}`),
    );
    void this.adopt();
  }

  /** Messages that are not stored yet, were refused or have expired, oldest first. */
  get outbox(): OutboxItem[] {
    return this.talk.outbox;
  }

  // // the page's calls

  /** Send a message, now or when there is a connection. With `steer` it goes into the agent's running turn at once,
   * before waiting messages, if the agent can take it. */
  send(content: Content, { cid, metadata, steer }: { cid?: string; metadata?: Json; steer?: boolean } = {}): Sent {
    const parts = Array.isArray(content) && content.length && content.every((part) => isObject(part) && words(part.type));
    const fine = (typeof content === "string" || parts) && (metadata === undefined || isObject(metadata));
    return this.post(fine ? { type: "message", content, metadata: steer ? { ...metadata, steer } : metadata } : undefined, cid);
  }

  answerPermission(requestId: string, members: Json): Sent {
    return this.post({ ...members, type: "permission_response", requestId });
  }

  answerQuestion(requestId: string, members: Json): Sent {
    return this.post({ ...members, type: "ask_user_answer", requestId });
  }

  /** Send a message that was refused or has expired again, as a new one. `known` is its content, for a message of an
   * earlier visit that is in no outbox any more. */
  resend(cid: string, known?: { content: unknown; metadata?: Json }): Sent {
    const frame = this.talk.withdraw(cid) ?? (known && { type: "message", content: known.content, metadata: known.metadata });
    return this.post(frame, undefined, "unknown_cid");
  }

  /** Forget a message that was refused, has expired or was never sent; false for any other. */
  withdraw(cid: string): boolean {
    const found = this.talk.withdraw(cid) !== undefined;
    this.settle();
    return found;
  }

  /** Stop the running answer; false if there is no connection to say it on. */
  abort(): boolean {
    return this.say({ type: "abort" });
  }

  /** End the agent process; the next message starts another. False if there is no connection to say it on. */
  endAgent(): boolean {
    return this.say({ type: "close" });
  }

  /** The `start` frame that every agent process of this session reads first. The newest counts, and is sent until the
   * gateway has read it. */
  start(members: Json): void {
    this.starting = { frame: { ...members, type: "start" }, id: newCid() };
    this.sayStart();
  }

  async history(asked: { after?: number; before?: number; limit?: number } = {}): Promise<Page> {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(asked)) if (value !== undefined) query.set(name, String(value));
    const page = await this.access.ask("GET", `/api/sessions/${encodeURIComponent(this.id)}/messages?${query}`);
    const { messages, lastSeq, firstSeq, stale } = page;
    const records = Array.isArray(messages) ? messages.map(readRecord) : [undefined];
    if (!isCount(lastSeq) || records.includes(undefined)) throw new HoldfastError("bad_answer", "this is no history");
    return { messages: records as StoredRecord[], lastSeq, firstSeq: isCount(firstSeq) ? firstSeq : 1, stale: stale === true };
  }

  /** The messages that the agent does not have yet, in order. */
  async pending(): Promise<PendingMessage[]> {
    const { messages } = await this.ask("GET", "/pending");
    return Array.isArray(messages) ? (messages.filter(isPending) as PendingMessage[]) : [];
  }

  /** Cancel one of them. Rejected with `not_pending` if the agent has it, or it was cancelled or expired before. */
  async cancel(seq: number): Promise<void> {
    await this.ask("DELETE", `/pending/${seq}`);
  }

  /** Make one of them wait for its sandbox for at least `seconds` from now. */
  async extend(seq: number, seconds: number): Promise<void> {
    await this.ask("POST", `/pending/${seq}/extend`, { seconds });
  }

  /** What the agent may do without asking; null: the operator's default. */
  async setMode(mode: Mode | null): Promise<void> {
    await this.ask("PATCH", "", { mode });
  }

  private ask(method: string, path: string, body?: Json): Promise<Json> {
    return this.access.ask(method, `/api/sandboxes/${encodeURIComponent(this.id)}${path}`, body);
  }

  /** A terminal of this session, with a connection of its own. */
  terminal(name = "main", options: TerminalOptions = {}): TerminalChannel {
    const channel = new TerminalChannel(this.access, this.id, name, options, () => this.terminals.delete(channel));
    this.terminals.add(channel);
    return channel;
  }

  /** Close everything. What is unsettled stays in the outbox for the next time. */
  override leave(): void {
    for (const channel of [...this.terminals]) channel.close();
    super.leave();
  }

  private post(frame: ({ type: string } & Json) | undefined, cid = newCid(), code = "invalid"): Sent {
    const sent = this.pledges.make(cid);
    const tidied = tidy(frame) as OutboxItem["frame"] | undefined;
    this.order = Math.max(this.order + 1, this.platform.now());
    const refusal = !tidied || !isCid(cid) ? code : this.talk.offer(tidied, cid, this.order);
    if (refusal) {
      this.pledges.settle({ cid, to: "failed", code: refusal });
      this.trouble(refusal, pledgeError(refusal).message);
    }
    this.flush();
    return sent;
  }

  // the connection

  /** @internal */
  query(): Record<string, string | number> {
    return { sessionId: this.id, ...this.talk.position() };
  }

  /** @internal */
  override changed(state: State): void {
    super.changed(state);
    if (state.phase === "ended") this.wake?.();
  }

  /** @internal A frame that is too long ends the connection; once refused, it does not end the next. */
  override closed(code: number): boolean {
    const mended = code === 1009 && this.talk.tooLong();
    this.settle();
    return mended;
  }

  private sayStart(): void {
    // It gets no acknowledgement; the answer to a ping behind it shows that it was read.
    if (this.starting && this.say(this.starting.frame)) this.say({ type: "ping", id: this.starting.id });
  }

  private flush(): void {
    const now = this.platform.now();
    while (this.adopted && this.line.live) {
      const frame = this.talk.next(now);
      if (!frame) break;
      this.say(frame);
    }
    this.wake?.();
    const { hold } = this.talk;
    // Without a connection nothing is due: the next one begins with everything.
    this.wake = hold !== undefined && this.line.live ? this.platform.after(hold - now, () => this.flush()) : undefined;
    this.settle();
  }

  private settle(): void {
    const changes = this.talk.take();
    if (changes.items.size) {
      this.keeper.keep(changes);
      this.emit("outbox", { items: this.outbox });
    }
    for (const fate of changes.fates) this.pledges.settle(fate);
  }

  /** Add the items that an earlier visit, or another tab, could not send. */
  private async adopt(): Promise<void> {
    const items = await this.keeper.load();
    this.order = Math.max(this.order, this.talk.adopt(items, !this.adopted));
    this.adopted = true;
    if (this.talk.outbox.length) this.emit("outbox", { items: this.outbox });
    this.flush();
  }

  // // the gateway's frames

  /** @internal */
  hear(data: string | ArrayBuffer): void {
    const frame = readObject(data);
    const type = words(frame?.type);
    if (!frame || type === undefined) return this.trouble("bad_frame", "the gateway said what cannot be read", data);
    const { platform, talk } = this;
    const before = talk.epoch;
    if (type === "welcome" && !(typeof frame.epoch === "string" && isCount(frame.offset) && isCount(frame.lastSeq)))
      return this.trouble("bad_frame", "a bad welcome", frame);
    if (!this.line.live && type !== "welcome" && type !== "going_away") return; // frames before it do not count
    if (!talk.heard(frame, platform.now(), platform.random())) return;
    if (isCount(frame._offset)) this.emit("frame", frame as SessionEvents["frame"]);
    else if (type === "welcome") this.welcomed(frame, before);
    else this.told(type, frame);
    this.settle();
    if (talk.hold !== undefined) this.flush();
  }

  private welcomed(frame: Json, before: string): void {
    const first = !this.line.live;
    const welcome = { ...frame, first } as Welcome;
    if (first) {
      this.talk.connected();
      this.line.tell({ type: "greeted" });
    }
    this.emit("welcome", welcome);
    this.news(this.requests.welcome(frame.open, before === welcome.epoch));
    this.noted(welcome.lastSeq, welcome.recovered === false);
    this.emit("status", { status: welcome.status, reason: welcome.reason });
    if (!first) return;
    this.flush();
    this.sayStart();
    void this.adopt();
  }

  private told(type: string, frame: Json): void {
    const { cid, seq } = frame;
    switch (type) {
      case "record": {
        const record = readRecord(frame.record);
        if (!record) return this.trouble("bad_frame", "a bad record", frame);
        this.noted(record.seq, false, true);
        this.emit("record", { record, omitted: frame.omitted === true });
        return this.news(this.requests.record(record));
      }
      case "ack":
      case "receipt":
      case "expired":
      case "interrupted":
        if (typeof cid !== "string" || !isCount(seq)) return this.trouble("bad_frame", `a bad ${type}`, frame);
        this.emit(type, frame as never);
        if (type === "expired") this.news(this.requests.expired(seq));
        return;
      case "nack":
        if (typeof cid !== "string") return this.trouble("bad_frame", "a bad nack", frame);
        return this.emit(type, { ...frame, cid, reason: words(frame.reason) ?? "", retried: this.talk.goesOn(cid) });
      case "connection_status":
      case "session_status":
        return this.emit("status", frame);
      case "auth_expiring":
        this.emit(type, { at: words(frame.at) });
        return void this.renew();
      case "going_away":
        return this.emit(type, { retryAfter: this.goodbye(frame) });
      case "pong":
        if (this.starting && frame.id === this.starting.id) this.starting = undefined;
        return;
      case "error":
        return this.trouble(words(frame.code) ?? "error", words(frame.error) ?? "the gateway reports an error", frame);
    }
  }

  /** Records up to `seq` exist; those between the last one seen and this were missed. */
  private noted(seq: number, lost: boolean, shown = false): void {
    const seen = this.seen ?? (shown ? seq - 1 : seq);
    if (seq > seen + (shown ? 1 : 0) || lost) this.emit("gap", { after: seen, lastSeq: shown ? seq - 1 : seq });
    this.seen = Math.max(seen, seq);
  }

  private news(news: RequestNews[]): void {
    for (const each of news)
      if (each.type === "settled") this.emit("settled", { requestId: each.requestId, status: each.status });
      else this.emit(each.type, { ...each.content, requestId: each.requestId, seq: each.seq });
  }
}

function isPending(value: unknown): boolean {
  return isObject(value) && isCount(value.seq) && words(value.cid) !== undefined;
}

function isCid(cid: unknown): boolean {
  return typeof cid === "string" && /^[^\p{C}\p{Zl}\p{Zp}]{1,128}$/u.test(cid) && !/^(agent|duplicate|gateway|rejected):/.test(cid);
}

function newCid(): string {
  // Not randomUUID: a page on plain HTTP in somebody's own network has none.
  return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
