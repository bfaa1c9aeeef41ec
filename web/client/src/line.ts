/**
 * One connection that comes back: the shell around `Connection`. It opens sockets, keeps the one timer, listens to the page
 * and the network, and hands frames on. What is said on it, and when it is greeted, is its owner's.
 */
import type { Access } from "./access.ts";
import { Connection, type Effect, type Happening } from "./connection.ts";
import { HoldfastError } from "./events.ts";
import type { State, Why } from "./types.ts";

export interface LineOwner {
  path: string;
  protocol: string;
  /** What a ticket is for; undefined: the cookie is shown to the socket itself. */
  session: string | undefined;
  /** What to ask where a socket was refused. */
  probe: string;
  /** The query of the next connection, which begins here. */
  query(): Record<string, string | number>;
  hear(data: string | ArrayBuffer): void;
  changed(state: State): void;
  /** The socket is gone, whatever comes of it. True: what was wrong with it was mended, so that coming back helps. */
  closed(code: number): boolean;
}

const LOOPBACK = /^https?:\/\/(localhost|127\.[\d.]+|\[::1\])(:|\/|$)/;

export class Line {
  private core: Connection;
  private socket: WebSocket | undefined;
  private attempt = 0; // its number: what an older one brings is late
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

  /** Whether it was greeted, and may be spoken on: not while its socket closes. */
  get live(): boolean {
    return this.core.live && this.socket?.readyState === 1;
  }

  tell(event: Happening): void {
    const { platform } = this.access;
    this.settle(this.core.on(event, platform.now(), platform.random()));
  }

  /** Say something; false if there is nobody to say it to. */
  say(frame: string | Uint8Array): boolean {
    if (this.socket?.readyState !== 1) return false;
    this.socket.send(frame as string); // bytes are as good
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

  /** One timer, set anew only where it would ring too late: most are overtaken by the next frame. */
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
