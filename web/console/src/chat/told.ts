// Texts for an agent's actions. Pure: any JSON comes out as a string.
import type { Json } from "@holdfast/client";

/** The name of a tool as it is shown. */
export const toolName = (name: unknown): string => (typeof name === "string" && name ? name : name === undefined || name === null || name === "" ? "a tool" : JSON.stringify(name));

const SAY_MOST = ["command", "cmd", "file_path", "path", "pattern", "query", "url", "description", "prompt"];
const BRIEF = 100;

/** A tool's input in a few words: its most telling member, on one line. */
export function briefOf(input: unknown): string {
  if (typeof input === "string") return oneLine(input);
  if (typeof input !== "object" || input === null) return "";
  const given = new Map(Object.entries(input));
  for (const name of SAY_MOST) {
    const value = given.get(name);
    if (typeof value === "string" && value.trim()) return oneLine(value);
    if (Array.isArray(value) && value.length && value.every((word) => typeof word === "string")) return oneLine(value.join(" "));
  }
  return "";
}

function oneLine(text: string): string {
  const line = text.slice(0, 4 * BRIEF).replace(/\s+/g, " ").trim();
  return line.length > BRIEF || text.length > 4 * BRIEF ? `${line.slice(0, BRIEF)}…` : line;
}

/** A tool's input or output in full: text as text, anything else as JSON. */
export function inFull(value: unknown): string {
  if (typeof value === "string") return value;
  if (value === undefined || value === null) return "";
  const texts = Array.isArray(value) ? value.map((part) => (isPart(part) ? part.text : undefined)) : [undefined];
  return texts.every((text) => typeof text === "string") ? texts.join("\n") : JSON.stringify(value, null, 2);
}

const isPart = (part: unknown): part is { text: unknown } => typeof part === "object" && part !== null && "text" in part;

const TOKENS: readonly [string, string][] = [
  ["inputTokens", "in"],
  ["outputTokens", "out"],
  ["cacheReadTokens", "from the cache"],
];

/** The cost of an answer, as far as the agent reports it: tokens and dollars. */
export function usageWords(usage: Json | undefined): string {
  const counted = TOKENS.flatMap(([name, word]) => {
    const count = usage?.[name];
    return typeof count === "number" && count > 0 ? [`${Math.round(count).toLocaleString("en")} ${word}`] : [];
  });
  const cost = usage?.costUsd;
  const dollars = typeof cost === "number" && cost > 0 && cost < Infinity ? [`$${cost.toFixed(cost < 0.1 ? 4 : 2)}`] : [];
  return [...(counted.length ? [`Tokens: ${counted.join(", ")}`] : []), ...dollars].join(" · ");
}

/** The agent tries to reach its model again, and why. */
export function retryWords({ attempt, of, error }: Json): string {
  const which = typeof attempt === "number" ? ` (try ${attempt}${typeof of === "number" ? ` of ${of}` : ""})` : "";
  return `Its model did not answer; trying again${which}${typeof error === "string" && error ? `: ${oneLine(error)}` : "."}`;
}
