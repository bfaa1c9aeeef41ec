/**
 * One connection that comes back: the shell around `Connection`. It opens sockets, keeps the one timer, listens to the
 * page and the network, and passes frames on. Its owner decides what to send, and when the connection counts as
 * greeted.
 */
import type { Access } from "./access.ts";
import { Connection, type Effect, type Happening } from "./connection.ts";
import { HoldfastError } from "./events.ts";
import type { State, Why } from "./types.ts";

export interface LineOwner {
  path: string;
  protocol: string;
  /** The session that a ticket opens; undefined: the socket shows the cookie itself. */
  session: string | undefined;
  /** The path to ask after a refused socket. */
  probe: string;
  /** The query of the next connection, which begins here. */
  query(): Record<string, string | number>;
  hear(data: string | ArrayBuffer): void;
  changed(state: State): void;
  /** The socket is gone. True: the cause was fixed, so coming back helps. */
  closed(code: number): boolean;
}

const LOOPBACK = /^https?:\/\/(localhost|127\.[\d.]+|\[::1\])(:|\/|$)/;

export class Line {
  private core: Connection;
  private socket: WebSocket | undefined;
  private attempt = 0; // its number: events of an older one are late
  private disarm: (() => void) | undefined;
  private armedFor = Infinity;
  private unwatch: () => void;
  private access: Access;
  private owner: LineOwner;
  private shown: State;

  constructor(access: Access, owner: LineOwner) {
    this.access = access;
    this.owner = owner;
    this.core = new Connection();
    this.shown = this.core.state;
    const { platform } = access;
    const look = (what: "network" | "page") =>
      this.tell(
        what === "page"
          ? { type: "page", hidden: platform.hidden }
          : { type: "network", online: platform.online || LOOPBACK.test(access.base) },
      );
    this.unwatch = platform.watch(look);
    look("page");
    look("network");
  }

  get state(): State {
    return this.core.state;
  }

  /** Whether it was greeted and frames may be sent: not while its socket closes. */
  get live(): boolean {
    return this.core.live && this.socket?.readyState === 1;
  }

  tell(event: Happening): void {
    const { platform } = this.access;
    this.settle(this.core.on(event, platform.now(), platform.random()));
  }

  /** Send a frame; false without a connection. */
  say(frame: string | Uint8Array): boolean {
    if (this.socket?.readyState !== 1) return false;
    this.socket.send(frame as string); // bytes work, too
    return true;
  }

  private settle(effects: Effect[]): void {
    for (const effect of effects) {
      if (effect.do === "open") void this.open(effect.why);
      else if (effect.do === "probe") void this.probe();
      else if (effect.do === "ping") this.say('{"type":"ping"}');
      else this.drop();
    }
    this.arm();
    if (this.shown === this.core.state) return;
    this.shown = this.core.state;
    if (this.shown.phase === "ended") this.unwatch();
    this.owner.changed(this.shown);
  }

  private async open(why: Why): Promise<void> {
    const attempt = ++this.attempt;
    const { path, protocol, session } = this.owner;
    let socket: WebSocket;
    try {
      const [url, protocols] = await this.access.socket(path, this.owner.query(), protocol, why, session);
      if (attempt !== this.attempt) return;
      socket = this.access.platform.socket(url, protocols);
    } catch (error) {
      if (attempt === this.attempt) this.refused(error);
      return;
    }
    let opened = false;
    this.socket = socket;
    this.core.opening(this.access.platform.now());
    this.arm();
    socket.binaryType = "arraybuffer";
    socket.onopen = () => (opened = true);
    socket.onmessage = ({ data }) => {
      if (this.socket !== socket) return;
      this.core.heard(this.access.platform.now());
      this.owner.hear(data);
    };
    socket.onclose = ({ code, reason }) => {
      if (this.socket !== socket) return;
      this.socket = undefined;
      const mended = this.owner.closed(code);
      this.tell({ type: "closed", code: mended ? 1006 : code, reason, opened });
    };
  }

  private async probe(): Promise<void> {
    const attempt = this.attempt;
    try {
      await this.access.ask("GET", this.owner.probe, undefined, false, false);
      if (attempt === this.attempt) this.tell({ type: "refused", status: 200, reason: "the socket did not open" });
    } catch (error) {
      if (attempt === this.attempt) this.refused(error);
    }
  }

  private refused(error: unknown): void {
    const { status = 0, message, retryAfter } = error as HoldfastError & { retryAfter?: number };
    this.tell({ type: "refused", status, reason: message, retryAfter });
  }

  private drop(): void {
    const socket = this.socket;
    this.attempt += 1;
    this.socket = undefined;
    if (!socket) return;
    this.owner.closed(1006);
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
  }

  /** One timer, moved only if it would ring too late: most deadlines are moved on by the next frame. */
  private arm(): void {
    const { deadline = Infinity } = this.core;
    if (this.disarm && deadline >= this.armedFor && deadline < Infinity) return;
    this.disarm?.();
    this.disarm = undefined;
    if (deadline === Infinity) return;
    this.armedFor = deadline;
    this.disarm = this.access.platform.after(deadline - this.access.platform.now(), () => {
      this.disarm = undefined;
      this.tell({ type: "due" });
    });
  }
}
