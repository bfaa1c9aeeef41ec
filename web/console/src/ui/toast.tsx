// Short words at the edge of the page: what just happened, and what failed. They leave by themselves; failures stay longer.
import { signal } from "@preact/signals";
import { ApiError } from "../api.ts";
import { Button } from "./button.tsx";
import { CloseIcon } from "./icons.tsx";
import type { Tone } from "./badge.tsx";

interface Toast {
  id: number;
  text: string;
  tone: Tone;
}

const KEPT = 4;
const toasts = signal<readonly Toast[]>([]);
let last = 0;

const drop = (id: number): void => {
  toasts.value = toasts.value.filter((one) => one.id !== id);
};

export function toast(text: string, tone: Tone = "plain"): void {
  const id = ++last;
  toasts.value = [...toasts.value.filter((one) => one.text !== text), { id, text, tone }].slice(-KEPT);
  setTimeout(() => drop(id), tone === "bad" ? 10_000 : 4_000);
}

/** Run something that may be refused; a refusal is shown and swallowed. */
export async function attempt<T>(act: () => Promise<T>, doing: string): Promise<T | undefined> {
  try {
    return await act();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.status !== 401) toast(`${doing}: ${error.message}`, "bad");
    return undefined;
  }
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((one) => (
        <div key={one.id} class={`toast tone-${one.tone}`}>
          <span>{one.text}</span>
          <Button kind="quiet" small icon={<CloseIcon size={12} />} aria-label="Dismiss" onClick={() => drop(one.id)} />
        </div>
      ))}
    </div>
  );
}
