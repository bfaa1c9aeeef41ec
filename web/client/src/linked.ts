/**
 * Shared by sessions, terminals and watches: a `Line` of their own, its state as an event, a token that is renewed when
 * the gateway asks for it, and an end.
 */
import type { Access } from "./access.ts";
import { Events } from "./events.ts";
import { Line, type LineOwner } from "./line.ts";
import type { Json, State } from "./types.ts";

const LONGEST_ABSENCE = 60; // seconds; a longer value of the gateway is ignored

interface Common {
  state: State;
  error: { code: string; error: string; frame?: unknown };
}

export abstract class Linked<Map extends Common> extends Events<Map> implements LineOwner {
  readonly path: string;
  readonly protocol: string;
  readonly session: string | undefined;
  readonly probe: string;
  protected access: Access;
  protected line: Line;

  constructor(access: Access, path: string, protocol: string, session?: string) {
    super();
    this.access = access;
    this.path = path;
    this.protocol = protocol;
    this.session = session;
    this.probe = session === undefined ? "/api/me" : `/api/sandboxes/${encodeURIComponent(session)}/status`;
    this.line = new Line(access, this);
    queueMicrotask(() => this.line.tell({ type: "start" })); // after the caller could add listeners
  }

  get state(): State {
    return this.line.state;
  }

  /** Close the connection, for good. */
  leave(): void {
    this.line.tell({ type: "leave" });
  }

  /** @internal */
  abstract query(): Record<string, string | number>;
  /** @internal */
  abstract hear(data: string | ArrayBuffer): void;

  /** @internal */
  changed(state: State): void {
    (this as Events<Common>).emit("state", state);
  }

  /** @internal */
  closed(_code: number): boolean {
    return false;
  }

  protected trouble(code: string, error: string, frame?: unknown): void {
    (this as Events<Common>).emit("error", { code, error, frame });
  }

  protected say(frame: Json): boolean {
    return this.line.live && this.line.say(JSON.stringify(frame));
  }

  /** The gateway restarts; returns the seconds to wait for it. */
  protected goodbye({ retryAfter }: Json): number {
    const seconds = Math.min(LONGEST_ABSENCE, Math.max(0, Number(retryAfter) || 0));
    this.line.tell({ type: "going_away", retryAfter: seconds * 1000 });
    return seconds;
  }

  /** The token ends soon: send another. If there is none, the next connection decides. */
  protected async renew(): Promise<void> {
    try {
      const token = await this.access.token("expiring");
      if (token) this.say({ type: "auth", token });
    } catch (error) {
      this.trouble("no_token", String(error));
    }
  }
}
