/**
 * How a page proves who it is, and asks over HTTP.
 *
 * With `getToken`: a JWT, fresh for every connection, and reused for HTTP requests in between. Without it: the cookie
 * that the browser adds by itself. A socket gets the JWT as a sub-protocol. If there is no JWT, or the page prefers it,
 * the socket gets a one-time ticket: a ticket in a URL is worthless a moment later.
 *
 * `ask` throws HoldfastError and nothing else: `status` is the HTTP status, 0 without an answer. After a refused token
 * it asks for another one, once.
 */
import { HoldfastError } from "./events.ts";
import { isObject, words } from "./frames.ts";
import type { Platform } from "./platform.ts";
import type { GetToken, Json, Why } from "./types.ts";

const ANSWER_WITHIN = 30_000;

export interface AccessOptions {
  /** Of the gateway: `https://gateway.example.com`, or where the page itself comes from. */
  url?: string;
  getToken?: GetToken;
  tickets?: boolean;
}

export class Access {
  readonly base: string;
  readonly platform: Platform;
  private getToken: GetToken | undefined;
  private tickets: boolean;
  private last: string | undefined;

  constructor(options: AccessOptions, platform: Platform) {
    this.base = (options.url ?? globalThis.location?.origin ?? "").replace(/^ws/, "http").replace(/\/+$/, "");
    this.platform = platform;
    this.getToken = options.getToken;
    this.tickets = options.tickets ?? !options.getToken;
  }

  /** A token; undefined if there is only the cookie. */
  async token(why: Why): Promise<string | undefined> {
    if (!this.getToken) return undefined;
    try {
      const token: unknown = await this.getToken(why);
      if (typeof token !== "string" || !token) throw new HoldfastError("no_token", "getToken gave no token");
      return (this.last = token);
    } catch (error) {
      if (error instanceof HoldfastError) throw error;
      const { status, message } = isObject(error) ? (error as Json) : ({} as Json);
      throw new HoldfastError("no_token", words(message) ?? "getToken failed", typeof status === "number" ? status : 0);
    }
  }

  /** A socket's address and sub-protocols. `session` is the session that a ticket opens; without one the socket shows
   * the cookie itself. */
  async socket(
    path: string,
    query: Record<string, string | number>,
    protocol: string,
    why: Why,
    session: string | undefined,
  ): Promise<[url: string, protocols: string[]]> {
    const protocols = [protocol];
    const asked = new URLSearchParams(Object.entries(query).map(([name, value]) => [name, String(value)]));
    if (this.tickets && session !== undefined) {
      const answer = await this.ask("POST", "/api/tickets", { sessionId: session }, why === "refused", false);
      asked.set("ticket", words(answer.ticket) ?? "");
    } else {
      const token = await this.token(why);
      if (token) protocols.push(`token.${token}`);
    }
    const text = asked.toString();
    return [`${this.base.replace(/^http/, "ws")}${path}${text && "?"}${text}`, protocols];
  }

  /** The JSON object that the gateway answers. `fresh`: the present token was refused; `again`: try another one if this
   * is. */
  async ask(method: string, path: string, body?: Json, fresh = false, again = !fresh): Promise<Json> {
    const token = fresh ? await this.token("refused") : (this.last ?? (await this.token("connect")));
    let answer: Response;
    let said: unknown;
    const gone = new AbortController();
    const stop = this.platform.after(ANSWER_WITHIN, () => gone.abort());
    try {
      const headers: Record<string, string> = body ? { "Content-Type": "application/json" } : {};
      if (token) headers.Authorization = `Bearer ${token}`;
      const init = { method, headers, body: body && JSON.stringify(body), signal: gone.signal };
      answer = await this.platform.fetch(this.base + path, { ...init, credentials: token ? "omit" : "same-origin" });
      said = await answer.json().catch((error) => {
        if (answer.ok) throw error; // a list that breaks off has no proper end
      });
    } catch (error) {
      throw new HoldfastError("unreachable", `the gateway cannot be reached: ${String(error)}`, 0);
    } finally {
      stop();
    }
    const told = isObject(said) ? said : {};
    if (answer.ok) return told;
    if (answer.status === 401 && this.getToken && again) return this.ask(method, path, body, true);
    const text = words(told.error) ?? `the gateway answered ${answer.status}`;
    const error = new HoldfastError(words(told.code) ?? String(answer.status), text, answer.status);
    const seconds = Number(answer.headers.get("Retry-After"));
    throw Object.assign(error, seconds > 0 ? { retryAfter: seconds * 1000 } : {});
  }
}
