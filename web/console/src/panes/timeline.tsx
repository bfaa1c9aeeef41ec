// How a session's workspace is kept: the state of its sync, its rounds, their results.
import { type ReadonlySignal, type Signal, useComputed, useSignal, useSignalEffect } from "@preact/signals";
import { useRef } from "preact/hooks";
import { api } from "../api.ts";
import { connection } from "../house.ts";
import type { PaneProps } from "../session/pane.ts";
import { Badge } from "../ui/badge.tsx";
import { Button } from "../ui/button.tsx";
import { SyncIcon } from "../ui/icons.tsx";
import { attempt } from "../ui/toast.tsx";
import { clock, count, duration, preciseClock, size } from "./figures.ts";
import { Generations } from "./generations.tsx";
import "./panes.css";
import "./timeline.css";
import { merged, readTransition, type Round, rounds, shares, type SyncState, type Transition } from "./rounds.ts";
import { Empty } from "./words.tsx";

const STATIONS: [SyncState, string][] = [
  ["idle", "Everything is kept"],
  ["pending", "Something changed; waiting for more"],
  ["syncing", "Reading and sending what changed"],
  ["flushing", "Writing the new generation down"],
  ["failed", "Failed; the gateway tries again later"],
];
const RESTS: SyncState[] = ["idle", "failed", "unrestored"];
const DWELL_MS = 380; // a station is lit at least so long: most last a few milliseconds
const SHOWN_ROUNDS = 40;

export function TimelinePane({ session, shown }: PaneProps) {
  const before = useSignal<readonly Transition[]>([]);
  const now = useSignal(Date.now());
  const transitions = useComputed(() => merged(before.value, session.syncEvents.value.map(readTransition).filter((each) => each !== null)));
  const sync = useComputed(() => session.sandbox.value.sync);
  const all = useComputed(() => rounds(transitions.value));

  // The status has the steps of a cut: it is read at the start and whenever the line is back.
  useSignalEffect(() => {
    if (!shown.value || connection.value.phase !== "online") return;
    void api.status(session.id).then(
      (found) => {
        before.value = merged((found.sync?.history ?? []).map(readTransition).filter((each) => each !== null), before.peek());
      },
      () => {}, // the list and the chat say it if the gateway is away
    );
  });
  const busy = useComputed(() => all.value[0]?.outcome === "running");
  useSignalEffect(() => {
    if (!shown.value) return;
    const ticks = setInterval(() => (now.value = Date.now()), busy.value ? 100 : 1000);
    return () => clearInterval(ticks);
  });

  const lit = useLit(transitions, useComputed(() => sync.value?.state ?? "idle"));
  const asked = useSignal(false);
  const syncNow = async (): Promise<void> => {
    asked.value = true;
    await attempt(() => api.sync(session.id), "Syncing");
    asked.value = false;
  };
  const status = session.sandbox.value.status;
  const restore = readRestore(sync.value?.restore);

  return (
    <div class="pane-inside timeline" data-testid="timeline-pane">
      <div class="pane-scroll">
        <section class="sync-now" aria-label="Now">
          <div class="sync-head">
            <p class="sync-words" data-testid="sync-words" role="status">
              {inWords(lit.value.state, sync.value?.dirty ?? false, sync.value?.lastSuccess ?? null)}
            </p>
            <Button small kind="primary" icon={<SyncIcon />} busy={asked.value} disabled={status !== "running"} title={status === "running" ? "Keep the workspace as it is now" : "Only while its sandbox runs"} data-testid="sync-now" onClick={() => void syncNow()}>
              Sync now
            </Button>
          </div>
          <Stations lit={lit} now={now} />
          {lit.value.state === "failed" && sync.value?.lastError ? (
            <p class="pane-note tone-bad" data-testid="sync-error">
              {sync.value.lastError}
            </p>
          ) : null}
          {sync.value?.degraded ? (
            <p class="pane-note tone-warn" data-testid="sync-degraded">
              An older generation had to be restored: {sync.value.degraded}
            </p>
          ) : null}
          {restore ? (
            <div class="restore" data-testid="sync-restore">
              <span>
                Restoring generation {restore.generation}: {restore.files.toLocaleString("en")} of {count(restore.ofFiles, "file")}, {size(restore.bytes)} of {size(restore.ofBytes)}
              </span>
              <progress max={Math.max(1, restore.ofBytes || restore.ofFiles)} value={restore.ofBytes ? restore.bytes : restore.files} aria-label="Restored" />
            </div>
          ) : null}
        </section>
        <section aria-labelledby={`rounds-${session.id}`}>
          <h2 class="pane-heading" id={`rounds-${session.id}`}>
            Rounds <span class="pane-count">{all.value.length || ""}</span>
          </h2>
          {all.value.length === 0 ? null : <Legend />}
          {all.value.length === 0 ? (
            <Empty title="No sync yet">One begins two seconds after a file changes or an answer ends.</Empty>
          ) : (
            <ol class="rounds" data-testid="sync-rounds">
              {all.value.slice(0, SHOWN_ROUNDS).map((round) => (
                <RoundRow key={round.key} round={round} now={round.to === null ? now.value : round.to} transitions={transitions} />
              ))}
            </ol>
          )}
        </section>
        <Generations session={session} shown={shown} generation={useComputed(() => sync.value?.generation ?? null)} />
      </div>
    </div>
  );
}

interface Lit {
  state: SyncState;
  passed: readonly SyncState[]; // on the way there, in this round
  since: string | null; // null: it is only passed
}

/** The state to light now: every passed state gets its moment, and the newest is reached soon. */
function useLit(transitions: ReadonlySignal<readonly Transition[]>, current: ReadonlySignal<SyncState>): Signal<Lit> {
  const lit = useSignal<Lit>({ state: current.peek(), passed: [], since: null });
  const told = useRef<string | null>(null); // the last transition that was shown
  const queue = useRef<Transition[]>([]);
  const timer = useRef<ReturnType<typeof setTimeout> | null>(null);
  useSignalEffect(() => {
    const all = transitions.value;
    const at = all.findLastIndex((each) => keyOf(each) === told.current);
    // At the start nothing moves: old steps are not played.
    const last = all.at(-1);
    if (told.current !== null) queue.current.push(...all.slice(at + 1));
    else lit.value = { state: last?.state ?? current.value, passed: [], since: last?.at ?? null };
    if (last) told.current = keyOf(last);
    const step = (): void => {
      const next = queue.current.shift();
      if (next === undefined) {
        timer.current = null;
        return;
      }
      const { state, passed } = lit.peek();
      lit.value = { state: next.state, passed: RESTS.includes(next.state) ? [] : [...passed, state], since: queue.current.length ? null : next.at };
      timer.current = setTimeout(step, queue.current.length > 6 ? DWELL_MS / 4 : DWELL_MS);
    };
    if (timer.current === null) step();
  });
  return lit;
}

const keyOf = (each: Transition): string => `${each.at} ${each.state} ${each.attempt ?? ""}`;

function Stations({ lit, now }: { lit: ReadonlySignal<Lit>; now: ReadonlySignal<number> }) {
  const { state: current, passed, since } = lit.value;
  return (
    <ol class="stations" aria-label="States of a sync" data-testid="sync-stations" data-state={current}>
      {STATIONS.map(([state, meaning]) => (
        <li
          key={state}
          class={`station ${state}${state === current ? " lit" : ""}${passed.includes(state) ? " passed" : ""}`}
          aria-current={state === current ? "step" : undefined}
          title={meaning}
          data-testid={`station-${state}`}
        >
          <span class="station-dot" aria-hidden="true" />
          <span class="station-word">{state}</span>
          <span class="station-time">{state === current && since ? duration(Math.max(0, now.value - Date.parse(since))) : ""}</span>
        </li>
      ))}
    </ol>
  );
}

const TIMED: SyncState[] = ["pending", "syncing", "flushing"];

function Legend() {
  return (
    <p class="legend" aria-hidden="true">
      {TIMED.map((state) => (
        <span key={state}>
          <i class={`swatch ${state}`} /> {state}
        </span>
      ))}
    </p>
  );
}

function RoundRow({ round, now, transitions }: { round: Round; now: number; transitions: ReadonlySignal<readonly Transition[]> }) {
  const open = useSignal(false);
  const parts = shares(round, now);
  const whole = Math.max(1, parts.reduce((sum, part) => sum + part.ms, 0));
  const steps = open.value ? transitions.value.filter((each) => Date.parse(each.at) >= round.from && Date.parse(each.at) <= (round.to ?? Number.POSITIVE_INFINITY)) : [];
  return (
    <li class="round" data-testid="sync-round" data-outcome={round.outcome}>
      <button type="button" class="round-head" aria-expanded={open.value} onClick={() => (open.value = !open.value)}>
        <time class="round-at" dateTime={new Date(round.from).toISOString()}>
          {clock(round.from)}
        </time>
        <span class="round-bar" role="img" aria-label={parts.map((part) => `${part.state} ${duration(part.ms)}`).join(", ")}>
          {parts.map((part) => (
            <span key={part.state} class={`share ${part.state}`} style={{ flexGrow: part.ms / whole }} title={`${part.state} ${duration(part.ms)}`} />
          ))}
        </span>
        <span class="round-took">{duration(now - round.from)}</span>
        <Verdict round={round} />
      </button>
      {open.value ? (
        <ol class="steps">
          {steps.map((each, index) => (
            <li key={keyOf(each)} class="step">
              <time dateTime={each.at}>{preciseClock(each.at)}</time>
              <span class={`step-state ${each.state}`}>{each.state}</span>
              <span class="step-took">{took(steps, index)}</span>
              <span class="step-words">
                {[each.attempt && each.attempt > 1 ? `attempt ${each.attempt}` : "", each.generation !== null && each.state === "idle" ? `generation ${each.generation}` : "", each.reason ?? ""].filter(Boolean).join(": ")}
              </span>
            </li>
          ))}
        </ol>
      ) : null}
    </li>
  );
}

function took(steps: readonly Transition[], index: number): string {
  const [from, to] = [steps[index], steps[index + 1]];
  return from && to ? duration(Date.parse(to.at) - Date.parse(from.at)) : "";
}

function Verdict({ round }: { round: Round }) {
  const attempts = round.attempts > 1 ? `, ${round.attempts} attempts` : "";
  switch (round.outcome) {
    case "kept":
      return <Badge tone="good">generation {round.generation}{attempts}</Badge>;
    case "unchanged":
      return <Badge tone="plain">nothing new{attempts}</Badge>;
    case "failed":
      return <Badge tone="bad" title={round.reason}>failed{attempts}</Badge>;
    case "lost":
      return <Badge tone="warn" title={round.reason}>sandbox ended</Badge>;
    default:
      return <Badge tone="info" dot moving>{round.spans.at(-1)?.state ?? "running"}</Badge>;
  }
}

function inWords(state: SyncState, dirty: boolean, lastSuccess: string | null): string {
  if (state === "unrestored") return "Nothing is kept until its files are back.";
  if (state === "failed") return "The last try failed. The gateway tries again.";
  if (state !== "idle") return STATIONS.find(([each]) => each === state)?.[1].concat(".") ?? "";
  if (!lastSuccess) return dirty ? "Nothing is kept yet." : "Nothing to keep yet.";
  return dirty ? `Kept at ${clock(lastSuccess)}; something changed since.` : `Everything is kept, as of ${clock(lastSuccess)}.`;
}

interface Restore {
  generation: number;
  files: number;
  ofFiles: number;
  bytes: number;
  ofBytes: number;
}

function readRestore(told: unknown): Restore | null {
  if (typeof told !== "object" || told === null) return null;
  const number = (name: string): number => {
    const value = (told as Record<string, unknown>)[name];
    return typeof value === "number" ? value : 0;
  };
  return { generation: number("generation"), files: number("files"), ofFiles: number("ofFiles"), bytes: number("bytes"), ofBytes: number("ofBytes") };
}
