// How much of a session is unread in this browser: its last record's number less the last one seen.
import { signal } from "@preact/signals";
import { kept, own } from "./kept.ts";
import type { Sandbox } from "./sandbox.ts";

type Seen = Readonly<Record<string, number>>;

let name = "";
const seen = signal<Seen | undefined>(undefined);

/** The user who is reading. */
export function seeAs(user: string): void {
  name = own("seen", user);
  seen.value = load();
}

function load(): Seen | undefined {
  try {
    const read: unknown = JSON.parse(kept.get(name) ?? "");
    return typeof read === "object" && read !== null ? (read as Seen) : undefined;
  } catch {
    return undefined;
  }
}

addEventListener("storage", (event) => {
  if (name && event.key === `holdfast.${name}`) seen.value = load() ?? seen.value;
});

function keep(next: Seen): void {
  seen.value = next;
  kept.set(name, JSON.stringify(next));
}

export const unreadOf = (sandbox: Sandbox): number => (seen.value ? Math.max(0, sandbox.lastSeq - (seen.value[sandbox.id] ?? 0)) : 0);

export function markSeen(id: string, seq: number): void {
  if ((seen.peek()?.[id] ?? -1) < seq) keep({ ...seen.peek(), [id]: seq });
}

/** The whole list came: on a first visit all of it counts as seen, and gone sessions are forgotten. */
export function settleSeen(all: Iterable<Sandbox>): void {
  const before = seen.peek();
  keep(Object.fromEntries([...all].map((one) => [one.id, before ? Math.min(before[one.id] ?? 0, one.lastSeq) : one.lastSeq])));
}
