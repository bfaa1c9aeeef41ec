/**
 * The library's public types: what a page passes in and gets. Types only, no code.
 *
 * Members that the gateway or an agent may add are kept: a frame is an open object, and only the members that the
 * library itself uses are checked.
 */

export type Json = Record<string, unknown>;

/** `retryAt` is by the clock `performance.timeOrigin + performance.now()`, which nobody can set back; `code` is a close code or an HTTP status. `attempt` counts from the last
 * connection that was greeted. */
export interface State {
  phase: "connecting" | "online" | "waiting" | "offline" | "ended";
  attempt: number;
  retryAt?: number;
  reason?: string;
  code?: number;
}

export type Why = "connect" | "expiring" | "refused";
export type GetToken = (why: Why) => string | Promise<string>;

/** A string, or parts that each have a `type`. */
export type Content = string | Array<{ type: string } & Json>;

/** A stored message, as in docs/protocol/history.md. */
export interface StoredRecord {
  id?: string;
  seq: number;
  cid: string;
  role: string;
  type: string;
  content: unknown;
  metadata: Json;
  createdAt?: string;
  status: string;
}

export interface Page {
  messages: StoredRecord[];
  lastSeq: number;
  firstSeq: number;
  stale?: boolean;
}

export interface Welcome extends Json {
  type: "welcome";
  epoch: string;
  offset: number;
  lastSeq: number;
  recovered?: boolean;
  status?: string;
  reason?: string;
  open?: StoredRecord[];
  /** Whether this is the first one of its connection; the others announce a new agent process. */
  first: boolean;
}

export type Stage = "queued" | "sent" | "accepted" | "refused" | "expired";

/** An item that is not stored yet, or was refused and waits for a decision. `frame` has `type` and the rest, without
 * `cid`. */
export interface OutboxItem {
  cid: string;
  frame: { type: string } & Json;
  order: number;
  stage: Stage;
  seq?: number;
  reason?: string;
  error?: string;
}

export interface Sent {
  cid: string;
  /** Durable for good. Rejected with HoldfastError: a nack's reason, `withdrawn`, `outbox_full`, `too_long`, `invalid`. */
  stored: Promise<{ seq: number; status?: string }>;
  /** The agent has it. Rejected as `stored` is, and with `expired` or `interrupted`. */
  delivered: Promise<{ seq: number }>;
}

/** The progress of fetching an image. Unknown numbers count as nothing. */
export interface Pull {
  image: string;
  layers: number;
  ofLayers: number;
  bytes: number;
  ofBytes: number;
}

export interface SessionEvents {
  state: State;
  welcome: Welcome;
  record: { record: StoredRecord; omitted: boolean };
  /** Every frame of the agent, each once, with `_offset`. */
  frame: Json & { type: string; _offset: number };
  /** Records after `after` were missed: read them. */
  gap: { after: number; lastSeq: number };
  /** With the status `pulling`, it has the progress of the image that the sandbox's start waits for, see `Pull`. */
  status: Json & { sandboxStatus?: string; status?: string; reason?: string } & Partial<Pull>;
  permission: Json & { requestId: string };
  question: Json & { requestId: string };
  /** A permission or a question is closed. `expired`: nobody answered, or the agent no longer asks. */
  settled: { requestId: string; status: "answered" | "expired" };
  ack: { cid: string; seq: number; stage: "accepted" | "stored"; status?: string };
  /** `retried`: this was no refusal. The frame is sent again, or was stored before. */
  nack: { cid: string; reason: string; error?: string; retried: boolean };
  receipt: { cid: string; seq: number };
  expired: { cid: string; seq: number; requestId?: string; reason?: string };
  interrupted: { cid: string; seq: number; reason?: string };
  outbox: { items: OutboxItem[] };
  auth_expiring: { at?: string };
  going_away: { retryAfter: number };
  /** Something was wrong, and no other event reports it. */
  error: { code: string; error: string; frame?: unknown };
}

export interface TerminalPosition {
  epoch: string;
  offset: number;
}

export interface TerminalEvents {
  state: State;
  /** `goesOn`: the screen is right and goes on; otherwise it is void: clear it. `absent`: there is no terminal now. */
  ready: { epoch: string; cols: number; rows: number; goesOn: boolean; absent: boolean };
  /** Output of the program, each byte once and in order. `old`: do not send your terminal's replies to it. */
  data: { data: Uint8Array; old: boolean };
  /** Clear, and show this picture instead. Do not send your terminal's replies to it. */
  reset: { data: Uint8Array; epoch: string; cols: number; rows: number };
  exit: { code: number | null; signal: string | null };
  resize: { cols: number; rows: number };
  status: { status: string };
  error: { code: string; error: string };
}

/** Beside these, everything that the gateway says of a session. An older gateway may lack some. */
export interface Sandbox extends Json {
  id: string;
  /** The provider, and what isolates the sandbox from the rest of its host. */
  provider?: string;
  level?: string;
  /** The image, as it was named; null: none, or not known yet. */
  image?: string | null;
  imageDigest?: string | null;
  /** A name, a command, or a server; null: the gateway's default. */
  agent?: string | string[] | Json | null;
  /** Only in the answer for a single session. */
  agentStatus?: (Partial<Record<"name" | "version" | "session" | "model" | "mode", string | null>> & { state: string }) | null;
}

export interface WatchEvents {
  state: State;
  sandboxes: { sandboxes: Sandbox[] };
  sandbox: { sandbox: Sandbox };
  gone: { id: string };
  sync: Json & { id: string; state: string };
  error: { code: string; error: string; frame?: unknown };
}

export interface MessageItem {
  kind: "message";
  key: string;
  seq?: number;
  cid: string;
  role: string;
  content: unknown;
  text: string;
  metadata: Json;
  status: Stage | "stored" | "delivered" | "interrupted" | "cancelled" | (string & {});
  reason?: string;
  createdAt?: string;
}

export interface AnswerItem {
  kind: "answer";
  key: string;
  seq?: number;
  text: string;
  blocks: Json[];
  metadata: Json;
  work: Work;
  streaming: boolean;
  status: "streaming" | "complete" | "incomplete" | "aborted" | (string & {});
  createdAt?: string;
}

export interface RequestItem {
  kind: "permission" | "question";
  key: string;
  seq: number;
  requestId: string;
  /** The agent's own members: `toolName`, `toolInput`, `questions`, ... */
  content: Json;
  status: "open" | "answered" | "expired" | (string & {});
  /** The members of the answer, also of one that is still being sent (`sending`). */
  answer?: Json;
  sending?: boolean;
  createdAt?: string;
}

/** An agent's reports on its work. `thinking` and `changes` are in no record: only pages that saw them have them, and
 * they are bounded. */
export interface Work {
  thinking: string;
  todo?: Json;
  plan?: Json;
  /** Tokens as the agent counts them, and `costUsd`. */
  usage?: Json;
  changes: FileChange[];
}

export interface FileChange {
  path: string;
  action: string;
}

/** One step of a plan, or of a list of what is to do. */
export interface Step {
  text: string;
  state: "open" | "active" | "done";
}

/** A piece of an answer: words, or a tool with its result. Either may be missing: the call was cut off, or goes on. */
export type AnswerPart = { kind: "text"; text: string } | { kind: "tool"; use?: Json; result?: Json };

/** What the agent said of itself last. `retrying` is there while it tries to reach its model again. */
export interface AgentNow {
  name?: string;
  version?: string;
  session?: string;
  model?: string;
  mode?: string;
  retrying?: Json;
}

export type Mode = "ask" | "edits" | "all" | "plan";

/** A message that the agent does not have yet. `expiresAt` is null for one that waits in the sandbox (`inSandbox`). */
export interface PendingMessage extends Json {
  seq: number;
  cid: string;
  content: unknown;
  metadata: Json | null;
  status: string;
  inSandbox: boolean;
  expiresAt: string | null;
}

/** An agent that a session may have; `reason` says why it cannot be had here, with the command to type. */
export interface Agent {
  name: string;
  title: string;
  version: string | null;
  installed: string[];
  current: string | null;
  available: boolean;
  reason: string | null;
}

/** Frames of agents about their work, as they come in a `frame` event. */
export type WorkFrame = { _offset: number } & (
  | { type: "thinking"; text: string }
  | ({ type: "todo" | "plan" } & Json)
  | { type: "file_change"; path: string; action?: string }
  | ({ type: "usage"; costUsd?: number } & Json)
  | ({ type: "agent_status"; status?: string } & AgentNow)
  | ({ type: "agent_event"; kind?: string; event?: unknown } & Json)
  | { type: "request_gone"; requestId: string; reason?: string }
);

/** A marker (`duplicate`, `rejected`), a raw line, a service's record of its own type; without `seq`: an exit of the agent
 * or an error, seen live and in no history. */
export interface NoteItem {
  kind: "note";
  key: string;
  seq?: number;
  type: string;
  role?: string;
  text: string;
  content?: unknown;
  metadata: Json;
  status?: string;
  createdAt?: string;
}

export type Item = MessageItem | AnswerItem | RequestItem | NoteItem;

export interface TranscriptEvents {
  change: { readonly items: Item[] };
  /** History could not be read; it is tried again. */
  error: { code: string; error: string };
}
