// The terminals on the page: for tests, which read their screens, and for counting what survived.
import type { TerminalChannel } from "@holdfast/client";
import type { Terminal } from "@xterm/xterm";

declare global {
  interface Window {
    /** Name of a terminal -> its xterm.js Terminal. */
    holdfastTerminals: Map<string, Terminal>;
  }
}

window.holdfastTerminals = new Map();

const channels = new Map<string, TerminalChannel>();

/** From now on the terminal is known by its name; call what is returned when it is gone. */
export function hold(name: string, terminal: Terminal, channel: TerminalChannel): () => void {
  window.holdfastTerminals.set(name, terminal);
  channels.set(name, channel);
  return () => {
    if (window.holdfastTerminals.get(name) === terminal) window.holdfastTerminals.delete(name);
    if (channels.get(name) === channel) channels.delete(name);
  };
}

export function heldChannels(): ReadonlyMap<string, TerminalChannel> {
  return channels;
}
