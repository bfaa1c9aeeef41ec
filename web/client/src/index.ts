/** `@holdfast/client`: sessions and their terminals, across every cut. See README.md. Beside this, for pages that want them:
 * the conversation as it is shown, `.../transcript`; a user's list of sessions, `.../watch`; the xterm.js add-on, `.../xterm`. */
export { HoldfastError } from "./events.ts";
export { indexedDBOutbox, memoryOutbox, type Outbox } from "./outbox.ts";
export { type Platform } from "./platform.ts";
export { connect, Session, type ConnectOptions } from "./session.ts";
export { TerminalChannel, type TerminalOptions } from "./terminal.ts";
export type * from "./types.ts";
