/** The promises that the sender of a message may wait for. A page that ignores them gets no unhandled rejection. */
import type { Fate } from "./conversation.ts";
import { HoldfastError } from "./events.ts";
import type { Sent } from "./types.ts";

const WHY_NOT: Record<string, string> = {
  outbox_full: "too much waits to be sent",
  too_long: "longer than the gateway takes",
  invalid: "a message is a string or an array of typed parts, under a cid of its own",
  unknown_cid: "there is no such message to send again",
};

interface Pledge {
  stored(told: { seq: number; status?: string }): void;
  delivered(told: { seq: number }): void;
  broken(error: HoldfastError): void;
}

export class Pledges {
  private open = new Map<string, Pledge>();
  private half = new Set<string>();

  make(cid: string): Sent {
    const [stored, keepStored, breakStored] = promise<{ seq: number; status?: string }>();
    const [delivered, keepDelivered, breakDelivered] = promise<{ seq: number }>();
    const broken = (error: HoldfastError) => (breakStored(error), breakDelivered(error));
    this.open.set(cid, { stored: keepStored, delivered: keepDelivered, broken });
    return { cid, stored, delivered };
  }

  settle(fate: Fate): void {
    const pledge = this.open.get(fate.cid);
    if (!pledge) return;
    if (fate.to === "failed") {
      if (fate.seq !== undefined) pledge.stored({ seq: fate.seq, status: fate.code });
      pledge.broken(pledgeError(fate.code, fate.error)); // a kept promise cannot be broken any more
    } else if (fate.to === "stored") pledge.stored({ seq: fate.seq, status: fate.status });
    else pledge.delivered({ seq: fate.seq });
    // Delivered may come before stored, if the store follows later: the pledge stays until both have come.
    if (fate.to === "failed" || this.half.delete(fate.cid)) this.open.delete(fate.cid);
    else this.half.add(fate.cid);
  }
}

export function pledgeError(code: string, error?: string): HoldfastError {
  return new HoldfastError(code, error ?? WHY_NOT[code] ?? code);
}

function promise<T>(): [made: Promise<T>, kept: (told: T) => void, broken: (error: HoldfastError) => void] {
  let keep!: (told: T) => void, refuse!: (error: HoldfastError) => void;
  const made = new Promise<T>((kept, broken) => ((keep = kept), (refuse = broken)));
  made.catch(() => {});
  return [made, keep, refuse];
}
