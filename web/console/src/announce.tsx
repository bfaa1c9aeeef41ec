// What a screen reader says by itself: whole sentences, one at a time, never an answer chunk by chunk.
import { signal } from "@preact/signals";

const said = signal("");

export function announce(text: string): void {
  said.value = said.peek() === text ? `${text}\u00a0` : text; // the same words again are news, too
}

export function Announcer() {
  return (
    <div class="sr-only" role="status" aria-live="polite" aria-atomic="true" data-testid="announcer">
      {said}
    </div>
  );
}
