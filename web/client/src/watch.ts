/**
 * All sessions of a user as they change: `/ws/events`. Every connection begins with the whole list, so coming back
 * needs no position; each later frame is one change.
 */
import { Access, type AccessOptions } from "./access.ts";
import { isObject, readObject, words } from "./frames.ts";
import { Linked } from "./linked.ts";
import { browser, type Platform } from "./platform.ts";
import type { Json, Sandbox, WatchEvents } from "./types.ts";

export interface WatchOptions extends Omit<AccessOptions, "tickets"> {
  platform?: Platform;
}

/** Watch the sessions of a user, until `leave`. */
export function watch(options: WatchOptions = {}): Watch {
  return new Watch(options);
}

export class Watch extends Linked<WatchEvents> {
  private listed: Sandbox[] = []; // of a list that comes in several frames

  constructor(options: WatchOptions) {
    super(new Access({ ...options, tickets: false }, options.platform ?? browser), "/ws/events", "holdfast.events.v1");
  }

  /** @internal */
  query(): Record<string, string> {
    this.listed = []; // the lost connection may have been in the middle of a list
    return {};
  }

  /** @internal */
  hear(data: string | ArrayBuffer): void {
    const frame = readObject(data) ?? {};
    if (!this.read(frame)) this.trouble("bad_frame", "an event that cannot be read", frame);
  }

  private read(frame: Json): boolean {
    switch (frame.type) {
      case "sandboxes": {
        const sandboxes = this.listed.concat(Array.isArray(frame.sandboxes) ? frame.sandboxes.filter(isSandbox) : []);
        this.line.tell({ type: "greeted" });
        this.listed = frame.more === true ? sandboxes : [];
        if (frame.more !== true) this.emit("sandboxes", { sandboxes });
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
        this.goodbye(frame);
        return true;
      case "auth_expiring":
        void this.renew();
        return true;
      case "error":
        this.trouble(words(frame.code) ?? "error", words(frame.error) ?? "", frame);
    }
    return typeof frame.type === "string"; // an unknown type is news of a newer gateway
  }
}

function isSandbox(value: unknown): value is Sandbox {
  return isObject(value) && typeof value.id === "string";
}
