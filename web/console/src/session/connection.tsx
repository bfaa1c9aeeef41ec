// How the page's line to a session is, in plain words.
import type { State } from "@holdfast/client";
import { signal, useSignalEffect } from "@preact/signals";
import { useRef } from "preact/hooks";
import { announce } from "../announce.tsx";
import { type SessionHandle, tryNow } from "../house.ts";
import { Button } from "../ui/button.tsx";

const ticks = signal(0);
setInterval(() => {
  if (!document.hidden) ticks.value++;
}, 500);

/** By the clock that `retryAt` is told in, which nobody sets while it runs. */
const nowFor = ({ client }: SessionHandle): number => (ticks.value, client.platform.now());

const netless = signal(!navigator.onLine);
for (const word of ["online", "offline"]) addEventListener(word, () => (netless.value = !navigator.onLine));

/** A browser that has no network knows it before the line does, which asks for a sign of life first. */
const shownState = (state: State): State => (netless.value && state.phase !== "ended" ? { ...state, phase: "offline" } : state);

export function connectionWords(state: State, at: number): string {
  switch (state.phase) {
    case "online":
      return "connected";
    case "connecting":
      return state.attempt === 0 ? "connecting" : "trying again";
    case "waiting": {
      const seconds = Math.ceil(Math.max(0, (state.retryAt ?? at) - at) / 1000);
      return seconds < 1 ? "coming back" : `coming back in ${seconds} s`;
    }
    case "offline":
      return "offline: what you send waits here";
    case "ended":
      return state.code === 1000 ? "connecting" : `not connected: ${state.reason ?? "ended"}`;
  }
}

export function ConnectionState({ session, onReopen }: { session: SessionHandle; onReopen: () => void }) {
  const state = shownState(session.state.value);
  const before = useRef(state.phase);
  useSignalEffect(() => {
    const { phase } = shownState(session.state.value);
    // A cut that is mended at once is not worth a word.
    if (phase === "offline" && before.current !== "offline") announce("Offline. What you send waits here.");
    if (phase === "waiting" && before.current === "online") announce("The connection was cut. It comes back by itself.");
    if (phase === "online" && ["waiting", "connecting", "offline"].includes(before.current) && session.items.peek().length) announce("Connected.");
    before.current = phase;
  });
  return (
    <div class={`line line-${state.phase === "ended" && state.code === 1000 ? "connecting" : state.phase}`} data-testid="connection" data-phase={state.phase} title={state.phase === "online" ? undefined : state.reason}>
      <span class="line-dot" aria-hidden="true" />
      <span class="line-words">{connectionWords(state, state.phase === "waiting" ? nowFor(session) : 0)}</span>
      {state.phase === "waiting" ? (
        <Button small class="line-now" data-testid="connect-now" onClick={tryNow}>
          now
        </Button>
      ) : state.phase === "ended" && state.code !== 1000 ? (
        <Button small class="line-now" data-testid="connect-again" onClick={onReopen}>
          connect again
        </Button>
      ) : null}
    </div>
  );
}
