// Status words, explained for somebody who reads them for the first time.
import type { Agent, Mode } from "@holdfast/client";
import type { Agents, Limits, Network, Provider } from "./api.ts";
import { size } from "./panes/figures.ts";
import type { Sandbox, Status, SyncState } from "./sandbox.ts";
import type { Tone } from "./ui/badge.tsx";

export const STATUS: Record<Status, { word: string; tone: Tone; moving?: boolean; meaning: string }> = {
  starting: { word: "starting", tone: "info", moving: true, meaning: "Its sandbox is being started." },
  running: { word: "running", tone: "good", meaning: "Its sandbox runs." },
  sleeping: { word: "sleeping", tone: "plain", meaning: "Stopped, its files kept. A message wakes it." },
  paused: { word: "paused", tone: "warn", meaning: "Paused until somebody resumes it. Messages wait." },
  error: { word: "error", tone: "bad", meaning: "It could not be started." },
  unrestored: { word: "unrestored", tone: "bad", meaning: "Its files could not be restored." },
  needs_env: { word: "needs variables", tone: "warn", meaning: "The gateway was restarted and no longer has its secret variables." },
  archived: { word: "archived", tone: "plain", meaning: "Ended. The conversation is kept, its files are not." },
};

export const SYNC: Record<SyncState, { word: string; tone: Tone; moving?: boolean; meaning: string }> = {
  idle: { word: "idle", tone: "plain", meaning: "Everything is kept." },
  pending: { word: "pending", tone: "info", meaning: "Files changed; they are kept in a moment." },
  syncing: { word: "syncing", tone: "info", moving: true, meaning: "Reading and uploading what changed." },
  flushing: { word: "flushing", tone: "info", moving: true, meaning: "Writing the new generation down." },
  failed: { word: "failed", tone: "bad", meaning: "The last try to keep the files failed; the gateway tries again." },
  unrestored: { word: "unrestored", tone: "bad", meaning: "Nothing is kept until the files are back." },
};

export const nameOf = (sandbox: Sandbox): string => sandbox.title || sandbox.id;

/** What isolates a sandbox's programs. */
export const LEVEL: Record<string, string> = {
  trusted: "Plain programs of the gateway's user. They may do whatever that user may.",
  contained: "A box on the gateway's host: files, processes and system calls of its own.",
  container: "A container: its files are those of an image, it has no privileges and no network of its own.",
  isolated: "A container with a kernel of its own.",
};

/** Whether the store has nothing of it at all, so that what is on its disk may stay: the gateway names the way then. */
export const mayKeepDisk = (one: Pick<Sandbox, "status" | "reason">): boolean => one.status === "unrestored" && (one.reason ?? "").includes("{keep:true} to go on");

/** The meaning of the chosen network. */
export function networkWords(network: Network, most: Network, clones: boolean, possible: readonly Network[] = ["none", "outbound"]): string {
  if (network === "outbound") return "The sandbox reaches every public host, at the ports of the web. It reaches nothing of the gateway's own network, and nobody reaches it.";
  if (network === "hosts") return "The sandbox reaches these hosts and nothing else, such as api.anthropic.com, *.github.com, ssh.example.com:22.";
  const own = possible.includes("outbound");
  const inside = !clones ? "The sandbox reaches nothing outside." : own || most === "none" ? "Without a network nothing can be cloned." : "The sandbox reaches nothing outside. The gateway clones the repository for it.";
  if (!own) return most === "none" || clones ? inside : `${inside} Sandboxes there have no way out yet.`;
  return most === "none" ? `${inside} This gateway lets no user ask for more (HOLDFAST_NETWORK_MAX).` : inside;
}

/** The images that may be named at a provider, if there is a choice. */
export function imageWords({ image, images }: Pick<Provider, "image" | "images">): string {
  const any = images.some((pattern) => pattern === "*" || pattern === "**");
  const most = any ? "Any image may be named." : `These may be named: ${images.join(", ")}.`;
  return image ? `${most} Left empty, it is ${image}.` : most;
}

/** Those of them that are names of images, and not patterns of many. */
export const namedImages = ({ image, images }: Pick<Provider, "image" | "images">): string[] =>
  [...new Set([...(image ? [image] : []), ...images])].filter((name) => !name.includes("*"));

const NEAR = 0.8;

/** A sentence for each limit that is nearly or fully used up; nothing while all are far away. */
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

/** What an agent may do without asking, in the order of trust. */
export const MODE: Record<Mode, { word: string; meaning: string }> = {
  plan: { word: "Plan only", meaning: "It looks and plans, and changes nothing" },
  ask: { word: "Ask first", meaning: "It asks before it changes or runs something" },
  edits: { word: "Edit freely", meaning: "It edits files, and asks before it runs something" },
  all: { word: "Do everything", meaning: "It never asks. Only its sandbox limits it" },
};

/** In a session's description: a name, a command, a server, or nothing. */
type Chosen = Sandbox["agent"];

/** The name of a session's agent. If nothing was chosen, it is the gateway's own choice. */
export function agentName(chosen: Chosen, known: Agents | undefined): string {
  const command = chosen === null || typeof chosen === "string" ? [] : Array.isArray(chosen) ? chosen : [chosen.command].flat();
  const name = chosen === null ? (known?.default ?? "") : typeof chosen === "string" ? chosen : (command[0]?.split("/").at(-1) ?? "");
  return titleOf(name, known?.agents ?? []);
}

export function titleOf(name: string, known: readonly Agent[]): string {
  const found = known.find((one) => one.name === name || name.startsWith(`${one.name}@`));
  return found ? found.title.split(/[,:]/)[0] ?? name : name.length > 40 ? `${name.slice(0, 40)}…` : name;
}

/** The version at its next start, if no running one is known. */
export function versionOf(chosen: Chosen, known: Agents | undefined): string | undefined {
  const said = chosen ?? known?.default ?? "";
  if (typeof said !== "string") return undefined;
  const [name, version] = said.split("@");
  return version || (known?.agents.find((one) => one.name === name)?.current ?? undefined);
}

/** Whether it remembers the conversation; nothing if unknown. */
export function memoryWords(chosen: Chosen, known: Agents | undefined, forgot: boolean): string {
  if (forgot) return "It has forgotten an earlier part of the conversation.";
  const said = chosen ?? known?.default ?? "demo";
  const ofTheCatalogue = typeof said === "string" && !["demo", "none"].includes(said) && (known?.agents ?? []).some(({ name }) => name === said.split("@")[0]);
  return ofTheCatalogue ? "It remembers the conversation, also after it was stopped." : "";
}

/** Whether this is the built-in agent, for which the page has things to try. */
export const isDemo = (chosen: Chosen, known: Agents | undefined): boolean => (chosen ?? known?.default ?? "demo") === "demo";

// Of these no message goes into a running turn: it would wait like any other.
const NO_STEERING = ["demo", "none", "gemini"];

/** Whether an agent takes messages while it works. */
export function steers(chosen: Chosen, known: Agents | undefined): boolean {
  const said = chosen ?? known?.default ?? "demo";
  const name = typeof said === "string" ? said.split("@")[0] ?? "" : "";
  return !NO_STEERING.includes(name) && (known?.agents ?? []).some((one) => one.name === name);
}

const KEY: Record<string, string> = { "claude-code": "ANTHROPIC_API_KEY", codex: "OPENAI_API_KEY", gemini: "GEMINI_API_KEY" };

/** What a session with that agent needs, for somebody who is about to create one. */
export function agentHelp(name: string, network: Network): string {
  if (name === "demo") return "It needs no model: it repeats what you say, and does a few things on request.";
  if (name === "none") return "Terminals and files only. Nobody answers messages.";
  const key = KEY[name] ?? "the key of its model's provider";
  return `It needs ${key} among the environment variables${network === "none" ? ", and a network that reaches its model" : ""}, unless this gateway provides them.`;
}
