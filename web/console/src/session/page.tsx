// From an address to an open session: look it up, open it, say so where there is none.
import { untracked, useComputed, useSignal, useSignalEffect } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { ApiError } from "../api.ts";
import { lookUp, openSession, sandboxes, type SessionHandle } from "../house.ts";
import { go } from "../route.ts";
import { Button } from "../ui/button.tsx";
import { SessionView } from "./view.tsx";

export function SessionPage({ id, menuButton }: { id: string; menuButton: ComponentChildren }) {
  const handle = useSignal<SessionHandle | undefined>(undefined);
  const problem = useSignal<ApiError | undefined>(undefined);
  const again = useSignal(0);
  const reopen = (): void => void again.value++;
  const created = useComputed(() => sandboxes.value?.get(id)?.createdAt);
  const missed = useRef<string | undefined>(undefined); // what the list still had when the gateway had no such session
  useEffect(() => {
    let gone = false;
    const open = (): void => {
      const known = sandboxes.peek()?.get(id);
      if (!gone && !handle.peek() && known) handle.value = openSession(known);
    };
    problem.value = undefined;
    missed.current = undefined;
    const before = created.peek();
    open();
    lookUp(id).then(open, (error: unknown) => {
      if (!(error instanceof ApiError)) throw error;
      if (gone) return;
      if (error.status === 404 && created.peek() !== undefined && created.peek() !== before) reopen(); // it came meanwhile
      else if (error.status === 404 || !handle.peek()) {
        missed.current = created.peek();
        problem.value = error;
      }
    });
    return () => {
      gone = true;
      handle.peek()?.leave();
      handle.value = undefined;
    };
  }, [id, again.value]);
  useSignalEffect(() => {
    // The end of a sandbox is the end of its sockets, not of the conversation: that can be read on.
    const over = handle.value;
    const state = over?.state.value;
    if (state?.phase !== "ended" || state.code !== 1000) return;
    setTimeout(() => {
      if (handle.peek() === over) reopen();
    }, 300);
  });
  useSignalEffect(() => {
    // It is gone, or the same name is another session by now: made while nobody looked, or while this said that there is none.
    const now = created.value;
    const known = sandboxes.value !== undefined;
    untracked(() => {
      const open = handle.peek();
      if (open && known && open.created !== now) {
        open.leave();
        handle.value = undefined;
        if (now === undefined) problem.value = new ApiError(404, "not_found", "");
        else reopen();
      } else if (now !== undefined && now !== missed.current && problem.peek()?.status === 404) reopen();
    });
  });
  if (handle.value && problem.value?.status !== 404) return <SessionView key={handle.value.key} session={handle.value} menuButton={menuButton} onReopen={reopen} />;
  const missing = problem.value?.status === 404;
  return (
    <main class="session" id="main" tabIndex={-1}>
      <header class="session-head">{menuButton}</header>
      {missing || problem.value ? (
        <div class="nothing" data-testid="no-session">
          <h1>{missing ? "There is no such session" : "The session cannot be opened right now"}</h1>
          <p>{missing ? <>It was removed, or <code>{id}</code> was never yours.</> : problem.value?.message}</p>
          {missing ? <Button onClick={() => go("")}>All sessions</Button> : <Button onClick={reopen}>Try again</Button>}
        </div>
      ) : null}
    </main>
  );
}
