// A sandbox's usage and limits, in words and shares. Pure.
import { size } from "./panes/figures.ts";
import type { ResourceLimits, ResourceUsage } from "./sandbox.ts";

export interface Use {
  what: "Memory" | "Processors" | "Processes";
  words: string;
  /** Its share of the limit, 0 to 1; undefined without a limit or a measurement. */
  share: number | undefined;
}

/** One look at a sandbox, and when it was taken, in seconds of a clock that nobody sets. */
export interface Look {
  at: number;
  incarnation: number;
  limits: ResourceLimits | null;
  usage: ResourceUsage | null;
}

/** How many processors were busy between two looks at the same start; undefined if unknown. */
export function busy(before: Look | undefined, now: Look): number | undefined {
  const [was, is] = [before?.usage?.cpuSeconds ?? null, now.usage?.cpuSeconds ?? null];
  if (!before || was === null || is === null || before.incarnation !== now.incarnation || now.at <= before.at || is < was) return undefined;
  return (is - was) / (now.at - before.at);
}

/** A row for each limit or measurement; none if nothing is known. */
export function uses(before: Look | undefined, now: Look): Use[] {
  const { limits, usage } = now;
  const rate = busy(before, now);
  const rows = [
    use("Memory", usage?.memory ?? null, limits?.memory ?? null, size),
    use("Processors", rate ?? null, limits?.cpus ?? null, (count) => String(Number(count.toFixed(count < 10 ? 2 : 0)))),
    use("Processes", usage?.pids ?? null, limits?.pids ?? null, String),
  ];
  return rows.filter((row) => row !== undefined);
}

function use(what: Use["what"], used: number | null, most: number | null, say: (count: number) => string): Use | undefined {
  if (used === null && most === null) return undefined;
  if (used === null) return { what, words: `at most ${say(most ?? 0)}`, share: undefined };
  if (most === null) return { what, words: `${say(used)}, no limit`, share: undefined };
  return { what, words: `${say(used)} of ${say(most)}`, share: most > 0 ? Math.min(1, used / most) : undefined };
}
