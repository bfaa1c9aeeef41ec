/**
 * What the library needs of its environment: a clock, timers, random numbers, sockets, HTTP, and whether anybody looks.
 * One object, so that tests can replace it. Node has no page and no network events: there the page counts as visible
 * and online.
 */

export interface Platform {
  /** Milliseconds since 1970 by the clock at the time the page was loaded; from there on it only goes forward, even if
   * the clock is set. */
  now(): number;
  random(): number;
  /** Call `then` after so many milliseconds; the returned function cancels it. */
  after(milliseconds: number, then: () => void): () => void;
  socket(url: string, protocols: string[]): WebSocket;
  fetch(url: string, init: RequestInit): Promise<Response>;
  readonly online: boolean;
  readonly hidden: boolean;
  /** Call back at every change of `online` and `hidden`; the returned function stops that. */
  watch(changed: (what: "network" | "page") => void): () => void;
}

const LONGEST_TIMER = 0x7fffffff;

export const browser: Platform = {
  now: () => performance.timeOrigin + performance.now(),
  random: () => Math.random(),
  after(milliseconds, then) {
    const timer = setTimeout(then, Math.min(Math.max(0, milliseconds), LONGEST_TIMER));
    return () => clearTimeout(timer);
  },
  socket: (url, protocols) => new WebSocket(url, protocols),
  fetch: (url, init) => fetch(url, init),
  get online() {
    return globalThis.navigator?.onLine !== false;
  },
  get hidden() {
    return globalThis.document?.visibilityState === "hidden";
  },
  watch(changed) {
    const network = () => changed("network");
    const page = () => changed("page");
    const { document, addEventListener, removeEventListener } = globalThis;
    addEventListener?.("online", network);
    addEventListener?.("offline", network);
    document?.addEventListener("visibilitychange", page);
    return () => {
      removeEventListener?.("online", network);
      removeEventListener?.("offline", network);
      document?.removeEventListener("visibilitychange", page);
    };
  },
};
