/**
 * What one viewer of a terminal knows and owes, in the native dialect. Pure: frames go in, in order, and events for a screen
 * come out; what a person types goes in, and frames for the gateway come out. A connection may end at any byte. Three things
 * make coming back exact:
 *
 * - The position is counted here: `ready` says where it begins, and every byte of output is one further. A picture of the
 *   screen is not output and is not counted.
 * - The position is only worth something together with what is on the screen. It is void from a `reset` until its picture
 *   has come, and from a `ready` that does not go on from here until what follows it has come: a connection that ends in
 *   between would otherwise resume at a position whose screen was never painted.
 * - What was typed and not yet sent is for the process it was typed for. It waits while there is no connection, up to
 *   `MOST_TYPED` bytes, and is thrown away when another process is found, or none (`absent`). What is typed after that is for
 *   the next one: the gateway keeps it until that is up. While there is a connection nothing waits here: a long paste is
 *   sent in pieces, and the gateway reads them as fast as the program does.
 *
 * Of sizes and of pause and resume only the newest is said, and again on every connection.
 */
import { isCount, readObject, words } from "./frames.ts";
import type { Json, TerminalEvents, TerminalPosition } from "./types.ts";

export const MOST_TYPED = 64 << 10;
export const MOST_AT_ONCE = 8 << 20;
export const TYPED_FRAME = 16 << 10;
const LARGEST_SIDE = 1000;

export interface Size {
  cols: number;
  rows: number;
}

/** What a screen is to be told, in order; `expiring`: renew the token; `greeted`: the connection is there. */
export type ViewEvent =
  | { [Type in keyof TerminalEvents]: { type: Type; event: TerminalEvents[Type] } }[keyof TerminalEvents]
  | { type: "expiring" };

export class TerminalView {
  private name: string;
  private drives: boolean;
  private wanted: Size | undefined;
  private size: Size;
  private epoch = "";
  private offset = 0;
  private known = false; // the position says what is on the screen
  private stage: "away" | "here" | "painting" = "away"; // no greeting yet; counting; the next bytes are a picture
  private replay = 0; // bytes still to come that are old
  private typed: Uint8Array[] = [];
  private said = new Map<string, Json>(); // control frames to send, the newest of each kind
  private paused = false;
  /** Bytes typed that are still here. */
  unsent = 0;

  constructor(name: string, drives: boolean, wanted: Size | undefined) {
    this.name = name;
    this.drives = drives;
    this.wanted = wanted;
    this.size = wanted ?? { cols: 80, rows: 24 };
  }

  /** Where the program's output goes on after what is on the screen; undefined: only the whole screen would help. */
  get position(): TerminalPosition | undefined {
    return this.known ? { epoch: this.epoch, offset: this.offset } : undefined;
  }

  /** The query of the next connection, which begins here. */
  connecting(): Record<string, string | number> {
    this.stage = "away";
    this.replay = 0;
    this.said.clear();
    return { name: this.name, ...(!this.drives && { role: "view" }), ...this.wanted, ...this.position };
  }

  // what the person does

  /** Take typed bytes; false if that is too much, and nothing of it was taken. `live`: they are sent at once. */
  type(keys: Uint8Array, live: boolean): boolean {
    if (!this.drives || this.unsent + keys.length > (live ? MOST_AT_ONCE : MOST_TYPED)) return false;
    for (let at = 0; at < keys.length; at += TYPED_FRAME) this.typed.push(keys.slice(at, at + TYPED_FRAME));
    this.unsent += keys.length;
    return true;
  }

  resize(size: Size): void {
    this.wanted = size;
    if (this.stage !== "away" && this.drives) this.said.set("resize", { type: "resize", ...size });
  }

  flow(paused: boolean): void {
    this.paused = paused;
    if (this.stage !== "away") this.said.set("flow", { type: paused ? "pause" : "resume" });
  }

  /** The next frame to send: text for control, bytes for typing. */
  next(): string | Uint8Array | undefined {
    if (this.stage === "away") return undefined;
    for (const [kind, frame] of this.said) {
      this.said.delete(kind);
      return JSON.stringify(frame);
    }
    const piece = this.typed.shift();
    this.unsent -= piece?.length ?? 0;
    return piece;
  }

  // // the gateway's frames

  hear(frame: string | ArrayBuffer): ViewEvent[] {
    return typeof frame === "string" ? this.text(readObject(frame)) : this.bytes(new Uint8Array(frame));
  }

  private bytes(data: Uint8Array): ViewEvent[] {
    const { epoch, stage } = this;
    if (stage === "away") return bad("no greeting yet");
    this.known = true;
    if (stage === "painting") {
      this.stage = "here";
      return [{ type: "reset", event: { data, epoch, ...this.size } }];
    }
    this.offset += data.length;
    const old = Math.min(this.replay, data.length);
    this.replay -= old;
    const pieces = [
      { data: data.subarray(0, old), old: true },
      { data: data.subarray(old), old: false },
    ];
    return pieces.flatMap((event) => (event.data.length ? [{ type: "data" as const, event }] : []));
  }

  private text(frame: Json | undefined): ViewEvent[] {
    if (!frame) return bad("a bad frame");
    const { type, epoch, offset } = frame;
    const size = readSize(frame);
    if (this.stage === "away" && (type === "reset" || type === "exit" || type === "resize")) return bad("no greeting yet");
    switch (type) {
      case "ready":
        if (typeof epoch !== "string" || !isCount(offset) || !isCount(frame.replayed) || !size) return bad("a bad ready");
        return this.greeted(epoch, offset, frame.replayed, size, frame.absent);
      case "reset":
        if (typeof epoch !== "string" || !isCount(offset)) return bad("a bad reset");
        this.moved(epoch, offset);
        this.stage = "painting";
        this.known = false;
        this.replay = 0;
        this.size = size ?? this.size;
        return [];
      case "exit": {
        const { code, signal } = frame;
        return [{ type, event: { code: typeof code === "number" ? code : null, signal: words(signal) ?? null } }];
      }
      case "resize":
        if (!size) return bad("a bad size");
        this.size = size;
        return [{ type, event: size }];
      case "status":
        return [{ type, event: { status: words(frame.status) ?? "" } }];
      case "error":
        return [{ type, event: { code: words(frame.code) ?? "error", error: words(frame.error) ?? "" } }];
      case "auth_expiring":
        return [{ type: "expiring" }];
    }
    return [];
  }

  private greeted(epoch: string, offset: number, replayed: number, size: Size, absent: unknown): ViewEvent[] {
    const goesOn = this.known && this.epoch === epoch && this.offset === offset;
    this.stage = "here";
    this.known = goesOn;
    this.replay = replayed;
    this.size = size;
    this.moved(epoch, offset, absent);
    if (this.wanted) this.resize(this.wanted);
    if (this.paused) this.flow(true);
    return [{ type: "ready", event: { epoch, ...size, goesOn, absent: !epoch } }];
  }

  private moved(epoch: string, offset: number, gone?: unknown): void {
    if (this.epoch && (gone || this.epoch !== epoch)) {
      this.typed = [];
      this.unsent = 0;
    }
    this.epoch = epoch;
    this.offset = offset;
  }
}

function bad(error: string): ViewEvent[] {
  return [{ type: "error", event: { code: "bad_frame", error } }];
}

function readSize({ cols, rows }: Json): Size | undefined {
  const fine = [cols, rows].every((side) => isCount(side) && side > 0 && side <= LARGEST_SIDE);
  return fine ? { cols: cols as number, rows: rows as number } : undefined;
}
