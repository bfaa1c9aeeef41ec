/**
 * What one page still has to send to a session's gateway, and what it knows of it. Pure: frames and the time go in,
 * frames to send come out, and `take` returns the changes since its last call.
 *
 * A frame with a `cid` is an *item* until it is settled:
 *
 *   queued -> sent -> (accepted ->) stored     it leaves the outbox, and is watched until the agent has it
 *                  -> refused | expired        it stays, until somebody resends it under a new cid or withdraws it
 *                  -> cancelled                it leaves the outbox: somebody wanted it so
 *
 * Nothing is sent before `welcome`. On every new connection everything unsettled is sent again, oldest first, each with
 * its own cid: the gateway knows which it has. Watched items are sent again, too, because a receipt may have been
 * missed.
 *
 * Temporary refusals are retried here: `owner_moved` on the next connection, `storage_unavailable` and `busy` after a
 * pause, up to `TRIES` times; meanwhile no younger item goes out. `buffer_full` and `storage_full` are not retried: a
 * sandbox may be away, or a disk full, for hours, so a person should decide. Every other reason is final. A refused
 * answer to a permission or a question is dropped: somebody else was quicker, or nobody asks any more.
 *
 * Each agent frame is heard once: `offset` is the last one of `epoch`.
 *
 * Bounds: `MOST_ITEMS` and `MOST_BYTES` in the outbox, `MOST_WATCHED` beside it.
 */
import { isCount, words } from "./frames.ts";
import { pause } from "./returning.ts";
import type { Json, OutboxItem } from "./types.ts";

export const MOST_ITEMS = 500;
export const MOST_BYTES = 4 << 20;
export const LONGEST_FRAME = 1 << 20;
export const MOST_WATCHED = 1000;
export const TRIES = 6;
const CANCELLED = "cancelled";
const AGAIN_FIRST = 4; // the exponent to begin with: a busy gateway gets seconds, not milliseconds

/** The end of an item, or a step towards it. */
export type Fate =
  | { cid: string; to: "stored"; seq: number; status?: string }
  | { cid: string; to: "delivered"; seq: number }
  /** With `seq`: it is stored, and will not be delivered. */
  | { cid: string; to: "failed"; code: string; error?: string; seq?: number };

/** Changes: items to keep in the outbox or to forget (undefined), and fates to report. */
export interface Changes {
  items: Map<string, OutboxItem | undefined>;
  fates: Fate[];
}

interface Entry {
  item: OutboxItem;
  bytes: number;
  unsent: boolean;
  tries: number;
  known: boolean; // whether the agent took it, or never will
  failed: boolean; // the sender heard so, and hears nothing more
}

export class Conversation {
  epoch = "";
  offset = 0;
  /** Nothing is sent before this time. */
  hold: number | undefined;
  private items = new Map<string, Entry>();
  private watched = new Map<string, Entry>(); // stored, and not known to be delivered
  private settled = new Set<string>(); // settled lately: not to be adopted from another tab's outbox
  private bytes = 0;
  private changes: Changes = { items: new Map(), fates: [] };

  get outbox(): OutboxItem[] {
    return [...this.items.values()].map(({ item }) => item);
  }

  /** The changes since the last call. */
  take(): Changes {
    const { changes } = this;
    this.changes = { items: new Map(), fates: [] };
    return changes;
  }

  /** Take a frame that must arrive. Returns the reason if it cannot. */
  offer(frame: OutboxItem["frame"], cid: string, order: number): string | undefined {
    const bytes = size(frame);
    if (bytes > LONGEST_FRAME) return "too_long";
    if (this.items.size >= MOST_ITEMS || this.bytes + bytes > MOST_BYTES) return "outbox_full";
    if (this.items.has(cid) || this.watched.has(cid)) return "invalid";
    this.keep(this.add({ cid, frame, order, stage: "queued" }, bytes), {});
    return undefined;
  }

  /** Add the items of the stored outbox, from an earlier visit or another tab. The `first` time all of them count as
   * older than the items here, whatever the clock said then. Returns the largest order. */
  adopt(items: readonly OutboxItem[], first = false): number {
    let newest = Math.max(0, ...items.map(({ order }) => order));
    if (first) for (const entry of this.items.values()) this.keep(entry, { order: (newest = Math.max(newest + 1, entry.item.order)) });
    const found = items.filter(({ cid }) => !this.items.has(cid) && !this.watched.has(cid) && !this.settled.has(cid));
    for (const item of found) this.add(item, size(item.frame));
    if (found.length) this.items = new Map([...this.items].sort(([, a], [, b]) => a.item.order - b.item.order));
    return newest;
  }

  private add(item: OutboxItem, bytes: number): Entry {
    const entry = { item, bytes, unsent: false, tries: 0, known: false, failed: false };
    entry.failed = isOver(entry);
    entry.unsent = !entry.failed;
    this.items.set(item.cid, entry);
    this.bytes += bytes;
    return entry;
  }

  /** Take back an item that was refused, has expired, or was never sent; returns its frame. */
  withdraw(cid: string): OutboxItem["frame"] | undefined {
    const entry = this.items.get(cid);
    if (!entry || entry.item.stage === "sent" || entry.item.stage === "accepted") return undefined;
    if (entry.item.stage === "queued") this.fail(entry, "withdrawn");
    this.remove(entry);
    return entry.item.frame;
  }

  // the connection

  /** The query that lets the gateway resume from here. */
  position(): Record<string, string | number> {
    return this.epoch ? { epoch: this.epoch, offset: this.offset } : {};
  }

  /** A connection was welcomed: everything unsettled must be sent on it. */
  connected(): void {
    this.hold = undefined;
    for (const entry of this.watched.values()) entry.unsent = true;
    for (const entry of this.items.values()) entry.unsent = !isOver(entry);
  }

  /** The next frame to send, oldest first. */
  next(now: number): Json | undefined {
    if (this.hold !== undefined && now < this.hold) return undefined;
    this.hold = undefined;
    for (const entries of [this.watched, this.items])
      for (const entry of entries.values())
        if (entry.unsent) {
          entry.unsent = false;
          if (entry.item.stage === "queued") this.keep(entry, { stage: "sent" });
          return { ...entry.item.frame, cid: entry.item.cid };
        }
    return undefined;
  }

  /** The connection ended because a frame was too long: that can only be the longest one. False if none was sent. */
  tooLong(): boolean {
    const sent = [...this.items.values()].filter(({ item, unsent }) => item.stage === "sent" && !unsent);
    const longest = sent.reduce<Entry | undefined>((most, each) => (most && most.bytes >= each.bytes ? most : each), undefined);
    if (longest) this.refuse(longest, "too_long", "longer than the gateway takes");
    return longest !== undefined;
  }

  // // incoming frames

  /** Note a frame's facts. False if it came before, or says nothing, and must not be passed on. */
  heard(frame: Json, now: number, random: number): boolean {
    const { cid, seq, _offset: offset } = frame;
    if (frame.type === "welcome") {
      this.epoch = words(frame.epoch) ?? "";
      this.offset = isCount(frame.offset) ? frame.offset : 0;
    } else if (offset !== undefined) {
      if (!isCount(offset) || offset <= this.offset) return false;
      this.offset = offset;
    } else if (typeof cid === "string") {
      const entry = this.items.get(cid) ?? this.watched.get(cid);
      if (!entry) return true;
      if (frame.type === "nack") this.nacked(entry, words(frame.reason) ?? "", words(frame.error), now, random);
      else if (isCount(seq)) this.moved(entry, frame, seq);
    }
    return true;
  }

  /** Whether the item goes on in spite of a nack that was just heard: it is sent again, or it is stored. */
  goesOn(cid: string): boolean {
    const entry = this.items.get(cid);
    return this.watched.has(cid) || (entry !== undefined && !isOver(entry));
  }

  private moved(entry: Entry, frame: Json, seq: number): void {
    const { cid } = entry.item;
    switch (frame.type) {
      case "ack":
        if (frame.stage === "accepted") {
          const waits = entry.item.stage === "queued" || entry.item.stage === "sent";
          if (waits && this.items.has(cid)) this.keep(entry, { stage: "accepted", seq });
        } else if (this.items.has(cid)) {
          this.tell(entry, { cid, to: "stored", seq, status: words(frame.status) });
          if (entry.item.stage === "expired") break; // it was reported expired before the store had it
          this.remove(entry);
          if (!entry.known && !entry.failed) this.watch(entry);
        }
        this.became(entry, words(frame.status), seq);
        break;
      case "receipt":
        this.became(entry, "delivered", seq);
        break;
      case "expired":
      case "interrupted":
        this.became(entry, frame.reason === CANCELLED ? CANCELLED : frame.type, seq);
    }
  }

  /** The record has this status now. */
  private became(entry: Entry, status: string | undefined, seq: number): void {
    const { cid, stage } = entry.item;
    if (entry.known) return;
    if (status === "delivered") {
      entry.known = true;
      this.tell(entry, { cid, to: "delivered", seq });
      this.watched.delete(cid);
      if (entry.failed && this.items.has(cid)) this.remove(entry); // the agent has it: nobody should send it anew
    } else if (status === "interrupted" || status === CANCELLED) {
      entry.known = true;
      this.fail(entry, status, undefined, seq);
      this.watched.delete(cid);
      if (this.items.has(cid)) this.remove(entry);
    } else if (status === "expired" && stage !== "expired") {
      this.fail(entry, status, undefined, seq);
      this.watched.delete(cid);
      if (!this.items.has(cid)) {
        this.items.set(cid, entry);
        this.bytes += entry.bytes;
      }
      entry.unsent = false;
      this.keep(entry, { stage: "expired", seq });
    }
  }

  private nacked(entry: Entry, reason: string, error: string | undefined, now: number, random: number): void {
    const { cid } = entry.item;
    if (this.watched.has(cid)) {
      if (reason === "rejected") this.fail(entry, reason, error), this.watched.delete(cid);
      return; // it is stored; only its later fate could not be reported
    }
    if (isOver(entry)) return;
    if (reason === "owner_moved") return; // close code 4409 follows: sent again on the next connection
    if ((reason === "storage_unavailable" || reason === "busy") && entry.tries < TRIES) {
      this.hold = now + 500 + pause(AGAIN_FIRST + entry.tries, random);
      entry.tries += 1;
      entry.unsent = true;
    } else this.refuse(entry, reason || "refused", error);
  }

  private refuse(entry: Entry, reason: string, error: string | undefined): void {
    const { frame } = entry.item;
    entry.unsent = false;
    this.fail(entry, reason, error);
    if (frame.type === "message") this.keep(entry, { stage: "refused", reason, error });
    else this.remove(entry);
  }

  private watch(entry: Entry): void {
    this.watched.set(entry.item.cid, entry);
    trim(this.watched, MOST_WATCHED);
  }

  private fail(entry: Entry, code: string, error?: string, seq?: number): void {
    this.tell(entry, { cid: entry.item.cid, to: "failed", code, error, ...(seq === undefined ? {} : { seq }) });
    entry.failed = true;
  }

  private tell(entry: Entry, fate: Fate): void {
    if (!entry.failed) this.changes.fates.push(fate);
  }

  private keep(entry: Entry, change: Partial<OutboxItem>): void {
    entry.item = { ...entry.item, ...change };
    this.changes.items.set(entry.item.cid, entry.item);
  }

  private remove(entry: Entry): void {
    const { cid } = entry.item;
    this.items.delete(cid);
    this.bytes -= entry.bytes;
    entry.unsent = false;
    this.changes.items.set(cid, undefined);
    this.settled.add(cid);
    trim(this.settled, MOST_WATCHED);
  }
}

function isOver({ item }: Entry): boolean {
  return item.stage === "refused" || item.stage === "expired";
}

function trim(kept: Set<string> | Map<string, unknown>, most: number): void {
  for (const oldest of kept.keys()) {
    if (kept.size <= most) return;
    kept.delete(oldest);
  }
}

function size(frame: Json): number {
  return new TextEncoder().encode(JSON.stringify(frame)).length + 160; // with its cid
}
