/**
 * A terminal on an xterm.js screen: `term.loadAddon(new HoldfastAddon(channel))`.
 *
 * Everything goes through `term.write`, in its order. So a size applies to the output written for it, and the
 * terminal's replies can be told from typing: while old bytes are parsed, the terminal's replies are dropped.
 *
 * Flow control: at most about `HIGH_WATER` received bytes wait to be parsed; then the gateway is asked to pause, and
 * below `LOW_WATER` to go on. Other viewers do not notice.
 */
import type { TerminalChannel } from "./terminal.ts";

export const HIGH_WATER = 512 << 10;
export const LOW_WATER = 128 << 10;
const CLEAR = "\x1bc";
// Device attributes, cursor and status reports, modes, window reports, focus; colours, the clipboard and settings.
const ANSWER = /^\x1b(\[[?>=]?[\d;]*(c|R|n|t|\$y)$|\[[IO]$|[\]P_])/;

interface Disposable {
  dispose(): void;
}

/** The used part of an `@xterm/xterm` Terminal. */
export interface ScreenTerminal {
  readonly cols: number;
  readonly rows: number;
  write(data: string | Uint8Array, callback?: () => void): void;
  resize(cols: number, rows: number): void;
  onData(listener: (data: string) => void): Disposable;
  onBinary(listener: (data: string) => void): Disposable;
  onResize(listener: (size: { cols: number; rows: number }) => void): Disposable;
}

export class HoldfastAddon {
  private channel: TerminalChannel;
  private term: ScreenTerminal | undefined;
  private undo: Array<() => void> = [];
  private parsing: boolean[] = []; // for each piece that the terminal has yet to parse: whether it is old
  private waiting = 0;
  private paused = false;
  private told = false; // a size from the gateway is not sent back to it

  constructor(channel: TerminalChannel) {
    this.channel = channel;
  }

  activate(term: ScreenTerminal): void {
    const { channel } = this;
    this.term = term;
    const listening = [
      term.onData((data) => this.type(data)),
      term.onBinary((data) => this.type(Uint8Array.from(data, (char) => char.charCodeAt(0)))),
      term.onResize(({ cols, rows }) => this.told || channel.resize(cols, rows)),
    ];
    this.undo = [
      ...listening.map((each) => () => each.dispose()),
      channel.on("ready", ({ goesOn, cols, rows }) => {
        if (!goesOn) this.write(CLEAR, true);
        this.size(cols, rows);
      }),
      channel.on("data", ({ data, old }) => this.write(data, old)),
      channel.on("reset", ({ data, cols, rows }) => {
        this.write(CLEAR, true);
        this.size(cols, rows);
        this.write(data, true);
      }),
      channel.on("resize", ({ cols, rows }) => this.size(cols, rows)),
    ];
    channel.resize(term.cols, term.rows);
  }

  /** The channel stays open: whoever opened it closes it. */
  dispose(): void {
    for (const undo of this.undo.splice(0)) undo();
    this.term = undefined;
    if (this.paused) this.channel.resume();
  }

  /** Typed input and the terminal's own replies. xterm.js does not tell them apart; only replies look like replies. */
  private type(data: string | Uint8Array): void {
    if (this.parsing[0] && typeof data === "string" && ANSWER.test(data)) return;
    this.channel.write(data);
  }

  /** In its turn: earlier output was written for the earlier size. */
  private size(cols: number, rows: number): void {
    this.write("", false, () => {
      if (this.term?.cols === cols && this.term.rows === rows) return;
      this.told = true;
      this.term?.resize(cols, rows);
      this.told = false;
    });
  }

  private write(data: string | Uint8Array, old: boolean, then?: () => void): void {
    this.parsing.push(old);
    this.waiting += data.length;
    this.term?.write(data, () => {
      this.parsing.shift();
      this.waiting -= data.length;
      then?.();
      if (this.paused && this.waiting <= LOW_WATER && this.term) this.flow(false);
    });
    if (!this.paused && this.waiting >= HIGH_WATER) this.flow(true);
  }

  private flow(paused: boolean): void {
    this.paused = paused;
    if (paused) this.channel.pause();
    else this.channel.resume();
  }
}
