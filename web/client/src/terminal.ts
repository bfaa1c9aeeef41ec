/**
 * A terminal for a page: the shell around `TerminalView`, on its own `Line` to `/terminal/{id}`.
 *
 * Output comes once and in order across every cut. Typed input waits for a connection, and goes to the process that it
 * was typed for or to none.
 */
import type { Access } from "./access.ts";
import { HoldfastError } from "./events.ts";
import { Linked } from "./linked.ts";
import type { TerminalEvents, TerminalPosition } from "./types.ts";
import { TerminalView } from "./viewing.ts";

export interface TerminalOptions {
  /** `view` watches: it neither types nor counts for the size. */
  role?: "drive" | "view";
  cols?: number;
  rows?: number;
}

const NAME = /^[A-Za-z0-9_-]{1,64}$/;

export class TerminalChannel extends Linked<TerminalEvents> {
  readonly name: string;
  readonly role: "drive" | "view";
  private view: TerminalView;
  private left: () => void;

  /** @internal made by `session.terminal` */
  constructor(access: Access, session: string, name: string, options: TerminalOptions, left: () => void) {
    if (!NAME.test(name)) throw new HoldfastError("invalid", "a terminal's name is letters, digits, - and _");
    super(access, `/terminal/${encodeURIComponent(session)}`, "holdfast.terminal.v1", session);
    const { role = "drive", cols, rows } = options;
    this.name = name;
    this.role = role;
    this.left = left;
    this.view = new TerminalView(name, role === "drive", cols && rows ? { cols, rows } : undefined);
  }

  /** The position of the screen: after which byte of which process; undefined while unknown. */
  get position(): TerminalPosition | undefined {
    return this.view.position;
  }

  /** Type; text is sent as UTF-8. False if that is too much (64 KiB without a connection, 8 MiB at once with one):
   * nothing of it was taken, and there is an `error` event `input_full`. */
  write(data: string | Uint8Array): boolean {
    const taken = this.view.type(typeof data === "string" ? new TextEncoder().encode(data) : data, this.line.live);
    if (!taken && this.role === "drive") this.trouble("input_full", "too much to type");
    this.flush();
    return taken;
  }

  /** The size that fits here. */
  resize(cols: number, rows: number): void {
    const side = (value: number) => Math.min(1000, Math.max(1, Math.trunc(value) || 1));
    this.view.resize({ cols: side(cols), rows: side(rows) });
    this.flush();
  }

  /** Send nothing until `resume`: the screen is not drawn yet. */
  pause(): void {
    this.view.flow(true);
    this.flush();
  }

  resume(): void {
    this.view.flow(false);
    this.flush();
  }

  /** Leave; the terminal goes on without this viewer. */
  close(): void {
    this.leave();
    this.left();
  }

  /** @internal */
  query(): Record<string, string | number> {
    return this.view.connecting();
  }

  /** @internal */
  hear(data: string | ArrayBuffer): void {
    for (const event of this.view.hear(data)) {
      if (event.type === "expiring") void this.renew();
      else {
        if (event.type === "ready") this.line.tell({ type: "greeted" });
        this.emit(event.type, event.event as never);
      }
    }
    this.flush();
  }

  private flush(): void {
    while (this.line.live) {
      const frame = this.view.next();
      if (frame === undefined) return;
      this.line.say(frame);
    }
  }
}
