/**
 * A record as a page shows it. Pure. An answer to a permission or a question is no item of its own: it is part of the
 * request that it answers, the last one of that name before it.
 */
import { isObject, textOf, words } from "./frames.ts";
import { workOf } from "./work.ts";
import type { Item, Json, OutboxItem, RequestItem, StoredRecord } from "./types.ts";

export const REQUESTS: Record<string, "permission" | "question"> = { permission_request: "permission", question: "question" };
export const ANSWERS = ["permission_response", "question_answer"];

/** The record as an item by itself; undefined for the answer to a request. */
export function itemOf(record: StoredRecord, key = `record:${record.seq}`): Item | undefined {
  const { seq, cid, role, type, content, metadata, status, createdAt } = record;
  const members = isObject(content) ? content : {};
  const requestId = words(members.requestId);
  const kind = REQUESTS[type];
  if (ANSWERS.includes(type) && requestId !== undefined) return undefined;
  if (kind && requestId !== undefined) {
    return { kind, key, seq, requestId, content: members, status, createdAt };
  }
  const text = textOf(content);
  if (type !== "message") {
    const why = words(metadata.reason);
    return { kind: "note", key, seq, type, role, text: text || (why ?? ""), content, metadata, status, createdAt };
  }
  if (role === "assistant") {
    return { kind: "answer", key, seq, text, blocks: blocksOf(metadata), metadata, work: workOf(metadata), streaming: false, status, createdAt };
  }
  return { kind: "message", key: `message:${cid}`, seq, cid, role, content, text, metadata, status, createdAt };
}

/** A message of this page that is not known to be a record yet. */
export function itemOfOutbox({ cid, frame, stage, seq, reason }: OutboxItem): Item {
  const { content, metadata } = frame;
  const key = `message:${cid}`;
  const known = isObject(metadata) ? metadata : {};
  return { kind: "message", key, seq, cid, role: "user", content, text: textOf(content), metadata: known, status: stage, reason };
}

export function answered(item: RequestItem, answer: Json, sending: boolean): RequestItem {
  return { ...item, status: sending || item.status !== "open" ? item.status : "answered", answer, ...(sending && { sending }) };
}

export function requestIdOf(content: unknown): string | undefined {
  return isObject(content) ? words(content.requestId) : undefined;
}

function blocksOf(metadata: Json): Json[] {
  return Array.isArray(metadata.blocks) ? metadata.blocks.filter(isObject) : [];
}
