/** The add-on at a terminal that parses when it is told to. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Events } from "../src/events.ts";
import type { TerminalChannel } from "../src/terminal.ts";
import type { TerminalEvents } from "../src/types.ts";
import { HIGH_WATER, HoldfastAddon, LOW_WATER, type ScreenTerminal } from "../src/xterm.ts";

class Channel extends Events<TerminalEvents> {
  typed: string[] = [];
  sizes: string[] = [];
  flow: string[] = [];
  write(data: string | Uint8Array): boolean {
    this.typed.push(typeof data === "string" ? data : [...data].join());
    return true;
  }
  resize(cols: number, rows: number): void {
    this.sizes.push(`${cols}x${rows}`);
  }
  pause(): void {
    this.flow.push("pause");
  }
  resume(): void {
    this.flow.push("resume");
  }
}

class Screen implements ScreenTerminal {
  cols = 80;
  rows = 24;
  shown = "";
  private queue: Array<{ data: string | Uint8Array; then?: () => void }> = [];
  private listeners: Record<string, (event: never) => void> = {};
  private on(name: string) {
    return (listener: (event: never) => void) => {
      this.listeners[name] = listener;
      return { dispose: () => delete this.listeners[name] };
    };
  }
  onData = this.on("data") as ScreenTerminal["onData"];
  onBinary = this.on("binary") as ScreenTerminal["onBinary"];
  onResize = this.on("resize") as ScreenTerminal["onResize"];
  say(name: string, event: unknown): void {
    this.listeners[name]?.(event as never);
  }
  get listening(): number {
    return Object.keys(this.listeners).length;
  }
  write(data: string | Uint8Array, then?: () => void): void {
    this.queue.push({ data, then });
  }
  resize(cols: number, rows: number): void {
    Object.assign(this, { cols, rows });
    this.say("resize", { cols, rows });
  }
  /** Parse the next piece; `answers` is what the terminal says by itself meanwhile. */
  parse(answers?: string): void {
    const { data, then } = this.queue.shift()!;
    this.shown += typeof data === "string" ? data : new TextDecoder().decode(data);
    if (answers) this.say("data", answers);
    then?.();
  }
  parseAll(): void {
    while (this.queue.length) this.parse();
  }
}

function place(): { channel: Channel; screen: Screen; addon: HoldfastAddon } {
  const [channel, screen] = [new Channel(), new Screen()];
  const addon = new HoldfastAddon(channel as unknown as TerminalChannel);
  addon.activate(screen);
  return { channel, screen, addon };
}
const data = (text: string, old = false) => ({ data: new TextEncoder().encode(text), old });

test("what the terminal answers to old bytes is kept back, and what is typed meanwhile is not", () => {
  const { channel, screen } = place();
  channel.emit("data", data("old question", true));
  channel.emit("data", data("new question"));
  screen.say("data", "typed");
  screen.say("data", "\x1b[A");
  screen.parse("\x1b[?1;2c");
  screen.parse("\x1b[?1;2c");
  assert.deepEqual(channel.typed, ["typed", "\x1b[A", "\x1b[?1;2c"]);
  screen.say("binary", "\x00\xff");
  assert.equal(channel.typed.at(-1), "0,255");
});

test("a picture replaces what is shown, at its size, and the gateway is not told its own size", () => {
  const { channel, screen } = place();
  channel.emit("ready", { epoch: "e", cols: 80, rows: 24, goesOn: true, absent: false });
  channel.emit("data", data("before"));
  channel.emit("reset", { data: new TextEncoder().encode("picture"), epoch: "f", cols: 100, rows: 30 });
  assert.equal(screen.cols, 80, "in its turn");
  screen.parseAll();
  assert.equal(screen.shown, "before\x1bcpicture");
  assert.deepEqual([screen.cols, screen.rows], [100, 30]);
  screen.resize(90, 20);
  assert.deepEqual(channel.sizes, ["80x24", "90x20"]);
});

test("of what is not parsed there is a bound: the gateway pauses, and goes on", () => {
  const { channel, screen, addon } = place();
  const piece = { data: new Uint8Array(64 << 10), old: false };
  for (let n = 0; n * piece.data.length < HIGH_WATER; n++) channel.emit("data", piece);
  assert.deepEqual(channel.flow, ["pause"]);
  for (let left = HIGH_WATER; left > LOW_WATER + piece.data.length; left -= piece.data.length) screen.parse();
  assert.deepEqual(channel.flow, ["pause"]);
  screen.parse();
  assert.deepEqual(channel.flow, ["pause", "resume"]);
  addon.dispose();
  assert.equal(screen.listening, 0);
  channel.emit("data", piece);
  screen.parseAll();
  assert.deepEqual(channel.flow, ["pause", "resume"]);
});
