// A terminal's state, in words. Pure.

export interface Standing {
  phase: "connecting" | "online" | "waiting" | "offline" | "ended";
  retryAt?: number;
  code?: number;
  reason?: string;
  status: string; // of the session, as this terminal last heard
  exit: { code: number | null; signal: string | null } | null;
  error: { code: string; error: string } | null;
}

export interface Said {
  tone: "info" | "warn" | "bad";
  words: string;
  moving?: boolean;
  act?: "restart" | "reopen" | "wake";
}

const STATUS: Record<string, Said> = {
  starting: { tone: "info", words: "Its sandbox is starting.", moving: true },
  sleeping: { tone: "info", words: "Sleeping: type to wake it.", act: "wake" },
  paused: { tone: "warn", words: "Paused: it goes on when somebody resumes the session." },
  error: { tone: "bad", words: "Its sandbox could not be started: type to try again.", act: "wake" },
  unrestored: { tone: "bad", words: "Its files could not be restored: type to try again.", act: "wake" },
  needs_env: { tone: "warn", words: "It needs its variables again: resume the session with them." },
  archived: { tone: "warn", words: "Archived: there is no sandbox any more." },
};

const AGAIN = ["too_many", "start_failed"];
const STAYS = [...AGAIN, "held", "unknown_terminal"];

/** Whether an error is over once somebody has read it. One that leaves the terminal without a program is not: it stays
 * until there is one. */
export const passes = (error: { code: string }): boolean => !STAYS.includes(error.code);

/** The text to show now; null while the terminal simply works. The first obstacle is named. */
export function say(standing: Standing, now: number): Said | null {
  const { phase, status, exit, error } = standing;
  if (phase === "ended") return ended(standing);
  if (phase === "offline") return { tone: "warn", words: "No network. It comes back by itself; what you type waits.", moving: true };
  if (phase === "waiting") {
    const seconds = Math.ceil(((standing.retryAt ?? now) - now) / 1000);
    const when = seconds > 1 ? ` in ${seconds} s` : "";
    return { tone: "warn", words: `Coming back${when}. What you type waits.`, moving: true };
  }
  if (phase === "connecting") return { tone: "info", words: "Connecting.", moving: true };
  const known = STATUS[status];
  if (known) return known;
  if (exit) return { tone: exit.code === 0 ? "info" : "warn", words: howItEnded(exit), act: "restart" };
  if (error) return { tone: "warn", words: inWords(error), ...(AGAIN.includes(error.code) ? { act: "reopen" as const } : {}) };
  return null;
}

/** `code 3`, or by which signal. */
export function howItEnded({ code, signal }: { code: number | null; signal: string | null }): string {
  if (signal) return `The program was ended by ${signal}.`;
  return code === null ? "The program ended." : `The program ended with code ${code}.`;
}

function ended({ code, reason }: Standing): Said {
  if (code === 1000) return { tone: "info", words: "This terminal was closed.", act: "reopen" };
  if (code === 4404 || code === 404) return { tone: "bad", words: "There is no such session any more." };
  if (code === 4403 || code === 403) return { tone: "bad", words: "You may not see this terminal." };
  if (code === 4401 || code === 401) return { tone: "bad", words: "You are signed out." };
  return { tone: "bad", words: reason ? `It ended: ${reason}.` : "It ended.", act: "reopen" };
}

function inWords({ code, error }: { code: string; error: string }): string {
  if (code === "input_full") return "The program does not read its input: your last input was dropped.";
  if (code === "unknown_terminal") return "Nobody has opened this terminal yet; it is shown when somebody does.";
  return error.endsWith(".") ? error : `${error}.`;
}
