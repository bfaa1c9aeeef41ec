/**
 * All sessions of a user as they change: `/ws/events`. Every connection begins with the whole list, so coming back needs no
 * position; what is told in between is one change each.
 */
import { Access, type AccessOptions } from "./access.ts";
import { Events } from "./events.ts";
import { isObject, readObject, words } from "./frames.ts";
import { Line } from "./line.ts";
import { browser, type Platform } from "./platform.ts";
import type { Json, Sandbox, State, WatchEvents } from "./types.ts";

export interface WatchOptions extends Omit<AccessOptions, "tickets"> {
  platform?: Platform;
}

/** Watch the sessions of a user, until `leave`. */
export function watch(options: WatchOptions = {}): Watch {
  return new Watch(options);
}

export class Watch extends Events<WatchEvents> {
  private line: Line;
  private access: Access;

  constructor(options: WatchOptions) {
    super();
    this.access = new Access(options, options.platform ?? browser);
    this.line = new Line(this.access, {
      path: "/ws/events",
      protocol: "holdfast.events.v1",
      session: undefined,
      probe: "/api/me",
      pings: true,
      query: () => ({}),
      hear: (data) => this.hear(data),
      changed: (state) => this.emit("state", state),
      closed: () => false,
    });
    queueMicrotask(() => this.line.tell({ type: "start" }));
  }

  get state(): State {
    return this.line.state;
  }

  leave(): void {
    this.line.tell({ type: "leave" });
  }

  private hear(data: string | ArrayBuffer): void {
    const frame = readObject(data) ?? {};
    if (!this.read(frame)) this.emit("error", { code: "bad_frame", error: "an event that cannot be read", frame });
  }

  private read(frame: Json): boolean {
    switch (frame.type) {
      case "sandboxes": {
        const sandboxes = Array.isArray(frame.sandboxes) ? frame.sandboxes.filter(isSandbox) : [];
        this.line.tell({ type: "greeted" });
        this.emit("sandboxes", { sandboxes });
        return true;
      }
      case "sandbox":
        if (isSandbox(frame.sandbox)) this.emit("sandbox", { sandbox: frame.sandbox });
        return isSandbox(frame.sandbox);
      case "gone":
      case "sync":
        if (typeof frame.id === "string") this.emit(frame.type, frame as never);
        return typeof frame.id === "string";
      case "going_away":
        this.line.tell({ type: "going_away", retryAfter: Math.min(60, Number(frame.retryAfter) || 0) * 1000 });
        return true;
      case "auth_expiring":
        void this.renew();
        return true;
      case "error":
        this.emit("error", { code: words(frame.code) ?? "error", error: words(frame.error) ?? "", frame });
    }
    return typeof frame.type === "string"; // what is not known here is another gateway's news
  }

  private async renew(): Promise<void> {
    try {
      const token = await this.access.token("expiring");
      if (token) this.line.say(JSON.stringify({ type: "auth", token }));
    } catch (error) {
      this.emit("error", { code: "no_token", error: String(error) });
    }
  }
}

function isSandbox(value: unknown): value is Sandbox {
  return isObject(value) && typeof value.id === "string";
}
