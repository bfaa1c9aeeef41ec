// The progress of fetching an image, from frames and in words. Pure.
import { count, size } from "./panes/figures.ts";
import type { Pull } from "./sandbox.ts";

export type { Pull };

/** The known progress after a `session_status` or `connection_status`; in any other state the session does not pull. */
export function pullIn(said: { status?: string } & Partial<Pull>, before: Pull | undefined): Pull | undefined {
  if (said.status === undefined) return before;
  if (said.status !== "pulling" || typeof said.image !== "string") return undefined;
  const { image, layers = 0, ofLayers = 0, bytes = 0, ofBytes = 0 } = said;
  return { image, layers, ofLayers, bytes, ofBytes };
}

/** 0 to 1 of what is known to come; undefined while nothing is. */
export function fetched({ layers, ofLayers, bytes, ofBytes }: Pull): number | undefined {
  if (ofBytes > 0) return Math.min(1, bytes / ofBytes);
  return ofLayers > 0 ? Math.min(1, layers / ofLayers) : undefined;
}

export function pullWords({ image, layers, ofLayers, bytes, ofBytes }: Pull): string {
  const parts = [...(ofLayers ? [`${layers} of ${count(ofLayers, "layer")}`] : []), ...(ofBytes ? [`${size(Math.min(bytes, ofBytes))} of ${size(ofBytes)}`] : [])];
  return `Fetching the image ${image}${parts.length ? `: ${parts.join(", ")}` : ""}.`;
}
