// The place in the page: `#/s/<session>`. Everything else is the list.
import { computed, signal } from "@preact/signals";

const hash = signal(location.hash);

addEventListener("hashchange", () => (hash.value = location.hash));

const OPEN = /^#\/s\/([A-Za-z0-9][A-Za-z0-9_-]{0,127})$/;

/** The session that is open, by its address. */
export const openId = computed<string | null>(() => OPEN.exec(hash.value)?.[1] ?? null);

export const addressOf = (id: string): string => `#/s/${id}`;

export function go(to: string): void {
  if (location.hash === to || (to === "" && location.hash === "")) return;
  if (to === "") history.pushState(null, "", location.pathname);
  else location.hash = to;
  hash.value = location.hash;
}

/** Remove `#name=value` from the address: it was for the page, not for its history. */
export function takeWord(name: string): string | null {
  const found = new RegExp(`^#${name}=([^&]*)$`).exec(location.hash)?.[1] ?? null;
  if (found !== null) history.replaceState(null, "", location.pathname);
  hash.value = location.hash;
  return found;
}
