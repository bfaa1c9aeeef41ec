/**
 * The loaded records of a conversation: one stretch without a hole. Pure.
 *
 * Records come live, each once if nothing is cut, and as pages of history. A live record that does not follow the last
 * one is put aside until the records between are read. `wanted` is the next page to request; undefined when every
 * record known to exist is here. The first page is the newest; `earlier` extends the stretch downwards.
 *
 * A status only moves forward (`stored`, `delivered`, then how it ended), because a page may be older than a frame that
 * said more. Each new connection reads again the records whose status may have changed meanwhile: from the oldest one
 * that can still change. A delivered message is settled by its answer. Each answer belongs to the oldest message
 * without one, unless it names its messages (`metadata.answers`). But that holds only if the message's status is as new
 * as the answer. So each record keeps the last seq that existed when its status was known (`asOf`): that of the page,
 * or of the last live record.
 *
 * If the gateway has fewer records than are here, or other ones, they belong to another conversation under the same
 * name, or a gateway died with the rest: everything is read anew. The last record shows whether they are other ones; it
 * is read again on each connection that does not resume. Records that retention removed before they were read cannot be
 * read.
 */
import type { Page, StoredRecord } from "./types.ts";

export const PAGE = 100;
const LARGEST = 2 ** 53 - 1;
const MOST_EARLY = 1000;
const FORWARD: Record<string, number> = { open: 0, stored: 0, delivered: 1 };

export interface Question {
  after?: number;
  before?: number;
  limit: number;
}

export class History {
  records: StoredRecord[] = [];
  /** The first record that the gateway still has. */
  firstSeq = 1;
  private loaded = false;
  private known = 0; // the last record known to exist
  private aside = new Map<number, StoredRecord>();
  private early = new Map<number, string>(); // statuses of records that are not here yet
  private again: number | undefined; // read again from this record on
  private asOf: number[] = []; // beside `records`
  private heard = 0; // the last record that came live on this connection

  private base = 0; // the stretch begins after this record

  get first(): number {
    return this.base + 1;
  }

  get last(): number {
    return this.base + this.records.length;
  }

  /** Whether there are records before the loaded ones. */
  get more(): boolean {
    return this.loaded && this.first > this.firstSeq;
  }

  get ready(): boolean {
    return this.loaded;
  }

  /** The next page to request; undefined: nothing is missing. */
  get wanted(): Question | undefined {
    if (!this.loaded) return { before: LARGEST, limit: PAGE };
    if (this.again !== undefined) return { after: this.again - 1, limit: PAGE };
    return this.last < this.known ? { after: this.last, limit: PAGE } : undefined;
  }

  earlier(): Question | undefined {
    return this.more ? { before: this.first, limit: PAGE } : undefined;
  }

  /** A welcome came, the `first` one of its connection or another. True: the records here are void. `recovered`: the
   * agent's frames go on, so it is the same conversation. */
  welcomed(lastSeq: number, first: boolean, recovered = false): boolean {
    if (!first) {
      this.known = Math.max(this.known, lastSeq);
      return false;
    }
    const other = this.loaded && lastSeq < this.last;
    const { again = Infinity, heard } = this;
    this.asOf = this.asOf.map((seq, at) => (this.first + at < again ? Math.max(seq, heard) : seq));
    this.heard = lastSeq;
    if (other) this.forget();
    this.aside.clear(); // records of the last connection are among those that are read now
    this.known = lastSeq;
    this.reread(this.moving());
    if (!recovered) this.reread(this.last);
    return other;
  }

  private forget(): void {
    this.records = [];
    this.asOf = [];
    this.early.clear();
    this.loaded = false;
    this.again = undefined;
    this.base = 0;
  }

  /** There is a record of this number. */
  exists(seq: number): void {
    this.known = Math.max(this.known, seq);
  }

  /** The stored record at `seq` may differ from the one here. */
  reread(seq: number | undefined): void {
    if (seq !== undefined && this.loaded && seq >= this.first && seq <= this.last) this.again = Math.min(this.again ?? seq, seq);
  }

  /** A live record; without its content it only says that it exists. Returns new and changed records. */
  told(record: StoredRecord, omitted: boolean): StoredRecord[] {
    this.known = Math.max(this.known, record.seq);
    this.heard = Math.max(this.heard, record.seq);
    if (omitted) return [];
    if (this.loaded && record.seq <= this.last) return this.merge(record);
    this.aside.set(record.seq, record);
    return this.loaded ? this.join() : [];
  }

  /** An answer to `question`; `late` if a connection has begun since the request. Returns new and changed records. If it
   * shows another conversation, the records here are void, and it is not `ready` any more. */
  read(question: Question, page: Page, late = false): StoredRecord[] {
    const changed = this.take(question, page);
    for (const { seq } of page.messages) if (this.find(seq)) this.asOf[seq - this.first] = Math.max(this.asOf[seq - this.first] ?? 0, page.lastSeq);
    if (late) {
      this.reread(this.moving());
      this.reread(this.last);
    }
    return changed;
  }

  private take(question: Question, { messages, lastSeq, firstSeq }: Page): StoredRecord[] {
    this.firstSeq = firstSeq;
    this.known = Math.max(this.known, lastSeq);
    if (messages.some((record) => this.isOther(record))) {
      this.forget();
      return [];
    }
    if (question.before !== undefined && this.loaded) return this.prepend(messages);
    const begins = messages[0]?.seq;
    // Before the first page, or if retention removed the following records before they were read, the stretch begins
    // anew.
    if (!this.loaded || (begins !== undefined && begins > this.last + 1)) {
      this.loaded = true;
      this.records = [];
      this.asOf = [];
      this.base = begins === undefined ? lastSeq : begins - 1;
    }
    if (this.again !== undefined && question.after === this.again - 1) {
      const reached = messages.at(-1)?.seq ?? this.last;
      this.again = reached < this.last ? reached + 1 : undefined;
    }
    const changed = messages.flatMap((record) => (record.seq === this.last + 1 ? [this.append(record)] : this.merge(record)));
    return [...changed, ...this.join()];
  }

  find(seq: number): StoredRecord | undefined {
    return this.records[seq - this.first];
  }

  /** The record has this status, unless it is further already. Returns it if that is new. */
  status(seq: number, status: string): StoredRecord[] {
    const record = this.find(seq);
    if (!record) {
      // A page requested earlier may not know it yet.
      this.early.set(seq, status);
      if (this.early.size > MOST_EARLY) this.early.delete(this.early.keys().next().value!);
      return [];
    }
    if (rank(status) <= rank(record.status)) return [];
    return [(this.records[seq - this.first] = { ...record, status })];
  }

  private prepend(messages: StoredRecord[]): StoredRecord[] {
    const fits = messages.every(({ seq }, at) => seq === this.first - messages.length + at);
    if (!fits) return [];
    const found = messages.map((record) => this.newest(record));
    this.records = [...found, ...this.records];
    this.asOf = [...found.map(() => 0), ...this.asOf];
    this.base -= found.length;
    return found;
  }

  private append(record: StoredRecord): StoredRecord {
    const told = this.aside.get(record.seq);
    this.aside.delete(record.seq);
    const newest = this.newest(told?.cid === record.cid && rank(told.status) > rank(record.status) ? told : record);
    this.records.push(newest);
    this.asOf.push(record.seq);
    return newest;
  }

  /** With a status that came before it. */
  private newest(record: StoredRecord): StoredRecord {
    const status = this.early.get(record.seq);
    this.early.delete(record.seq);
    return status !== undefined && rank(status) > rank(record.status) ? { ...record, status } : record;
  }

  private merge(record: StoredRecord): StoredRecord[] {
    const mine = this.find(record.seq);
    if (!mine) return [];
    const same = mine.cid === record.cid && mine.type === record.type;
    if (same && rank(record.status) <= rank(mine.status)) return [];
    this.records[record.seq - this.first] = record;
    return [record];
  }

  /** Whether this cannot be a later state of the record here: a marker may have taken its place. */
  private isOther({ seq, cid, type }: StoredRecord): boolean {
    const mine = this.find(seq);
    return mine !== undefined && mine.cid !== cid && type !== "rejected" && type !== "duplicate";
  }

  /** Append the records put aside, as far as they follow. */
  private join(): StoredRecord[] {
    const joined: StoredRecord[] = [];
    for (const seq of [...this.aside.keys()]) if (seq <= this.last) this.aside.delete(seq);
    for (let next; (next = this.aside.get(this.last + 1)); ) joined.push(this.append(next));
    return joined;
  }

  /** The oldest record whose status the gateway may have changed, or may yet. */
  private moving(): number | undefined {
    let owed: number[] = [];
    for (const [at, { seq, type, status }] of this.records.entries()) {
      if (status === "stored" || status === "open") return owed[0] ?? seq;
      if (isAnswer(this.records[at]!)) {
        if (owed[0] !== undefined && this.asOf[owed[0] - this.first]! < seq) return owed[0];
        const named = this.records[at]!.metadata.answers;
        if (Array.isArray(named)) owed = owed.filter((each) => !named.includes(each));
        else owed.shift();
      } else if (type === "message" && status === "delivered") owed.push(seq);
    }
    return owed[0];
  }
}

function isAnswer({ cid, type }: StoredRecord): boolean {
  // The record that an ended process left (`agent:<epoch>:end`) answers nothing.
  return type === "message" && /^agent:.*:\d+$/.test(cid);
}

function rank(status: string): number {
  return FORWARD[status] ?? 2;
}
