/**
 * Checks of frames. Pure.
 *
 * The gateway may have bugs, and an agent is not trusted at all. So each used member is checked first, and a wrong one
 * counts as absent: never an exception.
 *
 * Outgoing frames are checked, too. A frame that the gateway cannot read ends the connection (4400), and from an outbox
 * it would end the next one as well. `tidy` repairs what JSON cannot carry (half a surrogate pair) and refuses what
 * exceeds the gateway's bounds.
 */
import type { Json, StoredRecord } from "./types.ts";

const DEEPEST = 60; // the gateway reads 64 levels, and the frame around it takes some
const MOST_MEMBERS = 9_900;

export function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

export function words(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

/** The object in a text frame; undefined for anything else. */
export function readObject(text: unknown): Json | undefined {
  try {
    const value: unknown = JSON.parse(text as string);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

export function readRecord(value: unknown): StoredRecord | undefined {
  if (!isObject(value) || !isCount(value.seq) || value.seq < 1) return undefined;
  const { cid, role, type, status, metadata } = value;
  const texts = [cid, role, type, status].every((text) => typeof text === "string");
  return texts ? ({ ...value, metadata: isObject(metadata) ? metadata : {} } as unknown as StoredRecord) : undefined;
}

/** The text of a message's content: a string, or that of its text parts. */
export function textOf(content: unknown): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content.map((part) => (isObject(part) && part.type === "text" && words(part.text)) || "").join("");
}

/** A copy that the gateway can read, or undefined if it is beyond its bounds. */
export function tidy(value: unknown): unknown {
  let members = 0;
  const copy = (part: unknown, depth: number): unknown => {
    if (typeof part === "string") return wellFormed(part);
    if (typeof part !== "object" || part === null) return part;
    if (depth > DEEPEST) throw new RangeError();
    if (Array.isArray(part)) return part.map((each) => copy(each, depth + 1));
    const entries = Object.entries(part);
    if ((members += entries.length) > MOST_MEMBERS) throw new RangeError();
    return Object.fromEntries(entries.map(([name, each]) => [wellFormed(name), copy(each, depth + 1)]));
  };
  try {
    return copy(JSON.parse(JSON.stringify(value)), 1);
  } catch {
    return undefined;
  }
}

function wellFormed(text: string): string {
  return text.replace(/\p{Cs}/gu, "\ufffd");
}
