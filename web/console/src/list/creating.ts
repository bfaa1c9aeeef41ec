import { signal } from "@preact/signals";

/** Whether the dialog that starts a session is open. */
export const creating = signal(false);

export function openCreate(): void {
  creating.value = true;
}
