/**
 * The conversation as a page shows it: the core of `transcript`. Pure: what the session tells goes in, items come out.
 *
 * In this order: records, by seq, as far as they are loaded; messages and answers of which it is known that they are records
 * now, before those have come; what waits in the outbox; the answer that is being written. Each thing is there once, whichever
 * way it was heard of first, and keeps its key on its way from one to the next. When nothing is on its way, the items are the
 * history, exactly.
 *
 * Beside those, `notes` of what is in no history and worth a line: the agent's exits, and errors. They stand where they were
 * heard, the newest few of them.
 */
import { UnfinishedAnswer } from "./answer.ts";
import { isCount, isObject, words } from "./frames.ts";
import { History, type Question } from "./history.ts";
import { ANSWERS, answered, itemOf, itemOfOutbox, requestIdOf } from "./items.ts";
import type { Item, Json, NoteItem, OutboxItem, Page, RequestItem, SessionEvents, StoredRecord, Welcome } from "./types.ts";

const MOST_NOTES = 50;
const ANSWER_FRAMES: Record<string, boolean> = { permission_response: true, ask_user_answer: true };

export class Telling {
  readonly history = new History();
  private answer = new UnfinishedAnswer();
  private epoch = "";
  private outbox: OutboxItem[] = [];
  private coming = new Map<number, Item>(); // by seq: durable, and their records are not here yet
  private keys = new Map<number, string>(); // of answers that were seen being written
  private notes: Array<{ after: number; note: NoteItem }> = [];
  private noted = 0;
  private made = new WeakMap<StoredRecord, Item | undefined>();
  private shown: Item[] | undefined;

  get items(): Item[] {
    return (this.shown ??= this.show());
  }

  // what the session tells; each returns nothing and may change everything

  welcomed({ epoch, lastSeq, recovered, first }: Welcome): void {
    if (this.history.welcomed(lastSeq, first, recovered)) this.notes = [];
    if (first) for (const seq of [...this.coming.keys()]) if (seq > lastSeq) this.coming.delete(seq);
    if (recovered !== true || epoch !== this.epoch) {
      this.epoch = epoch;
      this.answer.restart();
      this.history.records.forEach((record) => this.finish(record));
    }
    this.shown = undefined;
  }

  told({ record, omitted }: SessionEvents["record"]): void {
    this.changed(this.history.told(record, omitted));
    if (!omitted) this.finish(record);
  }

  read(question: Question, page: Page, late: boolean): void {
    this.changed(this.history.read(question, page, late));
    if (this.history.ready) return;
    this.notes = [];
    this.shown = undefined;
  }

  framed(frame: SessionEvents["frame"]): void {
    if (frame.type === "done") this.ended(frame);
    else if (frame.type === "error") this.note("error", words(frame.error) ?? words(frame.message) ?? "", frame);
    else if (this.answer.feed(frame)) this.shown = undefined;
  }

  acked({ cid, seq, status }: SessionEvents["ack"]): void {
    const item = this.outbox.find((each) => each.cid === cid && each.frame.type === "message");
    if (!item || seq <= this.history.last) return;
    this.coming.set(seq, itemOfOutbox({ ...item, seq, stage: (status ?? "stored") as OutboxItem["stage"] }));
    this.shown = undefined;
  }

  nacked({ cid, reason }: SessionEvents["nack"]): void {
    const record = this.history.records.find((each) => each.cid === cid);
    if (reason !== "rejected" || !record) return;
    // A marker stands there now, and what it answered is open again.
    const id = requestIdOf(record.content);
    const asked = this.history.records.find(({ content }) => id !== undefined && requestIdOf(content) === id);
    this.history.reread((asked ?? record).seq);
  }

  moved({ seq }: { seq: number }, status: string): void {
    const item = this.coming.get(seq);
    if (item?.kind === "message") this.coming.set(seq, { ...item, status });
    this.changed(this.history.status(seq, status));
    this.shown = undefined;
  }

  kept(items: OutboxItem[]): void {
    this.outbox = items;
    this.shown = undefined;
  }

  status(frame: Json): void {
    if (frame.status === "agent_exited") this.note("agent_exited", words(frame.reason) ?? "", frame);
  }

  note(type: string, text: string, metadata: Json): void {
    const note: NoteItem = { kind: "note", key: `note:${++this.noted}`, type, text, metadata };
    this.notes = [...this.notes, { after: this.history.last, note }].slice(-MOST_NOTES);
    this.shown = undefined;
  }

  // how

  private changed(records: StoredRecord[]): void {
    for (const record of records) this.finish(record);
    for (const seq of [...this.coming.keys()]) if (seq <= this.history.last) this.coming.delete(seq);
    if (records.length) this.shown = undefined;
  }

  /** If this record is an answer of the process that speaks, what was heard of it is over. */
  private finish(record: StoredRecord): void {
    const cid = record.type === "rejected" ? (words(record.metadata.cid) ?? "") : record.cid;
    const type = record.type === "rejected" ? record.metadata.type : record.type;
    if (type !== "message" || !cid.startsWith(`agent:${this.epoch}:`)) return;
    const place = cid.slice(cid.lastIndexOf(":") + 1);
    const { begun } = this.answer;
    const key = this.key;
    this.answer.finished(place === "end" ? Infinity : Number(place));
    if (begun && !this.answer.begun) this.keys.set(record.seq, key);
    this.shown = undefined;
  }

  /** The answer is over. Its record is here, unless it came while nobody listened. */
  private ended({ _offset: offset, seq, metadata }: SessionEvents["frame"]): void {
    if (this.answer.begun && isCount(seq) && seq > this.history.last) {
      this.keys.set(seq, this.key);
      const known = isObject(metadata) ? metadata : {};
      this.coming.set(seq, { ...this.writing(), seq, metadata: known, streaming: false, status: "complete" } as Item);
      this.history.exists(seq);
    }
    this.answer.finished(offset);
    this.shown = undefined;
  }

  private get key(): string {
    return `answer:${this.epoch}:${this.answer.began}`;
  }

  private writing(): Item {
    const { text, blocks } = this.answer;
    return { kind: "answer", key: this.key, text, blocks, metadata: {}, streaming: true, status: "streaming" };
  }

  private show(): Item[] {
    const items: Item[] = [];
    const asked = new Map<string, number>(); // the last request of a name: where it stands
    const cids = new Set<string>();
    const notes = [...this.notes];
    const settle = (id: string, answer: Json, sending: boolean) => {
      const at = asked.get(id);
      if (at !== undefined) items[at] = answered(items[at] as RequestItem, answer, sending);
    };
    for (const record of this.history.records) {
      while (notes[0] && notes[0].after < record.seq) items.push(notes.shift()!.note);
      cids.add(record.cid);
      const item = this.item(record);
      const id = requestIdOf(record.content);
      if (item && "requestId" in item) asked.set(item.requestId, items.length);
      if (item) items.push(item);
      else if (id !== undefined && ANSWERS.includes(record.type)) settle(id, record.content as Json, false);
    }
    items.push(...notes.map(({ note }) => note));
    for (const [, item] of [...this.coming].sort(([one], [other]) => one - other)) {
      if (item.kind === "message") cids.add(item.cid);
      items.push(item);
    }
    for (const item of this.outbox) {
      const id = requestIdOf(item.frame);
      if (ANSWER_FRAMES[item.frame.type] && id !== undefined) settle(id, item.frame, true);
      else if (item.frame.type === "message" && !cids.has(item.cid)) items.push(itemOfOutbox(item));
    }
    if (this.answer.begun) items.push(this.writing());
    return items;
  }

  private item(record: StoredRecord): Item | undefined {
    if (!this.made.has(record)) this.made.set(record, itemOf(record, this.keys.get(record.seq)));
    return this.made.get(record);
  }
}
