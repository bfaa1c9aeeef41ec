import { HoldfastError } from "@holdfast/client";
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { drafts } from "../kept.ts";
import { agents, type SessionHandle } from "../house.ts";
import { Button } from "../ui/button.tsx";
import { SendIcon, SteerIcon, StopIcon } from "../ui/icons.tsx";
import { toast } from "../ui/toast.tsx";
import { isLonger, wordsOf } from "./draft.ts";
import { steers } from "../words.ts";
import type { Turn } from "./turn.ts";

const LONGEST = 900 * 1024; // a frame may have 1 MiB, and has more in it than this
const DRAFT_KEPT = 512 * 1024;
const KEPT_AT_ONCE = 8 * 1024;

interface ComposerProps {
  session: SessionHandle;
  turn: Turn;
  /** Gives out functions that write into the field: one replaces its text, one inserts before it. */
  onReady: (write: (text: string) => void, add: (text: string) => void) => void;
}

/** The text field. It takes text at all times; a message that cannot be sent yet waits in the outbox. */
export function Composer({ session, turn, onReady }: ComposerProps) {
  const draft = useSignal(drafts.get(session.user, session.id) ?? "");
  const notTaken = useSignal<string | undefined>(undefined);
  const field = useRef<HTMLTextAreaElement>(null);
  const keeping = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);

  const write = (text: string): void => {
    draft.value = text;
    notTaken.value = undefined;
    clearTimeout(keeping.current);
    if (text.length <= KEPT_AT_ONCE) keep(); // a view that replaces this one reads it before this one is gone
    else keeping.current = setTimeout(keep, 150);
  };
  const keep = (): void => {
    clearTimeout(keeping.current);
    const text = draft.peek();
    drafts.set(session.user, session.id, text && text.length <= DRAFT_KEPT ? text : null);
  };
  useEffect(() => {
    const put = (text: string): void => {
      write(text);
      field.current?.focus();
    };
    onReady(put, (text) => put(draft.peek().trim() ? `${text}\n\n${draft.peek()}` : text));
    addEventListener("pagehide", keep);
    return () => {
      removeEventListener("pagehide", keep);
      keep();
    };
  }, []);
  useLayoutEffect(() => {
    const area = field.current;
    if (!area || CSS.supports("field-sizing", "content")) return;
    area.style.height = "auto";
    area.style.height = `${area.scrollHeight}px`;
  }, [draft.value]);

  const tooLong = isLonger(draft.value, LONGEST);
  const empty = draft.value.trim() === "";
  const archived = session.sandbox.value.status === "archived";
  const running = turn !== "idle";
  const maySteer = running && steers(session.sandbox.value.agent, agents.value);
  const send = (steer = false): void => {
    if (empty || tooLong || archived) return;
    const { cid, stored } = session.client.send(wordsOf(draft.value), { steer });
    if (!session.client.outbox.some((item) => item.cid === cid)) {
      stored.catch((error: unknown) => (notTaken.value = whyNotTaken(error)));
      return;
    }
    write("");
    keep();
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    // 229: the key belongs to an input method that has not finished, whatever key it names.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
    event.preventDefault();
    send(maySteer && (event.ctrlKey || event.metaKey));
  };
  const stop = (): void => {
    if (!session.client.abort()) toast("Not connected. Try again in a moment.", "warn");
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <div class="composer-box">
        <label class="sr-only" for="composer">
          Message to the agent
        </label>
        <textarea
          id="composer"
          ref={field}
          rows={1}
          value={draft}
          placeholder="Message the agent"
          aria-describedby="composer-help"
          enterkeyhint="send"
          data-testid="composer"
          onInput={(event) => write(event.currentTarget.value)}
          onKeyDown={onKeyDown}
        />
        {running ? (
          <Button icon={<StopIcon />} aria-label="Stop the answer" data-testid="stop" class="composer-button" onClick={stop} />
        ) : null}
        {maySteer ? (
          <Button icon={<SteerIcon />} aria-label="Send it into the running answer" aria-disabled={empty || tooLong} data-testid="steer" class="composer-button" onClick={() => send(true)} />
        ) : null}
        <Button kind="primary" type="submit" icon={<SendIcon />} aria-label={running ? "Send; it waits for its turn" : "Send"} aria-disabled={empty || tooLong || archived} data-testid="send" class="composer-button" />
      </div>
      <p class="composer-help" id="composer-help" data-testid="composer-help">
        {tooLong ? (
          <span class="bad" role="alert">Too long for one message: at most {LONGEST / 1024} KiB, and quotes and line ends count twice.</span>
        ) : notTaken.value ? (
          <span class="bad" role="alert">{notTaken}</span>
        ) : (
          <Hint session={session} running={running} steers={maySteer} />
        )}
      </p>
    </form>
  );
}

function whyNotTaken(error: unknown): string {
  const code = error instanceof HoldfastError ? error.code : "";
  if (code === "outbox_full") return "Not sent: too many messages wait here. Send it again when some of them are gone.";
  if (code === "too_long") return "Not sent: too long for one message.";
  return `Not sent: ${error instanceof Error ? error.message : String(error)}.`;
}

function Hint({ session, running, steers }: { session: SessionHandle; running: boolean; steers: boolean }) {
  const offline = session.state.value.phase !== "online";
  const waiting = session.outbox.value.filter((item) => (item.stage === "queued" || item.stage === "sent") && item.frame.type === "message").length;
  if (waiting && offline) return <>{waiting === 1 ? "1 message waits" : `${waiting} messages wait`} here for the connection.</>;
  if (session.sandbox.value.status === "archived") return <>Archived: revive it to go on.</>;
  if (session.sandbox.value.status === "sleeping") return <>Sleeping: a message wakes it.</>;
  if (steers) return <span class="keys">Enter: after this answer. Ctrl+Enter: into this answer</span>;
  if (running) return <span class="keys">Working. Your message waits for its turn</span>;
  return <span class="keys">Enter sends, Shift+Enter begins a new line</span>;
}
