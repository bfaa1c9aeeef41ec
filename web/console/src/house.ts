// What the whole page knows: who is here, which sessions there are, and the ones that are open.
//
// One watch keeps `sandboxes` true. A session that is open has its own socket, held by its handle; a handle that is left while
// something still waits to be sent stays behind until that is gone.
import { computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { connect, type Session, type SessionState, transcript, type Transcript, watch, type Watch } from "@holdfast/client";
import { api, ApiError, type Me, onSignedOut } from "./api.ts";
import type { Sandbox, SyncTransition } from "./sandbox.ts";

/** undefined: not asked yet; null: nobody. */
export const me: Signal<Me | null | undefined> = signal(undefined);
/** undefined until the first list came. */
export const sandboxes: Signal<ReadonlyMap<string, Sandbox> | undefined> = signal(undefined);
/** Of the watch: whether the list is live. */
export const connection: Signal<SessionState> = signal({ phase: "connecting", attempt: 0 });

const SYNCS_KEPT = 200;

export interface SessionHandle {
  readonly id: string;
  readonly client: Session;
  readonly transcript: Transcript;
  /** The newest that is known of it; stays what it was when the session is gone. */
  readonly sandbox: ReadonlySignal<Sandbox>;
  /** Steps of its sync, oldest first, at most 200: those before this visit, then live. */
  readonly syncEvents: ReadonlySignal<readonly SyncTransition[]>;
  readonly state: ReadonlySignal<SessionState>;
  leave(): void;
}

const syncs = new Map<string, Signal<readonly SyncTransition[]>>();
const getToken = async (): Promise<string> => (await api.token()).token;
let watching: Watch | undefined;

function identity(): { getToken?: () => Promise<string> } {
  return me.value?.tokens ? { getToken } : {};
}

export function learn(sandbox: Sandbox): void {
  sandboxes.value = new Map(sandboxes.value ?? []).set(sandbox.id, sandbox);
}

function forget(id: string): void {
  const rest = new Map(sandboxes.value ?? []);
  if (rest.delete(id)) sandboxes.value = rest;
}

/** Ask who is here, and begin to watch if it is somebody. */
export async function arrive(): Promise<void> {
  try {
    me.value = await api.me();
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 401) throw error;
    me.value = null;
    return;
  }
  if (!watching) startWatching();
}

function startWatching(): void {
  const own = watch({ url: location.origin, ...identity() });
  watching = own;
  own.on("state", (state) => (connection.value = state));
  own.on("sandboxes", ({ sandboxes: all }) => (sandboxes.value = new Map((all as unknown as Sandbox[]).map((one) => [one.id, one]))));
  own.on("sandbox", ({ sandbox }) => learn(sandbox as unknown as Sandbox));
  own.on("gone", ({ id }) => forget(id));
  own.on("sync", ({ id, ...step }) => note(id, step as unknown as SyncTransition));
}

function stopWatching(): void {
  watching?.leave();
  watching = undefined;
}

onSignedOut(() => {
  if (me.value) me.value = null;
  stopWatching();
});

export async function signIn(token: string): Promise<void> {
  await api.signIn(token);
  await arrive();
}

export async function signOut(): Promise<void> {
  await api.signOut();
  stopWatching();
  sandboxes.value = undefined;
  me.value = null;
}

function stepsOf(id: string): Signal<readonly SyncTransition[]> {
  const known = syncs.get(id) ?? signal<readonly SyncTransition[]>([]);
  syncs.set(id, known);
  return known;
}

function note(id: string, step: SyncTransition): void {
  const steps = stepsOf(id);
  steps.value = [...steps.value, step].slice(-SYNCS_KEPT);
}

/** Open a session that is known (see `learn`); its socket stays until `leave`. */
export function openSession(first: Sandbox): SessionHandle {
  const { id } = first;
  const client = connect({ url: location.origin, session: id, ...identity() });
  const state = signal<SessionState>(client.state);
  client.on("state", (next) => (state.value = next));
  let last = first;
  const sandbox = computed(() => (last = sandboxes.value?.get(id) ?? last));
  return { id, client, transcript: transcript(client), sandbox, syncEvents: stepsOf(id), state, leave: () => client.leave() };
}
