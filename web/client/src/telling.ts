/**
 * The conversation as a page shows it: the core of `transcript`. Pure: the session's events go in, items come out.
 *
 * In this order: records, by seq, as far as they are loaded; messages and answers that are known to be records whose
 * records have not come yet; the outbox; the answer that is being written. Each thing is there once, whichever event
 * came first, and keeps its key on its way from one to the next. When nothing is under way, the items are the history,
 * exactly.
 *
 * An agent's thoughts and changed files are in no record. A page that saw them keeps them, for the newest answers.
 *
 * Beside those, `notes` on events that are in no history and worth a line: the agent's exits, and errors. They stand
 * where they were heard, the newest few of them.
 */
import { UnfinishedAnswer } from "./answer.ts";
import { isCount, isObject, words } from "./frames.ts";
import { History, type Question } from "./history.ts";
import { agentAfter, NO_WORK, workOf } from "./work.ts";
import { ANSWERS, answered, itemOf, itemOfOutbox, requestIdOf } from "./items.ts";
import type { AgentNow, Item, Json, NoteItem, OutboxItem, Page, RequestItem, SessionEvents, StoredRecord, Welcome, Work } from "./types.ts";

const MOST_NOTES = 50;
const MOST_WORKS = 50; // answers whose thoughts and changes are kept
const ANSWER_FRAMES: Record<string, boolean> = { permission_response: true, ask_user_answer: true };

export class Telling {
  readonly history = new History();
  /** The agent's last report on itself. */
  agent: AgentNow = {};
  private answer = new UnfinishedAnswer();
  private epoch = "";
  private outbox: OutboxItem[] = [];
  private coming = new Map<number, Item>(); // by seq: durable, and their records are not here yet
  private keys = new Map<number, string>(); // of answers that this page saw being written
  private works = new Map<number, Work>(); // likewise, by seq
  private notes: Array<{ after: number; note: NoteItem }> = [];
  private noted = 0;
  private made = new WeakMap<StoredRecord, Item | undefined>();
  private shown: Item[] | undefined;

  get items(): Item[] {
    return (this.shown ??= this.show());
  }

  // // the session's events; each returns nothing and may change everything

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
    this.agent = agentAfter(this.agent, frame);
    if (frame.type === "done") this.ended(frame);
    else if (frame.type === "agent_status" && frame.status === "notice") this.note("notice", words(frame.message) ?? "", frame);
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
    // Now a marker stands there, and the request that it answered is open again.
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
    if (frame.status === "host_denied") return this.note("host_denied", words(frame.reason) ?? "", frame);
    if (frame.status !== "agent_exited") return;
    if (this.answer.abandon()) this.shown = undefined;
    this.agent = agentAfter(this.agent, {});
    this.note("agent_exited", words(frame.reason) ?? "", frame);
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

  /** If this record is an answer of the process that speaks, its streamed form is over. */
  private finish(record: StoredRecord): void {
    const cid = record.type === "rejected" ? (words(record.metadata.cid) ?? "") : record.cid;
    const type = record.type === "rejected" ? record.metadata.type : record.type;
    if (type !== "message" || !cid.startsWith(`agent:${this.epoch}:`)) return;
    const place = cid.slice(cid.lastIndexOf(":") + 1);
    const { begun } = this.answer;
    const { key } = this;
    const { work } = this.answer;
    this.answer.finished(place === "end" ? Infinity : Number(place));
    if (begun && !this.answer.begun) this.saw(record.seq, key, work);
    this.shown = undefined;
  }

  /** The answer is over. Its record is here, unless it came during a cut. */
  private ended({ _offset: offset, seq, metadata }: SessionEvents["frame"]): void {
    if (this.answer.begun && isCount(seq) && seq > this.history.last) {
      this.saw(seq, this.key, this.answer.work);
      const known = isObject(metadata) ? metadata : {};
      this.coming.set(seq, { ...this.writing(), seq, metadata: known, work: { ...this.answer.work, ...this.seen(seq, known) }, streaming: false, status: "complete" } as Item);
      this.history.exists(seq);
    }
    this.answer.finished(offset);
    this.shown = undefined;
  }

  private saw(seq: number, key: string, work: Work): void {
    this.keys.set(seq, key);
    if (!work.thinking && !work.changes.length) return;
    this.works.set(seq, work);
    if (this.works.size > MOST_WORKS) this.works.delete(this.works.keys().next().value!);
  }

  /** The work on an answer: from its record, and from what the page saw of it. */
  private seen(seq: number, metadata: Json): Work {
    const { thinking, changes } = this.works.get(seq) ?? NO_WORK;
    return { ...workOf(metadata), thinking, changes };
  }

  private get key(): string {
    return `answer:${this.epoch}:${this.answer.began}`;
  }

  private writing(): Item {
    const { text, blocks, work } = this.answer;
    return { kind: "answer", key: this.key, text, blocks, metadata: {}, work, streaming: true, status: "streaming" };
  }

  private show(): Item[] {
    const items: Item[] = [];
    const asked = new Map<string, number>(); // the index of the last request of a name
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
    if (this.made.has(record)) return this.made.get(record);
    const item = itemOf(record, this.keys.get(record.seq));
    if (item?.kind === "answer" && this.works.has(record.seq)) item.work = this.seen(record.seq, record.metadata);
    this.made.set(record, item);
    return item;
  }
}
