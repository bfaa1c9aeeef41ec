// The lines of a log. Pure.

export interface Line {
  key: string;
  text: string;
  level: "plain" | "warn" | "bad";
  event?: Event; // of a line that the bridge wrote: its content, parsed
}

export interface Event {
  at: number | null; // ms since 1970
  name: string;
  fields: [string, string][];
}

const SHOWN = 2000; // the newest
const LATEST = 8.64e15; // ms: no Date is further away from 1970

/** The newest lines. A key stays with its line while older ones are trimmed away at the front. */
export function linesOf(text: string): Line[] {
  const all = text.split("\n");
  if (all.at(-1) === "") all.pop();
  const times = new Map<string, number>();
  return all.slice(-SHOWN).map((line) => {
    const before = times.get(line) ?? 0;
    times.set(line, before + 1);
    const event = eventOf(line);
    return { key: `${before} ${line}`, text: line, level: levelOf(line), ...(event ? { event } : {}) };
  });
}

/** Those that have all the words in them, wherever. */
export function matching(lines: readonly Line[], wanted: string): readonly Line[] {
  const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return lines;
  return lines.filter((line) => words.every((word) => line.text.toLowerCase().includes(word)));
}

function levelOf(line: string): Line["level"] {
  if (/\b(error|critical|fatal|traceback|exception)\b/i.test(line)) return "bad";
  return /\bwarn(ing)?\b/i.test(line) ? "warn" : "plain";
}

/** The bridge logs JSON objects with `time` and `event`; null for any other line. */
export function eventOf(line: string): Event | null {
  if (!line.startsWith("{")) return null;
  let told: unknown;
  try {
    told = JSON.parse(line);
  } catch {
    return null;
  }
  const { time, event, ...rest } = told as Record<string, unknown>;
  if (typeof event !== "string") return null;
  const fields = Object.entries(rest).map(([name, value]): [string, string] => [name, typeof value === "string" ? value : JSON.stringify(value)]);
  return { at: typeof time === "number" && Math.abs(time * 1000) <= LATEST ? time * 1000 : null, name: event, fields };
}
