// A workspace's syncs as rounds. Pure.
//
// The gateway tells transitions: "it is `syncing` now, since then". A *round* is what people mean by "a sync": from the
// moment that somebody asked (`pending`, or `syncing` if it was forced) to the moment that it is over: `idle` (kept),
// `failed` (gave up), `unrestored` (the sandbox ended in the middle). Its *spans* are how long each state took.
//
// Transitions come twice: once as history, once as they happen; and history is asked for again after every gap. So they
// are merged by what they are, never appended blindly.

export type SyncState = "unrestored" | "idle" | "pending" | "syncing" | "flushing" | "failed";

export interface Transition {
  state: SyncState;
  generation: number | null;
  at: string;
  attempt?: number;
  reason?: string;
}

export interface Span {
  state: SyncState;
  from: number;
  to: number | null; // null: it lasts
  attempt?: number;
}

export type Outcome = "running" | "kept" | "unchanged" | "failed" | "lost";

export interface Round {
  key: string;
  from: number;
  to: number | null;
  spans: Span[];
  outcome: Outcome;
  generation: number | null;
  attempts: number;
  reason?: string;
}

/** How many transitions a page keeps of one session: some hours of a busy one. */
export const KEPT = 500;

const STATES = new Set<string>(["unrestored", "idle", "pending", "syncing", "flushing", "failed"]);
const RESTS = new Set<SyncState>(["idle", "failed", "unrestored"]);

/** The transition in `told`, or null if this page does not understand it. */
export function readTransition(told: unknown): Transition | null {
  if (typeof told !== "object" || told === null) return null;
  const { state, generation, at, attempt, reason } = told as Record<string, unknown>;
  if (typeof state !== "string" || !STATES.has(state) || typeof at !== "string" || Number.isNaN(Date.parse(at))) return null;
  return {
    state: state as SyncState,
    generation: typeof generation === "number" ? generation : null,
    at,
    ...(typeof attempt === "number" ? { attempt } : {}),
    ...(typeof reason === "string" && reason ? { reason } : {}),
  };
}

/** Both, each transition once, oldest first, the newest `KEPT`. Transitions of the same millisecond keep their order. */
export function merged(known: readonly Transition[], more: readonly Transition[]): Transition[] {
  const seen = new Map<string, Transition>();
  for (const each of [...known, ...more]) {
    const key = `${each.at} ${each.state} ${each.attempt ?? ""} ${each.generation ?? ""}`;
    if (!seen.has(key)) seen.set(key, each);
  }
  const all = [...seen.values()].sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
  return all.slice(-KEPT);
}

/** The rounds in `transitions` (oldest first), the newest round first. */
export function rounds(transitions: readonly Transition[]): Round[] {
  const found: Round[] = [];
  let open: Round | null = null;
  let kept: number | null = null; // the generation before this round
  let generationKnown = false;
  for (const [index, each] of transitions.entries()) {
    const at = Date.parse(each.at);
    const last: Span | undefined = open?.spans.at(-1);
    if (last) last.to = at;
    if (RESTS.has(each.state)) {
      if (open) {
        open.to = at;
        open.reason = each.reason ?? open.reason;
        if (each.state === "idle") {
          open.outcome = generationKnown && each.generation === kept ? "unchanged" : "kept";
          open.generation = each.generation;
        } else open.outcome = each.state === "failed" ? "failed" : "lost";
        open = null;
      }
    } else {
      if (!open) {
        open = { key: `${each.at} ${index}`, from: at, to: null, spans: [], outcome: "running", generation: null, attempts: 0 };
        kept = each.generation;
        generationKnown = true;
        found.push(open);
      }
      open.spans.push({ state: each.state, from: at, to: null, ...(each.attempt ? { attempt: each.attempt } : {}) });
      open.attempts = Math.max(open.attempts, each.attempt ?? (each.state === "syncing" ? 1 : 0));
      if (each.reason) open.reason = each.reason;
    }
  }
  return found.reverse();
}

/** How long the round has taken in each state, in milliseconds, in the order in which it came to them. */
export function shares(round: Round, now: number): { state: SyncState; ms: number }[] {
  const sums = new Map<SyncState, number>();
  for (const span of round.spans) sums.set(span.state, (sums.get(span.state) ?? 0) + Math.max(0, (span.to ?? now) - span.from));
  return [...sums].map(([state, ms]) => ({ state, ms }));
}
