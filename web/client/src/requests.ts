/**
 * The open permissions and questions, as far as this page knows. Pure.
 *
 * Each is reported once when it opens and once when it closes, by the first frame that says so: its record, the `open`
 * of a welcome, an answer's record, `expired`. A request missing from a welcome's `open` was settled during the cut.
 */
import { isObject, readRecord, words } from "./frames.ts";
import type { Json, StoredRecord } from "./types.ts";

export type RequestNews =
  | { type: "permission" | "question"; requestId: string; content: Json; seq: number }
  | { type: "settled"; requestId: string; status: "answered" | "expired" };

export class Requests {
  private open = new Map<string, number>(); // requestId -> seq

  record(record: StoredRecord): RequestNews[] {
    const content = isObject(record.content) ? record.content : {};
    const requestId = words(content.requestId);
    if (requestId === undefined) return [];
    switch (record.type) {
      case "permission_request":
      case "question":
        if (record.status !== "open" || this.open.has(requestId)) return [];
        this.open.set(requestId, record.seq);
        return [{ type: record.type === "question" ? "question" : "permission", requestId, content, seq: record.seq }];
      case "permission_response":
      case "question_answer":
        return this.settle(requestId, "answered");
    }
    return [];
  }

  expired(seq: unknown): RequestNews[] {
    const found = [...this.open].find(([, known]) => known === seq);
    return found ? this.settle(found[0], "expired") : [];
  }

  welcome(open: unknown, sameProcess: boolean): RequestNews[] {
    const records = (Array.isArray(open) ? open : []).flatMap((each) => readRecord(each) ?? []);
    const still = new Set(records.map(({ seq }) => seq));
    const over = [...this.open].filter(([, seq]) => !still.has(seq));
    const settled = over.flatMap(([requestId]) => this.settle(requestId, sameProcess ? "answered" : "expired"));
    return [...settled, ...records.flatMap((record) => this.record(record))];
  }

  private settle(requestId: string, status: "answered" | "expired"): RequestNews[] {
    return this.open.delete(requestId) ? [{ type: "settled", requestId, status }] : [];
  }
}
