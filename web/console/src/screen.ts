import { type ReadonlySignal, signal } from "@preact/signals";

const query = matchMedia("(max-width: 760px)");
const state = signal(query.matches);
query.addEventListener("change", (event) => (state.value = event.matches));

/** Whether there is room for one thing at a time only: a phone. styles.css has the same width. */
export const narrow: ReadonlySignal<boolean> = state;
