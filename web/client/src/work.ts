/**
 * An agent's work besides its text, in the shape that pages draw. Pure. An agent may send anything here: wrong members
 * are left out.
 */
import { isObject, words } from "./frames.ts";
import type { AgentNow, AnswerItem, AnswerPart, Json, Step, Work } from "./types.ts";

export const NO_WORK: Work = { thinking: "", changes: [] };

/** The part of it that the answer's record keeps. */
export function workOf({ todo, plan, usage, costUsd }: Json): Work {
  const cost = typeof costUsd === "number" ? { costUsd } : {};
  return {
    ...NO_WORK,
    ...(isObject(todo) && { todo }),
    ...(isObject(plan) && { plan }),
    ...((isObject(usage) || "costUsd" in cost) && { usage: { ...(isObject(usage) ? usage : {}), ...cost } }),
  };
}

/** The steps of a `plan` or the items of a `todo`, whatever the agent calls their members. */
export function stepsOf(said: Json | undefined): Step[] {
  const listed = [said?.steps, said?.items, said?.todos].find(Array.isArray) as unknown[] | undefined;
  return (listed ?? []).flatMap((each) => {
    const one = isObject(each) ? each : { content: each };
    const text = words(one.step) ?? words(one.content) ?? words(one.text) ?? words(one.title);
    if (!text) return [];
    const status = (words(one.status) ?? "").toLowerCase().replaceAll(/[\s_-]/g, "");
    const state = /^(done|complete|completed)$/.test(status) ? "done" : /^(inprogress|active|running)$/.test(status) ? "active" : "open";
    return [{ text, state } as const];
  });
}

/** The text of an answer and the tools it used, in their order. A result stands with its call; text that was cut off
 * before its mark stands at the end. */
export function partsOf({ text, blocks }: Pick<AnswerItem, "text" | "blocks">): AnswerPart[] {
  const marks = blocks.filter(({ type }) => type === "text");
  // Marks count Unicode characters. Most texts have none that take two units here, and then no text is split into
  // characters.
  const letters = marks.length && /[\ud800-\udbff]/.test(text) ? [...text] : undefined;
  const places = marks.map(({ at }) => (Number.isSafeInteger(at) ? (at as number) : Infinity));
  const parts: AnswerPart[] = [];
  const calls = new Map<string, AnswerPart & { kind: "tool" }>();
  const say = (words: string) => void (words.trim() && parts.push({ kind: "text", text: words.replace(/\n\n$/, "") }));
  let nth = 0;
  for (const block of blocks) {
    if (block.type === "text") {
      const from = nth === 0 ? 0 : places[nth]!; // what comes before the first mark belongs to nobody else
      const to = places[++nth];
      say(letters ? letters.slice(from, to).join("") : text.slice(from, to));
    } else if (block.type === "tool_use") {
      const part: AnswerPart & { kind: "tool" } = { kind: "tool", use: block };
      parts.push(part);
      if (typeof block.id === "string") calls.set(block.id, part);
    } else if (block.type === "tool_result") {
      const call = typeof block.tool_use_id === "string" ? calls.get(block.tool_use_id) : undefined;
      if (call && !call.result) call.result = block;
      else parts.push({ kind: "tool", result: block });
    }
  }
  if (!marks.length) say(text);
  return parts;
}

const TOLD = ["name", "version", "session", "model", "mode"] as const;

/** The known facts about the agent after this frame; `known` itself if nothing changed. */
export function agentAfter(known: AgentNow, frame: Json): AgentNow {
  const { retrying, ...rest } = known;
  if (frame.type !== "agent_status") return retrying ? rest : known;
  const said = TOLD.flatMap((name) => (words(frame[name]) ? [[name, frame[name]]] : []));
  return { ...rest, ...Object.fromEntries(said), ...(frame.status === "retrying" && { retrying: frame }) };
}
