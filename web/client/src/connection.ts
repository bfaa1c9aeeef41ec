/**
 * When to be connected. Pure: events go in with the time, effects come out.
 *
 * One connection at a time, in one of these steps:
 *
 *   opening -> live            a token and then a socket were requested; the gateway greeted (`welcome`, `ready`)
 *   opening -> probing         it never opened: a browser does not say why, so the gateway is asked over HTTP
 *   resting                    waiting for `deadline`, for the network, or for somebody to look at the page
 *   ended                      coming back would not help; nothing happens any more
 *
 * A close code decides whether to come back; so does an HTTP status, if there is one. After a refused token the client
 * asks for another one, once and at once. If that is refused before a connection has lasted, it ends. Pauses grow, with
 * full jitter, and begin anew at each greeting. A gateway that goes away says how long to wait at least.
 *
 * A live, silent connection gets a `ping` after a while, and at once when the page becomes visible or the network has
 * changed. Without an answer it is dropped: half-open connections look like patient ones.
 *
 * Never: two sockets, an endless pause, an attempt after `ended`.
 */
import { isFinal, pause, reasonOf } from "./returning.ts";
import type { State, Why } from "./types.ts";

export const TOKEN_WITHIN = 30_000; // a token, or a ticket
export const STUCK_AFTER = 5_000; // without a token; then a visible page requests another one
export const OPEN_WITHIN = 20_000; // a restarting gateway may take 10 s to find what it can resume
export const PROBE_WITHIN = 10_000;
export const QUIET_FOR = 25_000;
export const PONG_WITHIN = 8_000;
export const OFFLINE_FOR = 30_000; // a browser may be wrong about its network
const LASTED = 10_000;
const TOO_MANY_PAUSE = 2_000;
const HOPELESS = [400, 403, 404, 426]; // the same request would be refused again

/** What the caller must do: open a socket, with a token requested for `why`; ask over HTTP; send a ping; drop the
 * socket. */
export type Effect = { do: "open"; why: Why } | { do: "probe" | "ping" | "drop" };

export type Happening =
  | { type: "start" | "greeted" | "due" | "leave" }
  | { type: "closed"; code: number; reason?: string; opened: boolean }
  /** An HTTP answer instead of a socket; 0: no answer. `retryAfter` in milliseconds. */
  | { type: "refused"; status: number; reason?: string; retryAfter?: number }
  | { type: "going_away"; retryAfter: number }
  | { type: "network"; online: boolean }
  | { type: "page"; hidden: boolean };

export class Connection {
  state: State = { phase: "connecting", attempt: 0 };
  /** When the caller sends `due`; undefined: never. */
  deadline: number | undefined;
  private step: "idle" | "opening" | "live" | "probing" | "resting" | "ended" = "idle";
  private online = true;
  private hidden = false;
  private asked = false; // another token was requested since the last connection that lasted
  private pinged = false;
  private begunAt = Infinity; // when the pending request for a token began
  private greetedAt = 0;
  private notBefore = 0; // set by a gateway that goes away

  get live(): boolean {
    return this.step === "live";
  }

  on(event: Happening, now: number, random: number): Effect[] {
    if (this.step === "ended") return [];
    switch (event.type) {
      case "start":
        return this.step !== "idle" ? [] : this.online ? this.open(now) : this.rest(now, random);
      case "greeted":
        if (this.step !== "opening") return [];
        this.step = "live";
        this.greetedAt = now;
        this.notBefore = 0;
        this.state = { phase: "online", attempt: 0 };
        this.heard(now);
        return [];
      case "closed":
        return this.closed(event, now, random);
      case "refused":
        return this.refused(event, now, random);
      case "going_away":
        this.notBefore = now + event.retryAfter;
        return [];
      case "network":
        this.online = event.online;
        if (this.step === "resting" && !event.online) return this.rest(now, random);
        return this.wake(now, event.online);
      case "page":
        this.hidden = event.hidden;
        return this.wake(now, !event.hidden);
      case "due":
        return this.deadline === undefined || now < this.deadline ? [] : this.due(now, random);
      case "leave":
        return this.end("left", undefined);
    }
  }

  /** Data came: the connection is not half-open. Called for every frame, so it is cheap. */
  heard(now: number): void {
    if (this.step !== "live") return;
    this.pinged = false;
    this.deadline = now + QUIET_FOR;
  }

  private due(now: number, random: number): Effect[] {
    switch (this.step) {
      case "resting":
        return this.open(now);
      case "live":
        return this.pinged ? this.lose("no sign of life", now, random) : this.ping(now);
      case "opening":
        return this.lose("no answer", now, random);
      default:
        return this.rest(now, random); // a probe without an answer counts as a failed one
    }
  }

  private closed(event: Happening & { type: "closed" }, now: number, random: number): Effect[] {
    const was = this.step;
    if (was !== "live" && was !== "opening") return [];
    if (was === "live" && now - this.greetedAt >= LASTED) this.asked = false;
    const reason = reasonOf(event.code, event.reason);
    if (event.code === 4401) return this.askAgain(4401, reason, now);
    if (isFinal(event.code)) return this.end(reason, event.code);
    if (!event.opened) {
      this.step = "probing";
      this.deadline = now + PROBE_WITHIN;
      return [{ do: "probe" }];
    }
    return this.rest(now, random, reason, event.code, event.code === 4429 ? TOO_MANY_PAUSE : 0);
  }

  private refused(event: Happening & { type: "refused" }, now: number, random: number): Effect[] {
    if (this.step !== "opening" && this.step !== "probing") return [];
    const { status, retryAfter = status === 429 ? TOO_MANY_PAUSE : 0 } = event;
    const reason = event.reason || (status ? `the gateway answered ${status}` : "the gateway cannot be reached");
    if (status === 401) return this.askAgain(401, reason, now);
    if (HOPELESS.includes(status)) return this.end(reason, status);
    return this.rest(now, random, reason, status || undefined, retryAfter);
  }

  private askAgain(code: number, reason: string, now: number): Effect[] {
    if (this.asked) return this.end(reason, code);
    this.asked = true;
    return this.open(now, "refused");
  }

  /** Somebody looks, or the network changed: a waiting connection goes on at once, a live one must answer a ping. */
  private wake(now: number, really: boolean): Effect[] {
    if (this.step === "live") return !this.pinged ? this.ping(now) : [];
    if (this.step === "opening" && really && now - this.begunAt > STUCK_AFTER) return [...this.drop(), ...this.open(now)];
    return this.step === "resting" && really && now >= this.notBefore ? this.open(now) : [];
  }

  private ping(now: number): Effect[] {
    this.pinged = true;
    this.deadline = now + PONG_WITHIN;
    return [{ do: "ping" }];
  }

  private open(now: number, why: Why = "connect"): Effect[] {
    this.step = "opening";
    this.begunAt = now;
    this.deadline = now + TOKEN_WITHIN;
    this.state = { ...this.state, phase: "connecting", retryAt: undefined };
    return [{ do: "open", why }];
  }

  /** The token is there and the socket requested: from now on the other end has `OPEN_WITHIN`. */
  opening(now: number): void {
    this.begunAt = Infinity;
    this.deadline = now + OPEN_WITHIN;
  }

  /** Give the connection up without waiting for the other end. */
  private lose(reason: string, now: number, random: number): Effect[] {
    return [...this.drop(), ...this.rest(now, random, reason, 1006)];
  }

  private drop(): Effect[] {
    if (this.begunAt < Infinity) this.asked = false; // the page gave no other token
    return [{ do: "drop" }];
  }

  private rest(now: number, random: number, reason = this.state.reason, code = this.state.code, least = 0): Effect[] {
    const attempt = this.state.attempt + (this.step === "resting" ? 0 : 1);
    const jitter = pause(Math.max(0, attempt - 1), random, this.hidden);
    const until = this.online ? Math.max(now + least, this.notBefore) + jitter : now + OFFLINE_FOR;
    this.step = "resting";
    this.deadline = until;
    this.state = { phase: this.online ? "waiting" : "offline", attempt, retryAt: until, reason, code };
    return [];
  }

  private end(reason: string, code: number | undefined): Effect[] {
    const open = this.step === "live" || this.step === "opening";
    this.step = "ended";
    this.deadline = undefined;
    this.state = { phase: "ended", attempt: this.state.attempt, reason, code };
    return open ? [{ do: "drop" }] : [];
  }
}
