/**
 * One session's hold on its outbox: what it is told to keep is kept in that order, one thing after the other. If the outbox
 * fails (a private window, a full disk), it says so once and goes on in memory; nothing that is open is lost by that, only
 * its survival of a reload.
 */
import { memoryOutbox, type Outbox } from "./outbox.ts";
import type { Changes } from "./conversation.ts";
import type { OutboxItem } from "./types.ts";

export class Keeper {
  private last: Promise<unknown> = Promise.resolve();
  private outbox: Outbox;
  private session: string;
  private failed: (error: unknown) => void;

  constructor(outbox: Outbox, session: string, failed: (error: unknown) => void) {
    this.outbox = outbox;
    this.session = session;
    this.failed = failed;
  }

  load(): Promise<OutboxItem[]> {
    return this.next(() => this.outbox.load(this.session)).then((items) => items ?? []);
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
