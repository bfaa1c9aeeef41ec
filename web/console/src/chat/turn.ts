// The present state of a conversation, from its items. Pure.
import type { Item, MessageItem } from "@holdfast/client";

/** working: an answer is due and none is being written yet. answering: one is being written. asking: the agent waits for
 * somebody here. */
export type Turn = "idle" | "working" | "answering" | "asking";

/** Messages that the agent has and has not answered, in their order, after `items`; `answer` is called with each answer
 * and its messages. */
function owedOf(items: readonly Item[], answer: (to: MessageItem, at: number) => void = () => {}): MessageItem[] {
  let owed: MessageItem[] = [];
  items.forEach((item, at) => {
    if (item.kind === "message" && item.status === "delivered") owed.push(item);
    else if (item.kind === "note" && item.seq === undefined && item.type !== "notice") owed = []; // the agent ended, or reported a failure
    else if (item.kind === "answer" && item.status !== "incomplete") {
      const { answers } = item.metadata;
      const named = Array.isArray(answers) ? owed.filter(({ seq }) => answers.includes(seq)) : owed.slice(0, 1);
      for (const each of named) answer(each, at);
      if (!item.streaming) owed = owed.filter((each) => !named.includes(each));
    }
  });
  return owed;
}

export function turnOf(items: readonly Item[]): Turn {
  if (items.some((item) => item.kind === "answer" && item.streaming)) return items.some(isAsked) ? "asking" : "answering";
  if (items.some(isAsked)) return "asking";
  return owedOf(items).length ? "working" : "idle";
}

const isAsked = (item: Item): boolean => (item.kind === "permission" || item.kind === "question") && item.status === "open" && !item.answer;

/** The messages that wait behind the running turn: stored, and not with the agent. */
export function queueOf(items: readonly Item[]): MessageItem[] {
  return items.filter((item): item is MessageItem => item.kind === "message" && item.role === "user" && item.seq !== undefined && (item.status === "stored" || item.status === "accepted"));
}

/** The items in reading order. A message that waited for earlier answers stands behind those, before its own; an open
 * request stands at the end, until somebody answers. Records have the order in which they were stored. */
export function inTurns(items: readonly Item[]): readonly Item[] {
  const last = items.at(-1);
  if (last?.kind !== "answer" || !last.streaming || !items.some(isAsked)) return behindAnswers(items);
  return [...behindAnswers(items.filter((item) => !isAsked(item))), ...items.filter(isAsked)];
}

function behindAnswers(items: readonly Item[]): readonly Item[] {
  const own = new Map<Item, number>(); // the index of its answer
  for (const each of owedOf(items, (to, at) => own.set(to, at))) if (!own.has(each)) own.set(each, items.length);
  const before = new Map<number, number>(); // the index of the answer before this one
  let last = -1;
  items.forEach(({ kind }, at) => {
    if (kind === "answer") before.set(at, last), (last = at);
  });
  before.set(items.length, last);
  const behind = new Map<number, Item[]>();
  items.forEach((item, at) => {
    const place = before.get(own.get(item) ?? -1) ?? -1;
    if (place > at) behind.set(place, [...(behind.get(place) ?? []), item]);
  });
  if (!behind.size) return items;
  const moved = new Set([...behind.values()].flat());
  return items.flatMap((item, at) => [...(moved.has(item) ? [] : [item]), ...(behind.get(at) ?? [])]);
}

/** The text that a screen reader reads for a change, or nothing. Never for a part of an answer. */
export function newsOf(before: readonly Item[], after: readonly Item[]): string | undefined {
  const last = after.at(-1);
  if (!last || after === before) return undefined;
  const known = before.find((item) => item.key === last.key);
  if (last.kind === "answer" && !last.streaming && (!known || (known.kind === "answer" && known.streaming))) {
    return known || before.length > 0 ? `Answer: ${clip(last.text)}` : undefined;
  }
  if (last.kind === "permission" && !known && last.status === "open") return "The agent asks for a permission.";
  if (last.kind === "question" && !known && last.status === "open") return "The agent asks a question.";
  if (last.kind === "message" && known?.kind === "message" && known.status !== last.status) {
    if (last.status === "refused" || last.status === "expired" || last.status === "interrupted") return `A message was not answered: ${last.reason ?? last.status}`;
  }
  return undefined;
}

const clip = (text: string): string => (text.length > 300 ? `${text.slice(0, 300)}, and more` : text);

/** Why a message is where it is, in words. */
export function whyNot(status: string, reason: string | undefined): string {
  const told = reason ? WHY[reason] ?? reason.replaceAll("_", " ") : undefined;
  if (status === "expired") return "Not delivered: it waited too long for the agent.";
  if (status === "cancelled") return "Cancelled before the agent had it.";
  if (status === "interrupted") return `Interrupted: the agent ended before it had answered${told ? ` (${told})` : ""}.`;
  return `Not taken: ${told ?? "the gateway refused it"}.`;
}

const WHY: Record<string, string> = {
  invalid: "the gateway cannot read it",
  too_long: "it is too long",
  outbox_full: "too many messages wait here",
  buffer_full: "too many messages wait for the agent",
  busy: "the gateway is busy",
  storage_unavailable: "the store does not answer",
  storage_full: "the store is full",
  rejected: "the store refuses it",
  archived: "the session is archived",
  read_only: "you can only view this session",
  owner_moved: "the session moved to another gateway",
};
