// The gateway's HTTP routes, typed. Every failure is an ApiError.
import type { Agent, Mode, PendingMessage } from "@holdfast/client";
import type { Sandbox } from "./sandbox.ts";

export interface Me {
  userId: string;
  email: string;
  expiresAt: string | number;
  version: string;
  demo: boolean;
  tokens: boolean;
  /** The network of a session that asks for none, and the most that this user may ask for. */
  network: { default: Reach; max: Reach };
  limits: Limits;
}

/** A user's usage and limits. `used` is null if the gateway does not know it, or if the limit is a rate. */
export type Limits = Record<"sessions" | "running" | "stored" | "requests" | "agentRecords", { used: number | null; max: number; setting: string }>;

export type Reach = "none" | "outbound" | { allow: string[] };

/** The kinds of `Reach`, as one chooses among them. */
export type Network = "none" | "outbound" | "hosts";

export const networkOf = (reach: Reach): Network => (typeof reach === "string" ? reach : "hosts");

/** The providers. `image`: the default image there; null: none. `images`: patterns of further images that may be named.
 * `networks`: the networks available there. */
export interface Provider {
  name: string;
  level: string;
  healthy: boolean;
  problem: string | null;
  image: string | null;
  images: string[];
  networks: Network[];
}

export interface Providers {
  default: string;
  providers: Provider[];
}

/** The agents that a session may have, and why others are not available. `default` is the agent of a session that names
 * none. */
export interface Agents {
  agents: Agent[];
  default: string;
}

export interface NewSandbox {
  title?: string;
  agent?: string;
  mode?: Mode;
  provider?: string;
  image?: string;
  network?: Reach;
  repoUrl?: string;
  repoBranch?: string;
  envVars?: Record<string, string>;
}

export interface Terminal {
  name: string;
  epoch: string;
  base: number;
  offset: number;
  cols: number;
  rows: number;
  viewers: number;
  idleSeconds: number;
  alive: boolean;
  exit: { code: number | null; signal: string | number | null } | null;
  title: string | null;
  command: string[];
}

export interface Entry {
  name: string;
  nameBase64?: string;
  type: "file" | "directory" | "symlink" | "other";
  size: number;
  mode: string;
  mtime: string | null;
  target?: string;
  unsettled?: boolean;
}

export interface Directory {
  path: string;
  root: "workspace" | "agent";
  source: "live" | "synced";
  generation: number | null;
  entries: Entry[];
  truncated: boolean;
}

export interface Share {
  number: number;
  label: string;
  createdAt: string;
  expiresAt: string;
}

export interface NewShare extends Share {
  token: string;
}

/** A credential without its value. `everybody`: it is the operator's. `problem`: why it cannot be used; null while it can. */
export interface Credential {
  provider: string;
  type: string;
  setAt: string;
  everybody: boolean;
  problem: string | null;
}

/** `status` is 0 and `code` "unreachable" if there was no answer. `message` is a sentence for people. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  readonly status: number;
  readonly code: string;
  readonly retryAfter: number | undefined;

  constructor(status: number, code: string, message: string, retryAfter?: number) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryAfter = retryAfter;
  }
}

let refused: () => void = () => {};

/** What to do when the gateway no longer knows the user (401 on any route but signing in). */
export function onSignedOut(listener: () => void): void {
  refused = listener;
}

/** The raw answer, for content that is not JSON (files, logs); an ApiError if it is a refusal. */
export async function fetchFrom(path: string, init: RequestInit = {}): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(path, { credentials: "same-origin", ...init });
  } catch (cause) {
    if (init.signal?.aborted && !isLate(init.signal)) throw cause;
    throw unreachable();
  }
  if (answer.ok) return answer;
  const told = (await answer.json().catch(() => null)) as { error?: unknown; code?: unknown } | null;
  const message = typeof told?.error === "string" ? told.error : `The gateway answered ${answer.status}.`;
  const code = typeof told?.code === "string" ? told.code : `http_${answer.status}`;
  if (answer.status === 401 && path !== "/api/signin") refused();
  throw new ApiError(answer.status, code, message, Number(answer.headers.get("Retry-After")) || undefined);
}

const unreachable = (): ApiError => new ApiError(0, "unreachable", "The gateway cannot be reached right now.");
const isLate = (signal: AbortSignal): boolean => signal.reason instanceof DOMException && signal.reason.name === "TimeoutError";

/** Everything waits for these two, so a missing answer counts as none after a while. */
const soon = (): RequestInit => ({ signal: AbortSignal.timeout(30_000) });

async function ask<T>(method: string, path: string, body?: unknown, how: RequestInit = {}): Promise<T> {
  const init: RequestInit = { method, ...how };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { "Content-Type": "application/json" };
  }
  const answer = await fetchFrom(path, init);
  if (answer.status === 204) return undefined as T;
  return (await answer.json().catch((cause: unknown) => {
    throw init.signal && isLate(init.signal) ? unreachable() : cause;
  })) as T;
}

const sandbox = (id: string): string => `/api/sandboxes/${encodeURIComponent(id)}`;

/** A path below a root in the form of `/files/`: every name percent-encoded on its own. */
export function filePath(id: string, path: string, options: { root?: string; source?: string; generation?: number } = {}): string {
  const names = path.split("/").filter(Boolean).map(encodeURIComponent).join("/");
  const query = new URLSearchParams(Object.entries(options).filter(([, value]) => value !== undefined).map(([name, value]) => [name, String(value)]));
  return `/files/${encodeURIComponent(id)}/${names}${query.size ? `?${query}` : ""}`;
}

export const api = {
  me: () => ask<Me>("GET", "/api/me", undefined, soon()),
  signIn: (token: string) => ask<Pick<Me, "userId" | "email" | "expiresAt">>("POST", "/api/signin", { token }),
  signOut: () => ask<void>("DELETE", "/api/signin"),
  token: () => ask<{ token: string; expiresAt: string | number }>("POST", "/api/token", undefined, soon()),

  providers: () => ask<Providers>("GET", "/api/providers", undefined, soon()),
  agents: () => ask<Agents>("GET", "/api/agents", undefined, soon()),
  sandboxes: () => ask<{ sandboxes: Sandbox[] }>("GET", "/api/sandboxes").then((answer) => answer.sandboxes),
  create: (id: string, what: NewSandbox) => ask<Sandbox>("POST", sandbox(id), what),
  status: (id: string) => ask<Sandbox>("GET", `${sandbox(id)}/status`),
  wake: (id: string) => ask<Sandbox>("POST", `${sandbox(id)}/wake`),
  sleep: (id: string) => ask<Sandbox>("POST", `${sandbox(id)}/sleep`),
  pause: (id: string) => ask<Sandbox>("POST", `${sandbox(id)}/pause`),
  resume: (id: string, how: { envVars?: Record<string, string>; empty?: boolean; keep?: boolean } = {}) => ask<Sandbox>("POST", `${sandbox(id)}/resume`, how),
  setMode: (id: string, mode: Mode) => ask<Sandbox>("PATCH", sandbox(id), { mode }),
  pending: (id: string) => ask<{ messages: PendingMessage[] }>("GET", `${sandbox(id)}/pending`).then((answer) => answer.messages),
  extend: (id: string, seq: number, seconds: number) => ask<PendingMessage>("POST", `${sandbox(id)}/pending/${seq}/extend`, { seconds }),
  cancel: (id: string, seq: number) => ask<unknown>("DELETE", `${sandbox(id)}/pending/${seq}`),
  abort: (id: string) => ask<unknown>("POST", `${sandbox(id)}/abort`),
  sync: (id: string) => ask<unknown>("POST", `${sandbox(id)}/sync?wait=0`),
  remove: (id: string, purge: boolean) => ask<void>("DELETE", `${sandbox(id)}${purge ? "?purge=1" : ""}`),

  shares: (id: string) => ask<{ shares: Share[] }>("GET", `${sandbox(id)}/shares`).then((answer) => answer.shares),
  share: (id: string, what: { ttl: number; label: string }) => ask<NewShare>("POST", `${sandbox(id)}/shares`, what),
  takeShareBack: (id: string, number: number) => ask<Share>("DELETE", `${sandbox(id)}/shares/${number}`),

  credentials: () => ask<{ credentials: Credential[]; providers: string[] }>("GET", "/api/credentials"),
  setCredential: (provider: string, key: string) => ask<Credential>("PUT", `/api/credentials/${encodeURIComponent(provider)}`, { type: "api", key }),
  deleteCredential: (provider: string) => ask<{ provider: string }>("DELETE", `/api/credentials/${encodeURIComponent(provider)}`),

  terminals: (id: string) => ask<{ terminals: Terminal[] }>("GET", `${sandbox(id)}/terminals`).then((answer) => answer.terminals),
  closeTerminal: (id: string, name: string) => ask<void>("DELETE", `${sandbox(id)}/terminals/${encodeURIComponent(name)}`),
  directory: (id: string, path: string, options: { root?: string; source?: string } = {}) =>
    ask<Directory>("GET", filePath(id, path, options)),
  logs: (id: string) => fetchFrom(`/logs/${encodeURIComponent(id)}`).then((answer) => answer.text()),
  demo: (id: string, what: "cut" | "kill-agent" | "kill-bridge" | "pause-store", how: { seconds?: number } = {}) =>
    ask<Record<string, unknown>>("POST", `${sandbox(id)}/demo/${what}`, how),
};
