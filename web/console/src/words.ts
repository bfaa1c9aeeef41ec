// Status words and what they mean to somebody who reads them for the first time.
import type { Limits, Network, Provider } from "./api.ts";
import { size } from "./panes/figures.ts";
import type { Sandbox, Status, SyncState } from "./sandbox.ts";
import type { Tone } from "./ui/badge.tsx";

export const STATUS: Record<Status, { word: string; tone: Tone; moving?: boolean; meaning: string }> = {
  starting: { word: "starting", tone: "info", moving: true, meaning: "Its sandbox is being started." },
  running: { word: "running", tone: "good", meaning: "Its sandbox runs." },
  sleeping: { word: "sleeping", tone: "plain", meaning: "Stopped, its files kept. A message wakes it." },
  paused: { word: "paused", tone: "warn", meaning: "Held until somebody resumes it. Messages wait." },
  error: { word: "error", tone: "bad", meaning: "It could not be started." },
  unrestored: { word: "unrestored", tone: "bad", meaning: "Its files could not be brought back." },
  needs_env: { word: "needs variables", tone: "warn", meaning: "The gateway was restarted and no longer has its secret variables." },
  archived: { word: "archived", tone: "plain", meaning: "Ended. The conversation is kept, its files are not." },
};

export const SYNC: Record<SyncState, { word: string; tone: Tone; moving?: boolean; meaning: string }> = {
  idle: { word: "idle", tone: "plain", meaning: "Everything is kept." },
  pending: { word: "pending", tone: "info", meaning: "Files changed; they are kept in a moment." },
  syncing: { word: "syncing", tone: "info", moving: true, meaning: "Reading and uploading what changed." },
  flushing: { word: "flushing", tone: "info", moving: true, meaning: "Writing the new generation down." },
  failed: { word: "failed", tone: "bad", meaning: "The last try to keep the files failed; it is tried again." },
  unrestored: { word: "unrestored", tone: "bad", meaning: "Nothing is kept until the files are back." },
};

export const nameOf = (sandbox: Sandbox): string => sandbox.title || sandbox.id;

/** What keeps a sandbox's programs from everything else. */
export const LEVEL: Record<string, string> = {
  trusted: "Plain programs of the gateway's user: nothing keeps them from what that user may do.",
  contained: "A box on the gateway's host: files, processes and system calls of its own.",
  container: "A container: its files are those of an image, it has no privileges and no way out.",
  isolated: "A container with a kernel of its own.",
};

/** Whether the store has nothing of it at all, so that what is on its disk may stay: the gateway names the way then. */
export const mayKeepDisk = (one: Pick<Sandbox, "status" | "reason">): boolean => one.status === "unrestored" && (one.reason ?? "").includes("{keep:true} to go on");

/** What the chosen network means. With `outbound` the host's network is shared, and nothing less is true of it. */
export function networkWords(network: Network, most: Network, clones: boolean, possible: readonly Network[] = ["none", "outbound"]): string {
  if (network === "outbound") return "The sandbox shares the host's network: it reaches the outside, the host's own services and what others run there, and it can be reached.";
  const own = possible.includes("outbound");
  const inside = !clones ? "The sandbox reaches nothing outside." : own || most === "none" ? "Without a network nothing can be cloned." : "The sandbox reaches nothing outside. The gateway clones the repository for it.";
  if (!own) return most === "none" || clones ? inside : `${inside} Sandboxes there have no way out yet.`;
  return most === "none" ? `${inside} This gateway lets no user ask for more (HOLDFAST_NETWORK_MAX).` : inside;
}

/** Which images may be named at a provider, where there is a choice. */
export function imageWords({ image, images }: Pick<Provider, "image" | "images">): string {
  const any = images.some((pattern) => pattern === "*" || pattern === "**");
  const most = any ? "Any image may be named." : `These may be named: ${images.join(", ")}.`;
  return image ? `${most} Left empty, it is ${image}.` : most;
}

/** Those of them that are names of images, and not patterns of many. */
export const namedImages = ({ image, images }: Pick<Provider, "image" | "images">): string[] =>
  [...new Set([...(image ? [image] : []), ...images])].filter((name) => !name.includes("*"));

const NEAR = 0.8;

/** What somebody has nearly used up, or has, in a sentence each; nothing while all is far away. */
export function limitWords(limits: Limits): string[] {
  const told: [Limits[keyof Limits], (used: string, max: string) => string, (count: number) => string][] = [
    [limits.running, (used, max) => `${used} of ${max} sandboxes run`, String],
    [limits.sessions, (used, max) => `You have ${used} of ${max} sessions`, String],
    [limits.stored, (used, max) => `You have stored ${used} of ${max}`, size],
  ];
  return told.flatMap(([{ used, max, setting }, say, count]) => (used !== null && used >= NEAR * max ? [`${say(count(used), count(max))} (${setting}).`] : []));
}

export function queueWords({ position, reason }: { position: number; reason: string | null }): string {
  const place = position === 1 ? "It is the next to start." : `It is number ${position} of those that wait to start.`;
  return reason ? `${place} ${reason.charAt(0).toUpperCase()}${reason.slice(1)}.` : place;
}
