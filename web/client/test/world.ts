/**
 * A small world for the shells: a clock that is moved by hand, sockets that deliver one frame at a time, and a model of a
 * gateway with one session in it, a few lines for each promise. It is what docs/protocol/ says, and nothing of the client.
 */
import type { Platform } from "../src/platform.ts";
import type { Json, StoredRecord } from "../src/types.ts";

export class FakeSocket {
  readyState = 0;
  binaryType = "";
  onopen: (() => void) | null = null;
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onclose: ((event: { code: number; reason: string }) => void) | null = null;
  up: unknown[] = []; // said by the client, not yet heard
  down: unknown[] = []; // said by the gateway, not yet heard
  url: URL;
  protocols: string[];

  constructor(url: string, protocols: string[]) {
    this.url = new URL(url);
    this.protocols = protocols;
  }

  send(data: unknown): void {
    this.up.push(data);
  }

  close(): void {
    this.readyState = 3;
  }

  open(): void {
    this.readyState = 1;
    this.onopen?.();
  }

  /** One frame arrives. */
  arrive(data = this.down.shift()): void {
    if (this.readyState === 1) this.onmessage?.({ data });
  }

  end(code = 1006, reason = ""): void {
    if (this.readyState === 3) return;
    this.readyState = 3;
    this.onclose?.({ code, reason });
  }
}

export interface Asked {
  method: string;
  url: URL;
  headers: Record<string, string>;
  body: Json | undefined;
  answer(status: number, body: unknown, headers?: Record<string, string>): void;
  fail(): void;
}

export class FakePlatform implements Platform {
  time = 1_000_000;
  online = true;
  hidden = false;
  sockets: FakeSocket[] = [];
  asked: Asked[] = [];
  private timers = new Map<object, { at: number; then: () => void }>();
  private watchers = new Set<(what: "network" | "page") => void>();
  chance: () => number;

  constructor(chance: () => number = () => 0.5) {
    this.chance = chance;
  }

  now = () => this.time;
  random = () => this.chance();

  after(milliseconds: number, then: () => void): () => void {
    const key = {};
    this.timers.set(key, { at: this.time + milliseconds, then });
    return () => void this.timers.delete(key);
  }

  socket(url: string, protocols: string[]): WebSocket {
    const socket = new FakeSocket(url, protocols);
    this.sockets.push(socket);
    return socket as unknown as WebSocket;
  }

  fetch(url: string, init: RequestInit): Promise<Response> {
    return new Promise((resolve, reject) => {
      this.asked.push({
        method: init.method ?? "GET",
        url: new URL(url),
        headers: (init.headers ?? {}) as Record<string, string>,
        body: init.body ? JSON.parse(init.body as string) : undefined,
        answer: (status, body, headers) => resolve(new Response(JSON.stringify(body), { status, headers })),
        fail: () => reject(new TypeError("failed to fetch")),
      });
    });
  }

  watch(changed: (what: "network" | "page") => void): () => void {
    this.watchers.add(changed);
    return () => void this.watchers.delete(changed);
  }

  get listeners(): number {
    return this.watchers.size;
  }

  set(what: Partial<Pick<FakePlatform, "online" | "hidden">>): void {
    Object.assign(this, what);
    for (const changed of [...this.watchers]) changed("online" in what ? "network" : "page");
  }

  get timersSet(): number {
    return this.timers.size;
  }

  /** Time passes, and whatever is due happens in its order. */
  async pass(milliseconds: number): Promise<void> {
    const end = this.time + milliseconds;
    for (let n = 0; ; n++) {
      if (n > 1000) throw new Error("time does not pass");
      const next = [...this.timers].sort(([, one], [, other]) => one.at - other.at)[0];
      if (!next || next[1].at > end) break;
      this.timers.delete(next[0]);
      this.time = Math.max(this.time, next[1].at);
      next[1].then();
      await turn();
    }
    this.time = end;
    await turn();
  }

  get newest(): FakeSocket | undefined {
    return this.sockets.at(-1);
  }
}

/** Let every promise that can be settled be settled. */
/** When it holds; a database has turns of its own. Fails by never ending. */
export async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await holds())) await turn();
}

export function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

interface Request {
  record: StoredRecord;
  requestId: string;
}

/** One session of one gateway, as everybody may rely on it. */
export class ModelGateway {
  records: StoredRecord[] = [];
  epoch = "";
  offset = 0;
  unfinished = "";
  begun = false;
  private base = 0; // frames up to this one are gone
  private pinned = 0; // where the unfinished answer begins
  private frames: Array<{ offset: number; frame: Json }> = [];
  private viewers = new Set<FakeSocket>();
  private owed: number[] = []; // seqs of delivered messages without an answer
  private open: Request[] = [];
  private epochs = 0;
  private settled = ""; // what sdk_messages said
  firstSeq = 1;
  recordFirst = false; // whether a record is told before its ack
  nackNext: string | undefined;

  get lastSeq(): number {
    return this.records.length;
  }

  kept(): StoredRecord[] {
    return this.records.slice(this.firstSeq - 1);
  }

  // the sockets

  join(socket: FakeSocket): void {
    socket.open();
    const epoch = socket.url.searchParams.get("epoch");
    const offset = Number(socket.url.searchParams.get("offset"));
    const meets = epoch !== null && epoch === this.epoch && offset >= this.base && offset <= this.offset;
    const after = meets ? offset : this.pinned;
    this.say(socket, { ...this.welcome(after), ...(epoch !== null && { recovered: meets }) });
    this.viewers.add(socket);
    for (const { offset, frame } of this.frames) if (offset > after) this.say(socket, frame);
    this.say(socket, { type: "connection_status", sandboxStatus: "connected" });
  }

  leave(socket: FakeSocket): void {
    this.viewers.delete(socket);
  }

  private welcome(offset: number): Json {
    const open = this.open.map(({ record }) => record);
    return { type: "welcome", sessionId: "s", epoch: this.epoch, offset, lastSeq: this.lastSeq, status: "running", ...(open.length && { open }) };
  }

  private say(socket: FakeSocket, frame: Json): void {
    if (socket.readyState === 1) socket.down.push(JSON.stringify(frame));
  }

  private tell(frame: Json): void {
    for (const socket of this.viewers) this.say(socket, frame);
  }

  private append(cid: string, role: string, type: string, content: unknown, status: string, metadata: Json = {}): StoredRecord {
    const seq = this.lastSeq + 1;
    const record = { id: `s.${seq}`, seq, cid, role, type, content, metadata, createdAt: "2026-01-01T00:00:00.000Z", status };
    this.records.push(record);
    return record;
  }

  private mark(seq: number, status: string): void {
    this.records[seq - 1] = { ...this.records[seq - 1]!, status };
  }

  private show(record: StoredRecord, omitted = false): void {
    const shown = omitted ? { ...record, content: null } : record;
    this.tell({ type: "record", seq: record.seq, cid: record.cid, record: shown, ...(omitted && { omitted }) });
  }

  private relay(frame: Json): void {
    this.offset += 1;
    const numbered = { _offset: this.offset, ...frame };
    this.frames.push({ offset: this.offset, frame: numbered });
    this.tell(numbered);
  }

  // what people do

  hear(socket: FakeSocket, text: string): void {
    const frame = JSON.parse(text) as Json;
    const cid = String(frame.cid);
    if (frame.type === "ping") return this.say(socket, { type: "pong", id: frame.id });
    const known = this.records.find((record) => record.cid === cid);
    if (known) return this.say(socket, { type: "ack", cid, seq: known.seq, stage: "stored", status: known.status });
    if (frame.type === "message" && this.nackNext) {
      this.say(socket, { type: "nack", cid, reason: this.nackNext });
      this.nackNext = undefined;
      return;
    }
    if (frame.type === "message") this.keep(socket, this.append(cid, "user", "message", frame.content, "stored"));
    if (frame.type === "permission_response") this.answered(socket, frame, cid);
  }

  private keep(socket: FakeSocket, record: StoredRecord): void {
    const ack = { type: "ack", cid: record.cid, seq: record.seq, stage: "stored", status: "stored" };
    if (this.recordFirst) this.show(record);
    this.say(socket, ack);
    if (!this.recordFirst) this.show(record);
  }

  private answered(socket: FakeSocket, frame: Json, cid: string): void {
    const request = this.open.find(({ requestId }) => requestId === frame.requestId);
    if (!request) return this.say(socket, { type: "nack", cid, reason: "already_answered" });
    this.open = this.open.filter((each) => each !== request);
    this.mark(request.record.seq, "answered");
    const { type: _type, cid: _cid, ...content } = frame;
    this.keep(socket, this.append(cid, "user", "permission_response", content, "stored"));
  }

  /** Another tab, or a service, says something; perhaps something long. */
  other(text: string, omitted: boolean): void {
    this.show(this.append(`other-${this.lastSeq}`, "user", "message", text, "stored"), omitted);
  }

  // what becomes of messages

  deliver(): void {
    if (!this.epoch) this.begin();
    const waiting = this.records.find(({ status }) => status === "stored");
    if (!waiting) return;
    this.mark(waiting.seq, "delivered");
    if (waiting.type === "message") this.owed.push(waiting.seq);
    this.tell({ type: "receipt", cid: waiting.cid, seq: waiting.seq, stage: "delivered" });
  }

  expire(): void {
    const waiting = this.records.find(({ status, type }) => status === "stored" && type === "message");
    if (!waiting) return;
    this.mark(waiting.seq, "expired");
    this.tell({ type: "expired", cid: waiting.cid, seq: waiting.seq });
  }

  /** A very old cid came again: a marker takes its number, and nobody is told; the next record shows that there is one. */
  duplicate(): void {
    this.append(`duplicate:${this.lastSeq}`, "system", "duplicate", "", "duplicate", { first: 1 });
    this.other("after a marker", false);
  }

  // the agent

  private begin(): void {
    this.epoch = `e${++this.epochs}`;
    this.offset = this.base = this.pinned = 0;
    this.frames = [];
    this.tell(this.welcome(0));
  }

  get works(): boolean {
    return this.owed.length > 0 || this.begun;
  }

  chunk(text: string): void {
    if (!this.owed.length) return;
    this.begun = true;
    if (text && this.settled && this.settled === this.unfinished) this.unfinished += "\n\n"; // a new message
    this.unfinished += text;
    this.relay({ type: "chunk", text });
  }

  /** The words so far, as the agent itself would have them. */
  sum(): void {
    const said = this.unfinished.slice(this.settled ? this.settled.length + 2 : 0);
    if (!said) return;
    this.settled = this.unfinished;
    this.relay({ type: "sdk_message", message: { type: "assistant", message: { content: [{ type: "text", text: said }] } } });
  }

  done(): void {
    if (!this.owed.length) return;
    this.owed.shift();
    const record = this.append(`agent:${this.epoch}:${this.offset + 1}`, "assistant", "message", this.unfinished, "complete");
    this.forget();
    this.show(record);
    this.relay({ type: "done", metadata: {}, messageId: record.id, seq: record.seq });
    this.pinned = this.offset;
  }

  private forget(): void {
    this.unfinished = this.settled = "";
    this.begun = false;
  }

  ask(): void {
    if (!this.owed.length) return;
    const requestId = `r${this.lastSeq}`;
    const members = { requestId, toolName: "demo", toolInput: {} };
    this.relay({ type: "tool_permission_request", ...members });
    const record = this.append(`agent:${this.epoch}:${this.offset}`, "assistant", "permission_request", members, "open");
    this.open.push({ record, requestId });
    this.show(record);
  }

  crash(): void {
    if (!this.epoch) return;
    const interrupted = this.owed.splice(0);
    for (const seq of interrupted) this.mark(seq, "interrupted");
    for (const { record } of this.open) this.mark(record.seq, "expired");
    if (this.begun) this.show(this.append(`agent:${this.epoch}:end`, "assistant", "message", this.unfinished, "incomplete", { reason: "died" }));
    for (const seq of interrupted) this.tell({ type: "interrupted", cid: this.records[seq - 1]!.cid, seq });
    for (const { record, requestId } of this.open.splice(0)) this.tell({ type: "expired", cid: record.cid, seq: record.seq, requestId });
    this.forget();
    this.begin();
  }

  /** The ring is full: what is old and not of the unfinished answer goes. */
  overrun(): void {
    this.base = this.pinned;
    this.frames = this.frames.filter(({ offset }) => offset > this.base);
  }

  /** What `GET .../messages` answers now. */
  history(query: URLSearchParams): Json {
    const limit = Number(query.get("limit") ?? 100);
    const after = Number(query.get("after") ?? 0);
    const before = query.has("before") ? Number(query.get("before")) : Infinity;
    const found = this.kept().filter(({ seq }) => seq > after && seq < before);
    const newest = !query.has("after") && query.has("before");
    return { messages: newest ? found.slice(-limit) : found.slice(0, limit), lastSeq: this.lastSeq, firstSeq: this.firstSeq };
  }
}
