/** Whom a JWT names; undefined where that cannot be read. Nothing is proven by it: that is the gateway's to do. */
export function userOf(token: string): string | undefined {
  try {
    const bytes = atob((token.split(".")[1] ?? "").replaceAll("-", "+").replaceAll("_", "/"));
    const claims: unknown = JSON.parse(new TextDecoder().decode(Uint8Array.from(bytes, (one) => one.charCodeAt(0))));
    const user = (claims as { userId?: unknown } | null)?.userId;
    return typeof user === "string" ? user : undefined;
  } catch {
    return undefined;
  }
}
