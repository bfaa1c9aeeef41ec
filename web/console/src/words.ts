// Status words and what they mean to somebody who reads them for the first time.
import type { Network } from "./api.ts";
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

/** Whether the store has nothing of it at all, so that what is on its disk may stay: the gateway names the way then. */
export const mayKeepDisk = (one: Pick<Sandbox, "status" | "reason">): boolean => one.status === "unrestored" && (one.reason ?? "").includes("{keep:true} to go on");

/** What the chosen network means. With `outbound` the host's network is shared, and nothing less is true of it. */
export function networkWords(network: Network, most: Network, clones: boolean): string {
  if (network === "outbound") return "The sandbox shares the host's network: it reaches the outside, the host's own services and what others run there, and it can be reached.";
  const inside = clones ? "Without a network nothing can be cloned." : "The sandbox reaches nothing outside.";
  return most === "none" ? `${inside} This gateway lets no user ask for more (HOLDFAST_NETWORK_MAX).` : inside;
}
