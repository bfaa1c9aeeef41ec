// What the whole page knows: who is here, which sessions there are, and the ones that are open.
//
// One watch keeps `sandboxes` true. A session that is open has its own socket, held by its handle; a handle that is left while
// something still waits to be sent stays behind until that is gone.
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
/** Whether nobody is here because somebody said so: then nothing of theirs waits for them. */
export const leftOnPurpose = signal(false);
/** What they have and may have, at most some seconds old; undefined: not known. */
export const limits: Signal<Limits | undefined> = signal(undefined);
/** Where sessions can run, as of the last look; undefined: not known, and nothing to choose. */
export const providers: Signal<Providers | undefined> = signal(undefined);
/** Which agents a session may have, as of the last look; undefined: not known. */
export const agents: Signal<Agents | undefined> = signal(undefined);
/** undefined until the first list came. */
export const sandboxes: Signal<ReadonlyMap<string, Sandbox> | undefined> = signal(undefined);
/** Of the watch: whether the list is live. */
export const connection: Signal<State> = signal({ phase: "connecting", attempt: 0 });

const SYNCS_KEPT = 200;

export interface SessionHandle {
  readonly id: string;
  /** Of this opening: no other one has it. */
  readonly key: number;
  /** Whose it is. */
  readonly user: string;
  /** When it was made: another one of the same id is another session. */
  readonly created: string;
  readonly client: Session;
  readonly transcript: Transcript;
  /** The newest that is known of it; stays what it was when the session is gone. */
  readonly sandbox: ReadonlySignal<Sandbox>;
  /** Steps of its sync, oldest first, at most 200: those before this visit, then live. */
  readonly syncEvents: ReadonlySignal<readonly SyncTransition[]>;
  readonly state: ReadonlySignal<State>;
  /** Who its agent is, and whether it tries again, as the gateway knows it and as the agent said since. */
  readonly agent: ReadonlySignal<AgentNow>;
  /** How much of its image is fetched, while its start waits for that. */
  readonly pull: ReadonlySignal<Pull | undefined>;
  /** The transcript's, at most once a frame of the screen. */
  readonly items: ReadonlySignal<readonly Item[]>;
  readonly outbox: ReadonlySignal<readonly OutboxItem[]>;
  /** Whether the newest page of history is here, and whether there is more before the first item. */
  readonly history: ReadonlySignal<{ loaded: boolean; more: boolean; loading: boolean }>;
  loadEarlier(): Promise<void>;
  /** It stays behind the scenes until its outbox is empty. */
  leave(): void;
}

const syncs = new Map<string, Signal<readonly SyncTransition[]>>();
let opened = 0;
let toldOfMemory = false;
const lines = new Map<Session, Sandbox>(); // also of sessions that are left, while something waits to be sent
let watching: Watch | undefined;

/** Who asks for a line is who it is for, also when the cookie is another's by the time it comes back. */
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

/** Somebody else is here now: nothing that this page holds is theirs, so it goes, and begins again. */
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

/** Ask who is here, and begin to watch if it is somebody. Throws ApiError where nobody can say. */
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
/** See how the providers are. What was known stays if nobody can say. */
export async function lookAtProviders(): Promise<void> {
  const user = me.peek()?.userId;
  const found = await api.providers().catch(() => undefined);
  if (found && user !== undefined && me.peek()?.userId === user) providers.value = found;
}

/** See which agents there are. What was known stays if nobody can say. */
export async function lookAtAgents(): Promise<void> {
  const user = me.peek()?.userId;
  const found = await api.agents().catch(() => undefined);
  if (found && user !== undefined && me.peek()?.userId === user) agents.value = found;
}

let looking: ReturnType<typeof setTimeout> | undefined;

/** Something is another: see by and by what is left. */
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
    if (list.length < all.length) void arrive().catch(() => undefined); // a list of somebody else's: who are we?
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

/** A line ended for good: asking who we are tells whether it was because nobody knows us any more. */
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
  for (const line of lines.keys()) line.leave(); // whoever is here next must not send what this one wrote
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

/** Ask for a session alone: for its sync's past and its agent, and for one that the list does not have. */
export async function lookUp(id: string): Promise<Sandbox> {
  const found = await api.status(id);
  learn(found);
  agentStateOf(id).value = found.agentStatus ?? undefined;
  note(id, ...(found.sync?.history ?? []));
  return found;
}

const stores = new Map<string, Outbox>();

/** What waits to be sent is its writer's, and for this session: not for another one of the same id, later. */
function outboxOf({ id, userId, createdAt }: Pick<Sandbox, "id" | "userId" | "createdAt">): Outbox {
  const store = stores.get(userId) ?? indexedDBOutbox(`holdfast ${userId}`);
  stores.set(userId, store);
  const name = `${id} ${createdAt}`;
  return { load: () => store.load(name), put: (_, item) => store.put(name, item), remove: (_, cid) => store.remove(name, cid) };
}

/** A session is gone for good, and what waited for it with it. */
async function discard(gone: Sandbox): Promise<void> {
  for (const [line, { id, createdAt }] of lines) if (id === gone.id && createdAt === gone.createdAt) line.leave();
  const outbox = outboxOf(gone);
  const items = await outbox.load("").catch(() => []);
  for (const { cid } of items) await outbox.remove("", cid).catch(() => undefined);
}

/** Open a session that is known (see `lookUp`); its socket stays until `leave`. */
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
    pull.value = undefined; // what is under way is said again
    if (!again) void lookUp(id).catch(() => undefined); // another process: it may be another one in what it says of itself
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

/** Whoever waits for the next try does not have to: all lines look for their gateway now. */
export function tryNow(): void {
  dispatchEvent(new Event("online"));
}

/** Calls in between are one call; a page that nobody sees is told four times a second. */
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
