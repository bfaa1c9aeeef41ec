/** `@holdfast/client`: sessions, terminals and a user's list of sessions, across every cut. See README.md.
 * The conversation as a page shows it is beside this: `@holdfast/client/transcript`; the xterm.js add-on: `.../xterm`. */
export { HoldfastError } from "./events.ts";
export { indexedDBOutbox, memoryOutbox, type Outbox } from "./outbox.ts";
export { type Platform } from "./platform.ts";
export { connect, Session, type ConnectOptions } from "./session.ts";
export { TerminalChannel, type TerminalOptions } from "./terminal.ts";
export { watch, Watch, type WatchOptions } from "./watching.ts";
export type * from "./types.ts";
