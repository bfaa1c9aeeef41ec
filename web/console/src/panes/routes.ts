// Routes that only the panes ask: snapshots, and files in pieces.
import { fetchFrom } from "../api.ts";
import type { Sandbox } from "../sandbox.ts";

export interface Snapshot {
  generation: number;
  at: string;
  files: number;
  bytes: number;
  pinned: string | null;
  note: string | null;
}

export interface Snapshots {
  snapshots: Snapshot[];
  newest: number | null;
  origin: string | null;
}

export interface Changed {
  path: string;
  type: string;
  size: number;
  content?: boolean; // of a changed one: false if only its mode or time did
}

export interface Diff {
  from: number;
  to: number;
  added: Changed[];
  changed: Changed[];
  removed: Changed[];
  counts: { added: number; changed: number; removed: number };
  truncated: boolean;
}

const below = (id: string): string => `/api/sandboxes/${encodeURIComponent(id)}/snapshots`;

export async function snapshots(id: string): Promise<Snapshots> {
  return (await (await fetchFrom(below(id))).json()) as Snapshots;
}

/** The changes that turn generation `from` into `to`. */
export async function diff(id: string, from: number, to: number): Promise<Diff> {
  return (await (await fetchFrom(`${below(id)}/${from}/diff?to=${to}`)).json()) as Diff;
}

/** A new session that begins with that generation's tree. */
export async function branch(id: string, generation: number): Promise<Sandbox> {
  return (await (await fetchFrom(`${below(id)}/${generation}/branch`, { method: "POST" })).json()) as Sandbox;
}

export const tarAddress = (id: string, generation: number): string => `${below(id)}/${generation}/export`;
