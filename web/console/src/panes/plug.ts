// Pulls one plug and watches the consequences: the shell around `proof`. Every number comes from the client (its
// outbox, its positions) or from the gateway's history; nothing is assumed.
import { type Signal, signal } from "@preact/signals";
import type { Sent, StoredRecord, TerminalChannel } from "@holdfast/client";
import { api, ApiError } from "../api.ts";
import type { SessionHandle } from "../house.ts";
import { heldChannels } from "./held.ts";
import { type Account, account, type Position, type Resumed, resumed } from "./proof.ts";
import { reasonIn } from "./words.tsx";

export type Plug = "cut" | "kill-agent" | "kill-bridge" | "pause-store";

export const PAUSE_SECONDS = 10;
const MESSAGES = 3;
const PATIENCE_MS = 90_000;
const TERMINAL_PATIENCE_MS = 15_000; // after everything else: a terminal that only views may never come back by itself
const QUIET_MS = 400; // between reading history and comparing: frames under way have come then
const TRIES = 8;
const PAGE = 1000;

export interface Step {
  at: number; // ms since the plug was pulled
  words: string;
  tone: "plain" | "good" | "warn" | "bad";
}

export interface Terminal {
  name: string;
  before: Position;
  how: Resumed | null; // null: its connection was never lost
}

export interface Run {
  plug: Plug;
  at: number;
  steps: readonly Step[];
  sent: number;
  stored: number; // so far, as the gateway says
  refused: number;
  terminals: readonly Terminal[];
  account: Account | null; // set at the end
  over: boolean;
}

/** Pull it. The returned object changes as things happen, until it is `over`; `stop` ends the watching. */
export function pull(session: SessionHandle, plug: Plug, withMessages: boolean): { run: Signal<Run>; stop: () => void } {
  const at = Date.now();
  const run = signal<Run>({ plug, at, steps: [], sent: 0, stored: 0, refused: 0, terminals: [], account: null, over: false });
  const change = (what: Partial<Run>): void => {
    run.value = { ...run.peek(), ...what };
  };
  const step = (words: string, tone: Step["tone"] = "plain"): void => {
    const { steps } = run.peek();
    if (steps.at(-1)?.words !== words) change({ steps: [...steps, { at: Date.now() - at, words, tone }] });
  };
  const cids: string[] = [];
  const stops: (() => void)[] = [];
  let stopped = false;
  const stop = (): void => {
    stopped = true;
    for (const each of stops.splice(0)) each();
  };

  const send = (): void => {
    if (!withMessages || cids.length) return;
    for (let number = 1; number <= MESSAGES; number += 1) follow(session.client.send(`Message ${number} of ${MESSAGES}, sent while the plug was out`));
    step(`${MESSAGES} messages sent into it`);
  };
  const follow = ({ cid, stored, delivered }: Sent): void => {
    cids.push(cid);
    change({ sent: cids.length });
    const counted = (what: "stored" | "refused") => (): void => {
      change({ [what]: run.peek()[what] + 1 });
      const { stored: so, refused, sent } = run.peek();
      if (so + refused === MESSAGES && sent === MESSAGES) step(refused ? `${so} stored, ${refused} refused` : `All ${so} are stored`, refused ? "bad" : "good");
    };
    stored.then(counted("stored"), counted("refused"));
    delivered.catch(() => {}); // the chat shows it
  };

  const back = watchReturn(session, plug, step, stops, send);
  for (const [name, channel] of heldChannels()) watchTerminal(name, channel, plug, run, change, step, stops);

  const proceed = async (): Promise<void> => {
    step(DOING[plug]);
    try {
      await api.demo(session.id, plug, plug === "pause-store" ? { seconds: PAUSE_SECONDS } : {});
    } catch (error) {
      // A cut may take the answer with it; a refusal is different.
      const refusal = error instanceof ApiError && error.status !== 0;
      if (refusal) {
        step(error.status === 404 ? "This gateway pulls no plugs: it was started without HOLDFAST_DEMO=true." : reasonIn(error), "bad");
        change({ over: true });
        return stop();
      }
    }
    send();
    const deadline = Date.now() + PATIENCE_MS;
    await Promise.race([back, waitFor(() => stopped || Date.now() > deadline)]);
    await waitFor(() => stopped || Date.now() > deadline || settled(run.peek()));
    const later = Math.min(deadline, Date.now() + TERMINAL_PATIENCE_MS);
    await waitFor(() => stopped || Date.now() > later || returned(run.peek()));
    if (stopped) return;
    if (Date.now() > deadline) step("Not everything was back in time: this is how it stands.", "warn");
    change({ account: await compare(session, cids), over: true });
    stop();
  };
  void proceed();
  return { run, stop };
}

const DOING: Record<Plug, string> = {
  cut: "Every socket of this session is cut, without a word",
  "kill-agent": "The agent is killed (SIGKILL)",
  "kill-bridge": "The bridge is killed (SIGKILL)",
  "pause-store": `The store accepts no writes for ${PAUSE_SECONDS} s`,
};

const settled = (run: Run): boolean => run.stored + run.refused >= run.sent;
const returned = (run: Run): boolean => run.terminals.every((each) => each.how === null || each.how.how !== "away");

async function waitFor(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 100));
}

/** Resolves when the pulled part is back. */
function watchReturn(session: SessionHandle, plug: Plug, step: (words: string, tone?: Step["tone"]) => void, stops: (() => void)[], send: () => void): Promise<void> {
  const { client } = session;
  return new Promise((resolve) => {
    let gone = false;
    stops.push(
      client.on("state", ({ phase }) => {
        if (phase !== "online" && !gone) {
          gone = true;
          step("The chat lost its connection", "warn");
          if (plug === "cut") send();
        } else if (phase === "online" && gone) {
          gone = false;
          step("The chat is back", "good");
          if (plug === "cut") resolve();
        }
      }),
      client.on("welcome", ({ first }) => {
        if (first || (plug !== "kill-agent" && plug !== "kill-bridge")) return;
        step("A new agent process runs", "good");
        resolve();
      }),
      client.on("status", ({ status, sandboxStatus }) => {
        if (status === "agent_exited") step("The gateway noticed that the agent is gone", "warn");
        if (sandboxStatus === "disconnected" && plug === "kill-bridge") step("The gateway lost the sandbox", "warn");
        if (sandboxStatus === "connected" && plug === "kill-bridge") step("The sandbox is back", "good");
      }),
    );
    if (plug === "pause-store") resolve(); // it is back when the sent messages are stored
  });
}

function watchTerminal(name: string, channel: TerminalChannel, plug: Plug, run: Signal<Run>, change: (what: Partial<Run>) => void, step: (words: string, tone?: Step["tone"]) => void, stops: (() => void)[]): void {
  let before = channel.position;
  if (!before) return;
  let away = false;
  const put = (how: Resumed | null): void => {
    const rest = run.peek().terminals.filter((each) => each.name !== name);
    change({ terminals: [...rest, { name, before: before as Position, how }] });
  };
  put(plug === "kill-bridge" ? { how: "away" } : null); // the program ends with the bridge, though the socket stays
  const told = (how: Resumed): void => {
    put(how);
    if (how.how === "exactly") step(`Terminal ${name} went on after byte ${how.offset.toLocaleString("en")}`, "good");
    else if (how.how === "redrawn") step(`Terminal ${name} was redrawn`, "warn");
    else if (how.how === "another") step(`Terminal ${name} runs another program now`, "warn");
  };
  stops.push(
    channel.on("state", ({ phase }) => {
      if (phase === "online" || away) return;
      away = true;
      before = channel.position ?? before;
      put({ how: "away" });
    }),
    channel.on("ready", ({ epoch, goesOn, absent }) => {
      if (!away) return;
      away = false;
      if (absent) return put({ how: "away" });
      const position = channel.position;
      told(resumed(before as Position, goesOn && position ? position : { epoch, offset: position?.offset ?? 0 }, !goesOn));
    }),
    channel.on("reset", ({ epoch }) => {
      if (epoch !== before?.epoch) told({ how: "another", offset: channel.position?.offset ?? 0 });
    }),
  );
}

/** The page's items against the stored records. An answer may be under way: what differs is compared again. */
async function compare(session: SessionHandle, cids: readonly string[]): Promise<Account> {
  let found: Account | null = null;
  for (let attempt = 0; attempt < TRIES; attempt += 1) {
    const shown = session.transcript.items;
    const first = Math.min(...shown.flatMap((item) => ("seq" in item && item.seq ? [item.seq] : [])));
    const { records, lastSeq } = await historyFrom(session, Number.isFinite(first) ? first : 1);
    await new Promise((resolve) => setTimeout(resolve, QUIET_MS));
    const now = session.transcript.items.filter((item) => !("seq" in item) || item.seq === undefined || item.seq <= lastSeq);
    found = account(cids, now, records);
    if (found.lost + found.twice + found.missing + found.surplus === 0) return found;
  }
  return found as Account;
}

async function historyFrom(session: SessionHandle, first: number): Promise<{ records: StoredRecord[]; lastSeq: number }> {
  const records: StoredRecord[] = [];
  let after = first - 1;
  for (;;) {
    const page = await session.client.history({ after, limit: PAGE });
    records.push(...page.messages);
    after = page.messages.at(-1)?.seq ?? page.lastSeq;
    if (page.messages.length === 0 || after >= page.lastSeq) return { records, lastSeq: page.lastSeq };
  }
}
