// What the items of a conversation say about its present. Pure.
import type { Item } from "@holdfast/client";

/** working: an answer is owed and none is written yet. answering: one is written. asking: the agent waits for somebody here. */
export type Turn = "idle" | "working" | "answering" | "asking";

export function turnOf(items: readonly Item[]): Turn {
  for (let at = items.length - 1; at >= 0; at--) {
    const item = items[at] as Item;
    if (item.kind === "answer") return item.streaming ? "answering" : "idle";
    if (item.kind === "permission" || item.kind === "question") {
      if (item.status === "open" && !item.answer) return "asking";
      if (item.status === "expired") return "idle";
      return "working";
    }
    if (item.kind === "note" && item.seq === undefined) return "idle"; // the agent ended, or said that something failed
    if (item.kind === "message" && item.status === "delivered") return "working";
    if (item.kind === "message" && item.status === "interrupted") return "idle";
  }
  return "idle";
}

/** What a reader who cannot see the page should hear of a change, or nothing. Never of a part of an answer. */
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

/** The words for why a message stands where it stands. */
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
  outbox_full: "too much waits here already",
  buffer_full: "too many messages wait for the agent",
  busy: "the gateway is busy",
  storage_unavailable: "the store is away",
  storage_full: "the store is full",
  rejected: "the store refuses it",
  archived: "the session is archived",
  read_only: "you may only look",
  owner_moved: "the session moved to another gateway",
};
