// A session as `GET /api/sandboxes` and the watch show it. The words are the protocol's.

import type { Pull } from "@holdfast/client";
import type { Reach } from "./api.ts";

export type { Pull };
export type Status = "starting" | "running" | "sleeping" | "paused" | "error" | "unrestored" | "needs_env" | "archived";
export type SyncState = "unrestored" | "idle" | "pending" | "syncing" | "flushing" | "failed";

/** One step of a workspace's sync, as the watch says it and `status` keeps the last 50 of. */
export interface SyncTransition {
  state: SyncState;
  generation: number | null;
  at: string;
  attempt?: number;
  reason?: string;
}

export interface Sync {
  state: SyncState;
  generation: number | null;
  lastSuccess: string | null;
  lastError: string | null;
  dirty: boolean;
  /** Why the workspace is an older one than it should be. */
  degraded: string | null;
  attempt?: number;
  restore?: unknown;
  /** Only where one session is asked for alone. */
  history?: SyncTransition[];
}

export interface Sandbox {
  id: string;
  userId: string;
  status: Status;
  reason: string | null;
  sandboxStatus: string;
  provider: string;
  level: string;
  /** As it was named; null: none, or the gateway's default at its first start. */
  image: string | null;
  /** The image that the name meant at the first start. */
  imageDigest: string | null;
  /** How much of its image is fetched, while its start waits for that. */
  pull?: Pull | null;
  incarnation: number;
  viewers: number;
  pending: number;
  lastSeq: number;
  createdAt: string;
  lastActiveAt: string;
  hasWorkspace: boolean;
  title: string | null;
  metadata: Record<string, unknown> | null;
  network: Reach;
  /** A name, a command, or a server; null: what the gateway runs unless told otherwise. */
  agent: string | string[] | { command: string | string[] } | null;
  /** The agent's identity and abilities; only in the answer for a single session. */
  agentStatus?: AgentStatus | null;
  repoUrl: string | null;
  repoBranch: string | null;
  sync: Sync | null;
  /** Its place among the sessions that wait to start; `reason`: the limit it waits for. */
  queue?: { position: number; reason: string | null } | null;
  /** Its limits and its usage, only in the answer for a single session; null: unknown. */
  limits?: ResourceLimits | null;
  usage?: ResourceUsage | null;
}

export interface AgentStatus {
  name: string | null;
  version: string | null;
  session: string | null;
  model: string | null;
  mode: string | null;
  state: string;
}

/** Of all its programs together; null: no limit. */
export interface ResourceLimits {
  memory: number | null;
  cpus: number | null;
  pids: number | null;
}

/** The same; null: not measured. */
export interface ResourceUsage {
  memory: number | null;
  cpuSeconds: number | null;
  pids: number | null;
}
