// The lines of a log. Pure.

export interface Line {
  key: string;
  text: string;
  level: "plain" | "warn" | "bad";
}

const SHOWN = 2000; // the newest

/** The newest lines. A key stays with its line while older ones are trimmed away at the front. */
export function linesOf(text: string): Line[] {
  const all = text.split("\n");
  if (all.at(-1) === "") all.pop();
  const times = new Map<string, number>();
  return all.slice(-SHOWN).map((line) => {
    const before = times.get(line) ?? 0;
    times.set(line, before + 1);
    return { key: `${before} ${line}`, text: line, level: levelOf(line) };
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
