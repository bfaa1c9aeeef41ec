// The page's shared state: the user, the sessions, and the open ones.
//
// One watch keeps `sandboxes` true. An open session has its own socket, held by its handle. A handle that is left while
// something still waits to be sent stays in the background until that is gone.
import { batch, computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { type AgentNow, connect, indexedDBOutbox, type Item, type Mode, type Outbox, type OutboxItem, type Session, type State } from "@holdfast/client";
import { watch, type Watch } from "@holdfast/client/watch";
import { transcript, type Transcript } from "@holdfast/client/transcript";
import { announce } from "./announce.tsx";
import { type Agents, api, ApiError, type Limits, type Me, onSignedOut, type Providers } from "./api.ts";
import { drafts, kept, own } from "./kept.ts";
import { go } from "./route.ts";
import { type Pull, pullIn } from "./pull.ts";
import type { AgentStatus, Sandbox, SyncTransition } from "./sandbox.ts";
import { userOf } from "./token.ts";
import { toast } from "./ui/toast.tsx";
import { seeAs, settleSeen } from "./unread.ts";

/** undefined: not asked yet; null: nobody. */
export const me: Signal<Me | null | undefined> = signal(undefined);
/** Whether the user signed out on purpose: then nothing of theirs waits for them. */
export const leftOnPurpose = signal(false);
/** The user's usage and limits, at most some seconds old; undefined: not known. */
export const limits: Signal<Limits | undefined> = signal(undefined);
/** The providers at the last look; undefined: not known, and no choice. */
export const providers: Signal<Providers | undefined> = signal(undefined);
/** The agents at the last look; undefined: not known. */
export const agents: Signal<Agents | undefined> = signal(undefined);
/** undefined until the first list came. */
export const sandboxes: Signal<ReadonlyMap<string, Sandbox> | undefined> = signal(undefined);
/** Of the watch: whether the list is live. */
export const connection: Signal<State> = signal({ phase: "connecting", attempt: 0 });

const SYNCS_KEPT = 200;

export interface SessionHandle {
  readonly id: string;
  /** Unique to this opening. */
  readonly key: number;
  /** Whose it is. */
  readonly user: string;
  /** When it was created: a later creation time under the same id is another session. */
  readonly created: string;
  readonly client: Session;
  readonly transcript: Transcript;
  /** Its newest known state; stays when the session is gone. */
  readonly sandbox: ReadonlySignal<Sandbox>;
  /** Steps of its sync, oldest first, at most 200: those before this visit, then live. */
  readonly syncEvents: ReadonlySignal<readonly SyncTransition[]>;
  readonly state: ReadonlySignal<State>;
  /** The agent's identity, and whether it retries its model: from the gateway, then from the agent's own frames. */
  readonly agent: ReadonlySignal<AgentNow>;
  /** How much of its image is fetched, while its start waits for that. */
  readonly pull: ReadonlySignal<Pull | undefined>;
  /** The transcript's, at most once a frame of the screen. */
  readonly items: ReadonlySignal<readonly Item[]>;
  readonly outbox: ReadonlySignal<readonly OutboxItem[]>;
  /** Whether the newest page of history is here, and whether there is more before the first item. */
  readonly history: ReadonlySignal<{ loaded: boolean; more: boolean; loading: boolean }>;
  loadEarlier(): Promise<void>;
  /** It stays in the background until its outbox is empty. */
  leave(): void;
}

const syncs = new Map<string, Signal<readonly SyncTransition[]>>();
let opened = 0;
let toldOfMemory = false;
const lines = new Map<Session, Sandbox>(); // also of left sessions, while something waits to be sent
let watching: Watch | undefined;

/** A line belongs to the user who opened it, even if the cookie is another user's when it reconnects. */
function identity(): { getToken?: () => Promise<string> } {
  const who = me.peek();
  if (!who?.tokens) return {};
  const getToken = async (): Promise<string> => {
    const { token } = await api.token();
    const user = userOf(token);
    if (user === undefined || user === who.userId) return token;
    startAnew();
    throw new Error("somebody else is signed in now");
  };
  return { getToken };
}

/** Another user signed in: drop everything that this page holds, and begin again. */
function startAnew(): void {
  forgetMe();
  history.replaceState(null, "", location.pathname);
  location.reload();
}

const isMine = (sandbox: Sandbox): boolean => sandbox.userId === me.peek()?.userId;

export function learn(sandbox: Sandbox): void {
  if (!isMine(sandbox)) return;
  sandboxes.value = new Map(sandboxes.value ?? []).set(sandbox.id, sandbox);
}

function forget(id: string): void {
  const rest = new Map(sandboxes.value ?? []);
  if (rest.delete(id)) sandboxes.value = rest;
}

/** Ask who is signed in, and begin to watch if somebody is. Throws ApiError without an answer. */
export async function arrive(): Promise<void> {
  try {
    const who = await api.me();
    if (me.peek() && me.peek()?.userId !== who.userId) return startAnew();
    drafts.begin(who.userId);
    seeAs(who.userId);
    batch(() => {
      leftOnPurpose.value = false;
      me.value = who;
      limits.value = who.limits;
    });
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 401) throw error;
    me.value = null;
    return;
  }
  otherTabs?.postMessage({ signedIn: me.peek()?.userId });
  if (!watching) startWatching();
  void lookAtProviders();
  void lookAtAgents();
}

const LIMITS_EVERY = 10_000; // the gateway counts no more often
/** Read the providers' state. Without an answer the known state stays. */
export async function lookAtProviders(): Promise<void> {
  const user = me.peek()?.userId;
  const found = await api.providers().catch(() => undefined);
  if (found && user !== undefined && me.peek()?.userId === user) providers.value = found;
}

/** Read the list of agents. Without an answer the known list stays. */
export async function lookAtAgents(): Promise<void> {
  const user = me.peek()?.userId;
  const found = await api.agents().catch(() => undefined);
  if (found && user !== undefined && me.peek()?.userId === user) agents.value = found;
}

let looking: ReturnType<typeof setTimeout> | undefined;

/** Something changed: read the limits again after a while. */
function lookAtLimits(): void {
  looking ??= setTimeout(() => {
    const user = me.peek()?.userId;
    void (user === undefined ? Promise.resolve() : api.me().then((who) => void (who.userId === user && (limits.value = who.limits))))
      .catch(() => undefined) // it is looked at again
      .finally(() => (looking = undefined));
  }, LIMITS_EVERY);
}

function startWatching(): void {
  const line = watch({ url: location.origin, ...identity() });
  watching = line;
  line.on("state", (state) => {
    connection.value = state;
    if (state.phase === "ended" && watching === line) void stillKnown();
  });
  line.on("sandboxes", ({ sandboxes: all }) => {
    const list = (all as unknown as Sandbox[]).filter(isMine);
    if (list.length < all.length) void arrive().catch(() => undefined); // the list belongs to another user: ask who is signed in
    settleSeen(list);
    const now = new Map(list.map((one) => [one.id, one]));
    for (const first of lines.values()) if ((now.get(first.id) ?? first).createdAt !== first.createdAt) void discard(first);
    sandboxes.value = now;
  });
  line.on("sandbox", ({ sandbox }) => learn(sandbox as unknown as Sandbox));
  line.on("gone", ({ id }) => {
    const last = sandboxes.peek()?.get(id);
    forget(id);
    if (last) void discard(last);
  });
  line.on("sandboxes", lookAtLimits);
  line.on("sandbox", lookAtLimits);
  line.on("gone", lookAtLimits);
  line.on("sync", ({ id, ...step }) => note(id, step as unknown as SyncTransition));
}

/** A line ended for good: ask who is signed in, in case the gateway no longer knows the user. */
async function stillKnown(): Promise<void> {
  await api.me().catch(() => undefined);
}

function stopWatching(): void {
  const line = watching;
  watching = undefined;
  line?.leave();
}

// Signing in or out in one tab is signing in or out in all.
const otherTabs = typeof BroadcastChannel === "undefined" ? undefined : new BroadcastChannel("holdfast");
otherTabs?.addEventListener("message", ({ data }) => {
  const { signedIn, signedOut } = data as { signedIn?: string; signedOut?: string };
  const here = me.peek();
  if (signedIn !== undefined && here === null) void arrive().catch(() => undefined);
  else if (signedIn !== undefined && here && here.userId !== signedIn) startAnew();
  if (signedOut !== undefined && here?.userId === signedOut) leaveForGood(signedOut);
});

function forgetMe(): void {
  stopWatching();
  for (const line of lines.keys()) line.leave(); // the next user must not send this one's messages
  lines.clear();
  syncs.clear();
  agentStates.clear();
  batch(() => {
    sandboxes.value = undefined;
    providers.value = undefined;
    agents.value = undefined;
    me.value = null;
  });
}

function leaveForGood(user: string): void {
  leftOnPurpose.value = true;
  drafts.drop(user);
  kept.set(own("return", user), null);
  go("");
  forgetMe();
}

onSignedOut(() => {
  if (!me.value) return;
  announce("Your sign-in has ended.");
  forgetMe();
});

export async function signIn(token: string): Promise<void> {
  await api.signIn(token);
  await arrive();
}

export async function signOut(): Promise<void> {
  const user = me.peek()?.userId;
  await api.signOut();
  if (user === undefined) return;
  leaveForGood(user);
  otherTabs?.postMessage({ signedOut: user });
}

function stepsOf(id: string): Signal<readonly SyncTransition[]> {
  const known = syncs.get(id) ?? signal<readonly SyncTransition[]>([]);
  syncs.set(id, known);
  return known;
}

function note(id: string, ...more: SyncTransition[]): void {
  const steps = stepsOf(id);
  const known = new Set(steps.value.map(({ at, state }) => `${at} ${state}`));
  const all = [...steps.value, ...more.filter(({ at, state }) => !known.has(`${at} ${state}`))];
  steps.value = all.sort((one, other) => Date.parse(one.at) - Date.parse(other.at)).slice(-SYNCS_KEPT);
}

const agentStates = new Map<string, Signal<AgentStatus | undefined>>();
function agentStateOf(id: string): Signal<AgentStatus | undefined> {
  const known = agentStates.get(id) ?? signal<AgentStatus | undefined>(undefined);
  agentStates.set(id, known);
  return known;
}

/** Read one session: for its sync's history and its agent, or if the list does not have it. */
export async function lookUp(id: string): Promise<Sandbox> {
  const found = await api.status(id);
  learn(found);
  agentStateOf(id).value = found.agentStatus ?? undefined;
  note(id, ...(found.sync?.history ?? []));
  return found;
}

const stores = new Map<string, Outbox>();

/** Waiting messages belong to their writer, and to this session: not to another one of the same id, later. */
function outboxOf({ id, userId, createdAt }: Pick<Sandbox, "id" | "userId" | "createdAt">): Outbox {
  const store = stores.get(userId) ?? indexedDBOutbox(`holdfast ${userId}`);
  stores.set(userId, store);
  const name = `${id} ${createdAt}`;
  return { load: () => store.load(name), put: (_, item) => store.put(name, item), remove: (_, cid) => store.remove(name, cid) };
}

/** A session is gone for good, and its waiting messages with it. */
async function discard(gone: Sandbox): Promise<void> {
  for (const [line, { id, createdAt }] of lines) if (id === gone.id && createdAt === gone.createdAt) line.leave();
  const outbox = outboxOf(gone);
  const items = await outbox.load("").catch(() => []);
  for (const { cid } of items) await outbox.remove("", cid).catch(() => undefined);
}

/** Open a known session (see `lookUp`); its socket stays until `leave`. */
export function openSession(first: Sandbox): SessionHandle {
  const { id } = first;
  const user = me.peek()?.userId ?? first.userId;
  const client = connect({ url: location.origin, session: id, outbox: outboxOf({ ...first, userId: user }), ...identity() });
  lines.set(client, first);
  const told = transcript(client);
  const state = signal<State>(client.state);
  const items = signal<readonly Item[]>(told.items);
  const outbox = signal<readonly OutboxItem[]>(client.outbox);
  const history = signal({ loaded: false, more: false, loading: false });
  const pull = signal<Pull | undefined>(first.pull ?? undefined);
  const said = signal<AgentNow>(told.agent);
  const agent = computed<AgentNow>(() => ({ ...agentIn(agentStateOf(id).value), ...said.value }));
  let left = false;
  client.on("welcome", ({ first: again }) => {
    pull.value = undefined; // a running pull is reported again
    if (!again) void lookUp(id).catch(() => undefined); // a new process may report something else about itself
  });
  client.on("status", (said) => (pull.value = pullIn(said, pull.peek())));
  client.on("state", (next) => {
    state.value = next;
    if (next.phase === "ended") lines.delete(client);
    if (next.phase === "ended" && !left) void stillKnown();
  });
  client.on("error", ({ code }) => {
    if (code !== "outbox_failed" || toldOfMemory) return;
    toldOfMemory = true;
    toast("This browser stores nothing for this page: a reload loses messages that are not sent yet.", "bad");
  });
  client.on("outbox", (next) => {
    outbox.value = next.items;
    if (left && next.items.every((item) => item.stage === "refused" || item.stage === "expired")) client.leave();
  });
  const show = oncePerFrame(() => {
    const { loaded, more } = told;
    batch(() => {
      items.value = told.items;
      said.value = told.agent;
      if (loaded !== history.peek().loaded || more !== history.peek().more) history.value = { ...history.peek(), loaded, more };
    });
  });
  told.on("change", show);
  let last = first;
  const sandbox = computed(() => (last = sandboxes.value?.get(id) ?? last));
  return {
    id, key: ++opened, user, created: first.createdAt, client, transcript: told, sandbox, syncEvents: stepsOf(id), state, agent, pull, items, outbox, history,
    async loadEarlier() {
      if (history.peek().loading || !told.more) return;
      history.value = { ...history.peek(), loading: true };
      await told.earlier().catch(() => undefined); // the button stays, for another try
      history.value = { ...history.peek(), loading: false };
    },
    leave() {
      left = true;
      if (outbox.peek().every((item) => item.stage === "refused" || item.stage === "expired")) client.leave();
    },
  };
}

function agentIn(known: AgentStatus | undefined): AgentNow {
  return Object.fromEntries(Object.entries(known ?? {}).filter(([name, value]) => name !== "state" && value !== null));
}

/** What the agent may do without asking. */
export async function setMode(id: string, mode: Mode): Promise<void> {
  await api.setMode(id, mode);
  await lookUp(id);
}

/** All lines look for their gateway now, without waiting for the next try. */
export function tryNow(): void {
  dispatchEvent(new Event("online"));
}

/** Several calls become one; a hidden page gets four a second. */
function oncePerFrame(act: () => void): () => void {
  let due = false;
  return () => {
    if (due) return;
    due = true;
    const run = (): void => {
      due = false;
      act();
    };
    if (document.hidden) setTimeout(run, 250);
    else requestAnimationFrame(run);
  };
}
