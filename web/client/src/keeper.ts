/**
 * Writes one session's changes to its outbox, in order, one after the other. If the outbox fails (a private window, a
 * full disk) or does not answer, it reports that once and goes on in memory. Then a reload loses the items, and nothing
 * else is lost.
 */
import { memoryOutbox, type Outbox } from "./outbox.ts";
import type { Changes } from "./conversation.ts";
import type { Platform } from "./platform.ts";
import type { OutboxItem } from "./types.ts";

export const LOAD_WITHIN = 5_000; // nothing is sent before the stored items are known

export class Keeper {
  private last: Promise<unknown> = Promise.resolve();
  private outbox: Outbox;
  private session: string;
  private platform: Platform;
  private failed: (error: unknown) => void;

  constructor(outbox: Outbox, session: string, platform: Platform, failed: (error: unknown) => void) {
    this.outbox = outbox;
    this.platform = platform;
    this.session = session;
    this.failed = failed;
  }

  load(): Promise<OutboxItem[]> {
    const load = () =>
      new Promise<OutboxItem[]>((resolve, reject) => {
        const stop = this.platform.after(LOAD_WITHIN, () => reject("it does not answer"));
        this.outbox.load(this.session).then(resolve, reject).finally(stop);
      });
    return this.next(load).then((items) => items ?? []);
  }

  keep({ items }: Changes): void {
    for (const [cid, item] of items)
      void this.next(() => (item ? this.outbox.put(this.session, item) : this.outbox.remove(this.session, cid)));
  }

  private next<T>(act: () => Promise<T>): Promise<T | undefined> {
    const done = this.last.then(act).catch((error: unknown) => {
      if (this.outbox !== this.fallback) this.failed(error);
      this.outbox = this.fallback;
      return act().catch(() => undefined);
    });
    this.last = done;
    return done;
  }

  private fallback = memoryOutbox();
}
