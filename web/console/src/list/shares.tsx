// Shares of a session: the active tokens, a new one, and revoking one.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, type NewShare, type Share } from "../api.ts";
import type { Sandbox } from "../sandbox.ts";
import { Button } from "../ui/button.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { CopyIcon, PlusIcon } from "../ui/icons.tsx";
import { attempt, toast } from "../ui/toast.tsx";
import { Ago } from "../when.tsx";
import { nameOf } from "../words.ts";

const LIVES: readonly [number, string][] = [[3600, "1 hour"], [86_400, "1 day"], [7 * 86_400, "1 week"], [30 * 86_400, "30 days"]];
const until = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

export function SharesDialog({ sandbox, onClose }: { sandbox: Sandbox; onClose: () => void }) {
  const shares = useSignal<readonly Share[] | undefined>(undefined);
  const made = useSignal<NewShare | undefined>(undefined);
  const label = useSignal("");
  const ttl = useSignal(3600);
  const busy = useSignal(false);
  const look = async (): Promise<void> => {
    shares.value = await attempt(() => api.shares(sandbox.id), "The shares cannot be listed");
  };
  useEffect(() => void look(), []);
  const share = async (): Promise<void> => {
    busy.value = true;
    made.value = await attempt(() => api.share(sandbox.id, { ttl: ttl.value, label: label.value.trim() }), "Nothing was shared");
    busy.value = false;
    if (made.value) label.value = "";
    await look();
  };
  const takeBack = async (number: number): Promise<void> => {
    await attempt(() => api.takeShareBack(sandbox.id, number), `Share ${number} was not taken back`);
    if (made.value?.number === number) made.value = undefined;
    await look();
  };
  const copy = async (token: string): Promise<void> => {
    const done = await navigator.clipboard?.writeText(token).then(() => true, () => false);
    toast(done ? "Copied." : "The browser did not allow copying.", done ? "good" : "bad");
  };
  return (
    <Dialog
      title={`Shares of ${nameOf(sandbox)}`}
      data-testid="shares-dialog"
      onClose={onClose}
      onSubmit={() => void share()}
      actions={
        <Button kind="primary" type="submit" busy={busy.value} icon={<PlusIcon />} data-testid="share-submit">
          Create a share
        </Button>
      }
    >
      <p class="help">A share is a token for looking at this session, its terminals and its conversation. It can change nothing, and you can revoke it.</p>
      {made.value ? (
        <div class="labelled" data-testid="share-made" data-number={made.value.number}>
          <label for="share-token">Share {made.value.number}: copy its token now, it is not shown again</label>
          <div class="share-token">
            <input class="field mono" id="share-token" readOnly value={made.value.token} data-testid="share-token" onFocus={(event) => event.currentTarget.select()} />
            <Button icon={<CopyIcon />} aria-label="Copy the token" onClick={() => void copy(made.value?.token ?? "")} />
          </div>
        </div>
      ) : null}
      {shares.value?.length ? (
        <ul class="share-list" aria-label="Active shares">
          {shares.value.map((one) => (
            <li key={one.number} data-testid="share" data-number={one.number}>
              <span>
                <strong>{one.number}</strong> {one.label}
                <small class="help">
                  made <Ago at={one.createdAt} />, ends {until.format(Date.parse(one.expiresAt))}
                </small>
              </span>
              <Button small aria-label={`Take share ${one.number} back`} data-testid="share-take-back" onClick={() => void takeBack(one.number)}>
                Take back
              </Button>
            </li>
          ))}
        </ul>
      ) : shares.value ? (
        <p data-testid="share-none">Nobody else can view this session.</p>
      ) : null}
      <label class="labelled">
        <span>For <em>optional, to tell it from others</em></span>
        <input class="field" maxLength={64} value={label} data-testid="share-label" onInput={(event) => (label.value = event.currentTarget.value)} />
      </label>
      <label class="labelled">
        <span>Ends after</span>
        <select class="field" value={ttl.value} data-testid="share-ttl" onChange={(event) => (ttl.value = Number(event.currentTarget.value))}>
          {LIVES.map(([seconds, words]) => (
            <option key={seconds} value={seconds}>
              {words}
            </option>
          ))}
        </select>
      </label>
    </Dialog>
  );
}
