// The messages that wait behind the running turn. The agent does not have them yet, so they can be taken back.
import type { MessageItem } from "@holdfast/client";
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, ApiError } from "../api.ts";
import { announce } from "../announce.tsx";
import type { SessionHandle } from "../house.ts";
import { Button } from "../ui/button.tsx";
import { CloseIcon, EditIcon } from "../ui/icons.tsx";
import { attempt, toast } from "../ui/toast.tsx";
import { At } from "../when.tsx";

interface QueueProps {
  session: SessionHandle;
  waiting: readonly MessageItem[];
  /** Inserts text into the composer, before its present text. */
  onEdit: (text: string) => void;
}

export function Queue({ session, waiting, onEdit }: QueueProps) {
  if (!waiting.length) return null;
  return (
    <section class="queue" aria-label="Messages that wait for their turn" data-testid="queue">
      <header>
        <h3>{waiting.length === 1 ? "1 message waits" : `${waiting.length} messages wait`}</h3>
        <Expiry session={session} waiting={waiting} />
      </header>
      <ol>
        {waiting.map((item) => (
          <Waiting key={item.key} session={session} item={item} onEdit={onEdit} />
        ))}
      </ol>
    </section>
  );
}

const LONGER = 3600;

/** When their wait for a sandbox ends; behind an answer they wait as long as it takes. */
function Expiry({ session, waiting }: { session: SessionHandle; waiting: readonly MessageItem[] }) {
  const first = useSignal<string | undefined>(undefined);
  const looks = useSignal(0);
  const held = session.sandbox.value.status !== "running";
  const seqs = waiting.map(({ seq }) => seq as number);
  useEffect(() => {
    let over = false;
    first.value = undefined;
    if (held)
      void api.pending(session.id).then(
        (messages) => {
          if (!over) first.value = messages.flatMap(({ expiresAt }) => expiresAt ?? []).sort()[0];
        },
        () => undefined, // the page works without it
      );
    return () => void (over = true);
  }, [held, seqs.join(), looks.value]);
  const extend = async (): Promise<void> => {
    await attempt(() => Promise.all(seqs.map((seq) => api.extend(session.id, seq, LONGER))), "Some of them do not wait longer");
    looks.value++;
  };
  if (!first.value) return null;
  return (
    <>
      <span data-testid="queue-until">
        until <At at={first.value} />
      </span>
      <Button small kind="quiet" data-testid="queue-extend" onClick={() => void extend()}>
        Keep for an hour
      </Button>
    </>
  );
}

function Waiting({ session, item, onEdit }: { session: SessionHandle; item: MessageItem; onEdit: (text: string) => void }) {
  const busy = useSignal(false);
  const cancel = async (then: () => void): Promise<void> => {
    busy.value = true;
    try {
      await api.cancel(session.id, item.seq as number);
      then();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      toast(error.code === "not_pending" ? "Too late: the agent has this message already." : error.message, "warn");
    } finally {
      busy.value = false;
    }
  };
  const words = item.text || JSON.stringify(item.content);
  const short = words.length > 60 ? `${words.slice(0, 60)}…` : words;
  return (
    <li data-testid="queued" data-seq={item.seq}>
      <span class="queued-words">{words.slice(0, 400)}</span>
      {item.text ? (
        <Button small kind="quiet" busy={busy.value} icon={<EditIcon size={14} />} aria-label={`Edit: ${short}`} data-testid="queued-edit" onClick={() => void cancel(() => onEdit(item.text))} />
      ) : null}
      <Button small kind="quiet" busy={busy.value} icon={<CloseIcon size={14} />} aria-label={`Cancel: ${short}`} data-testid="queued-cancel" onClick={() => void cancel(() => announce("Cancelled."))} />
    </li>
  );
}
