// Counts what happened to everything when a plug was pulled, from the page's items and the gateway's stored records.
// Pure; it trusts neither.

export interface Shown {
  kind: string;
  seq?: number;
  cid?: string;
  status?: string;
}

export interface Stored {
  seq: number;
  cid?: string | null;
  type?: string;
}

export interface Account {
  sent: number; // messages that this page sent since the plug was pulled
  stored: number; // of those: in the gateway's history, once
  twice: number; // of those: in it more than once
  waiting: number; // of those: not in it, and the page still holds them, to send again
  refused: number; // of those: not in it, and the page says so
  lost: number; // of those: nowhere
  records: number; // what the gateway has stored in the part of the conversation that the page shows
  missing: number; // of those: not in the page
  surplus: number; // in the page, under a number that the gateway does not have
}

// Items that the page shows as part of the question that they answer.
const ANSWERS = new Set(["permission_response", "question_answer"]);
const WAITS = new Set(["queued", "sent", "sending", "accepted"]);
const REFUSED = new Set(["refused", "expired", "withdrawn"]);

/** `cids` were sent; `shown` is the transcript; `stored` is history, from the first number that the transcript shows on. */
export function account(cids: readonly string[], shown: readonly Shown[], stored: readonly Stored[]): Account {
  const times = new Map<string, number>();
  for (const record of stored) if (record.cid) times.set(record.cid, (times.get(record.cid) ?? 0) + 1);
  const status = new Map(shown.filter((item) => item.cid).map((item) => [item.cid as string, item.status ?? ""]));
  const result = { sent: cids.length, stored: 0, twice: 0, waiting: 0, refused: 0, lost: 0 };
  for (const cid of cids) {
    const found = times.get(cid) ?? 0;
    if (found === 1) result.stored += 1;
    else if (found > 1) result.twice += 1;
    else if (WAITS.has(status.get(cid) ?? "")) result.waiting += 1;
    else if (REFUSED.has(status.get(cid) ?? "")) result.refused += 1;
    else result.lost += 1;
  }
  const inPage = new Set(shown.flatMap((item) => (item.seq === undefined ? [] : [item.seq])));
  const inStore = new Set(stored.filter((record) => !ANSWERS.has(record.type ?? "")).map((record) => record.seq));
  return {
    ...result,
    records: inStore.size,
    missing: [...inStore].filter((seq) => !inPage.has(seq)).length,
    surplus: [...inPage].filter((seq) => !inStore.has(seq)).length,
  };
}

export interface Position {
  epoch: string;
  offset: number;
}

export type Resumed =
  | { how: "exactly"; offset: number }
  | { how: "redrawn"; offset: number } // the ring no longer had the rest, or this viewer had fallen behind: a picture came
  | { how: "another"; offset: number } // the program is another one
  | { how: "away" }; // not back yet, or nothing ran

/** How a terminal came back: it was at `before`; `ready` is the gateway's first position, `reset` whether a picture
 * followed. */
export function resumed(before: Position, ready: Position | null, reset: boolean): Resumed {
  if (!ready || !ready.epoch) return { how: "away" };
  if (ready.epoch !== before.epoch) return { how: "another", offset: ready.offset };
  return { how: !reset && ready.offset === before.offset ? "exactly" : "redrawn", offset: ready.offset };
}
