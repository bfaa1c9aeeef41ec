/**
 * The records of a conversation as far as they are loaded: one stretch without a hole. Pure.
 *
 * Records come live, each once if nothing is cut, and as pages of history. A live one that does not follow the last is put
 * aside until what lies between was read. `wanted` is the next question to ask; there is none when all that is known to
 * exist is here. The first page is the newest; `earlier` extends the stretch downwards.
 *
 * A status only moves forward (`stored`, `delivered`, then how it ended), because a page may have been read before the frame
 * that told more. What may have moved while nobody listened is read again on each new connection: from the oldest record on
 * that can still change. A message that was delivered is settled by its answer, and each answer is that of the oldest which
 * has none, unless it names those that it answers (`metadata.answers`); but that can only be said of a status that is known to be as new as the answer. So with each record goes the
 * last seq there was when its status was known (`asOf`): that of the page, or of the last record heard while listening.
 *
 * If the gateway knows fewer records than are here, or other ones, they are of another conversation under the same name, or
 * a gateway died with them: everything is read anew. Whether they are other ones is seen by the last record, which is read
 * again on each connection that does not go on where the one before ended. What retention trimmed away before it was read is not there to be read.
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
  private known = 0; // the last record that is known to exist
  private aside = new Map<number, StoredRecord>();
  private early = new Map<number, string>(); // statuses of records that are not here yet
  private again: number | undefined; // read from this record on once more
  private asOf: number[] = []; // beside `records`
  private heard = 0; // the last record that this connection told of

  private base = 0; // the stretch begins after this record

  get first(): number {
    return this.base + 1;
  }

  get last(): number {
    return this.base + this.records.length;
  }

  /** Whether there is something before what is loaded. */
  get more(): boolean {
    return this.loaded && this.first > this.firstSeq;
  }

  get ready(): boolean {
    return this.loaded;
  }

  /** What to ask for next; undefined: nothing is missing. */
  get wanted(): Question | undefined {
    if (!this.loaded) return { before: LARGEST, limit: PAGE };
    if (this.again !== undefined) return { after: this.again - 1, limit: PAGE };
    return this.last < this.known ? { after: this.last, limit: PAGE } : undefined;
  }

  earlier(): Question | undefined {
    return this.more ? { before: this.first, limit: PAGE } : undefined;
  }

  /** A welcome came, the `first` one of its connection or another. True: what was here is void. `recovered`: the agent's
   * frames go on, so it is the same conversation. */
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
    this.aside.clear(); // what the connection before brought is among what is read now
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

  /** What is stored at `seq` may be another than what is here. */
  reread(seq: number | undefined): void {
    if (seq !== undefined && this.loaded && seq >= this.first && seq <= this.last) this.again = Math.min(this.again ?? seq, seq);
  }

  /** A record was told; without its content it only says that it is there. Returns what is new or another. */
  told(record: StoredRecord, omitted: boolean): StoredRecord[] {
    this.known = Math.max(this.known, record.seq);
    this.heard = Math.max(this.heard, record.seq);
    if (omitted) return [];
    if (this.loaded && record.seq <= this.last) return this.merge(record);
    this.aside.set(record.seq, record);
    return this.loaded ? this.join() : [];
  }

  /** An answer to `question`; `late` if a connection has begun since it was asked. Returns what is new or another. If it
   * shows another conversation, what was here is void, and it is not `ready` any more. */
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
    // Before the first page, or where what follows was trimmed away before it was read, the stretch begins anew.
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
      // A page that was asked for before may not say so yet.
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

  /** With the status that was told of it before it came. */
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

  /** Whether this cannot be what became of the record that is here: a marker may have taken its place. */
  private isOther({ seq, cid, type }: StoredRecord): boolean {
    const mine = this.find(seq);
    return mine !== undefined && mine.cid !== cid && type !== "rejected" && type !== "duplicate";
  }

  /** Take what was put aside, as far as it follows. */
  private join(): StoredRecord[] {
    const joined: StoredRecord[] = [];
    for (const seq of [...this.aside.keys()]) if (seq <= this.last) this.aside.delete(seq);
    for (let next; (next = this.aside.get(this.last + 1)); ) joined.push(this.append(next));
    return joined;
  }

  /** The oldest record to which the gateway may have given another status, or may yet. */
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
  // What a process left behind when it ended (`agent:<epoch>:end`) answers nothing.
  return type === "message" && /^agent:.*:\d+$/.test(cid);
}

function rank(status: string): number {
  return FORWARD[status] ?? 2;
}
