// The actions on a session, by its status; the same in the list and in its header.
import { signal } from "@preact/signals";
import { useSignal } from "@preact/signals";
import { api } from "../api.ts";
import { learn } from "../house.ts";
import { addressOf, go, openId } from "../route.ts";
import type { Sandbox } from "../sandbox.ts";
import { PlaceDialog } from "../session/place.tsx";
import { Button } from "../ui/button.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { AlertIcon, BoxIcon, KeyIcon, MoonIcon, PauseIcon, PeopleIcon, PlayIcon, RetryIcon, SyncIcon, TrashIcon } from "../ui/icons.tsx";
import type { MenuItem } from "../ui/menu.tsx";
import { attempt, toast } from "../ui/toast.tsx";
import { mayKeepDisk, nameOf } from "../words.ts";
import { EnvRows } from "./env.tsx";
import { SharesDialog } from "./shares.tsx";
import { type EnvRow, readRows } from "./variables.ts";

type Asked = { what: "delete" | "variables" | "empty" | "shares" | "place"; sandbox: Sandbox };

/** The dialog that is open about a session, if any. */
const asked = signal<Asked | undefined>(undefined);

async function step(act: Promise<Sandbox>, doing: string): Promise<void> {
  const now = await attempt(() => act, doing);
  if (now) learn(now);
}

export const wake = (one: Sandbox): Promise<void> => step(api.wake(one.id), `${nameOf(one)} was not woken`);
export const sleep = (one: Sandbox): Promise<void> => step(api.sleep(one.id), `${nameOf(one)} does not sleep`);
export const pause = (one: Sandbox): Promise<void> => step(api.pause(one.id), `${nameOf(one)} was not paused`);
export const resume = (one: Sandbox): Promise<void> => step(api.resume(one.id), `${nameOf(one)} was not resumed`);
export const keepDisk = (one: Sandbox): Promise<void> => step(api.resume(one.id, { keep: true }), `${nameOf(one)} was not resumed`);
export const revive = (one: Sandbox): Promise<void> => step(api.create(one.id, {}), `${nameOf(one)} was not revived`);
export const askVariables = (sandbox: Sandbox): void => void (asked.value = { what: "variables", sandbox });
export const askEmpty = (sandbox: Sandbox): void => void (asked.value = { what: "empty", sandbox });
export const askShares = (sandbox: Sandbox): void => void (asked.value = { what: "shares", sandbox });
export const askPlace = (sandbox: Sandbox): void => void (asked.value = { what: "place", sandbox });
export const askDelete = (sandbox: Sandbox): void => void (asked.value = { what: "delete", sandbox });

async function keepNow(one: Sandbox): Promise<void> {
  if (await attempt(() => api.sync(one.id).then(() => true), "Nothing was kept")) toast("Its files are being kept.");
}

/** Entries of a session's menu. */
export function actionsFor(one: Sandbox): (MenuItem | "line")[] {
  const item = (label: string, icon: MenuItem["icon"], name: string, act: () => void, hint?: string): MenuItem => ({ label, icon, onSelect: act, "data-testid": `action-${name}`, ...(hint ? { hint } : {}) });
  const entries: (MenuItem | "line")[] = [];
  switch (one.status) {
    case "sleeping":
      entries.push(item("Wake", <PlayIcon />, "wake", () => void wake(one)), item("Pause", <PauseIcon />, "pause", () => void pause(one), "Messages wait until it is resumed"));
      break;
    case "starting":
    case "running":
      entries.push(
        item("Sleep", <MoonIcon />, "sleep", () => void sleep(one), "Until the next message"),
        item("Pause", <PauseIcon />, "pause", () => void pause(one), "Messages wait until it is resumed"),
        item("Keep its files now", <SyncIcon />, "sync", () => void keepNow(one)),
      );
      break;
    case "paused":
      entries.push(item("Resume", <PlayIcon />, "resume", () => void resume(one)));
      break;
    case "error":
      entries.push(item("Try again", <RetryIcon />, "resume", () => void resume(one)), item("Give variables", <KeyIcon />, "variables", () => askVariables(one)));
      break;
    case "needs_env":
      entries.push(item("Give variables", <KeyIcon />, "variables", () => askVariables(one)));
      break;
    case "unrestored":
      entries.push(item("Try to restore again", <RetryIcon />, "resume", () => void resume(one)));
      if (mayKeepDisk(one)) entries.push(item("Keep what is here", <SyncIcon />, "keep", () => void keepDisk(one), "Go on with the files that are on its disk"));
      entries.push(item("Begin with an empty workspace", <AlertIcon />, "empty", () => askEmpty(one)));
      break;
    case "archived":
      entries.push(item("Revive", <PlayIcon />, "revive", () => void revive(one), "The conversation goes on, with an empty workspace"));
      break;
  }
  if (one.status !== "archived") entries.push(item("Sandbox", <BoxIcon />, "place", () => askPlace(one), "Where it runs and what it uses"));
  if (one.status !== "archived") entries.push(item("Shares", <PeopleIcon />, "shares", () => askShares(one), "Let others look at it"));
  const remove = { ...item(one.status === "archived" ? "Remove for good" : "Delete", <TrashIcon />, "delete", () => askDelete(one)), danger: true };
  return [...entries, "line", remove];
}

export function ActionDialogs() {
  const now = asked.value;
  if (!now) return null;
  const close = (): void => void (asked.value = undefined);
  if (now.what === "delete") return <DeleteDialog sandbox={now.sandbox} onClose={close} />;
  if (now.what === "empty") return <EmptyDialog sandbox={now.sandbox} onClose={close} />;
  if (now.what === "place") return <PlaceDialog sandbox={now.sandbox} onClose={close} />;
  if (now.what === "shares") return <SharesDialog sandbox={now.sandbox} onClose={close} />;
  return <VariablesDialog sandbox={now.sandbox} onClose={close} />;
}

interface About {
  sandbox: Sandbox;
  onClose: () => void;
}

function DeleteDialog({ sandbox, onClose }: About) {
  const archived = sandbox.status === "archived";
  const purge = useSignal(archived);
  const busy = useSignal(false);
  const remove = async (): Promise<void> => {
    busy.value = true;
    const done = await attempt(() => api.remove(sandbox.id, purge.value).then(() => true), "Nothing was deleted");
    busy.value = false;
    if (!done) return;
    onClose();
    toast(purge.value ? `${nameOf(sandbox)} is gone.` : `${nameOf(sandbox)} is archived: its conversation is kept.`);
    if (openId.value === sandbox.id && purge.value) go("");
  };
  return (
    <Dialog
      title={archived ? "Remove this conversation?" : "Delete this session?"}
      data-testid="delete-dialog"
      onClose={onClose}
      onSubmit={() => void remove()}
      actions={
        <>
          <Button onClick={onClose} data-autofocus>
            Cancel
          </Button>
          <Button kind="danger" type="submit" busy={busy.value} icon={<TrashIcon />} data-testid="delete-confirm">
            {purge.value ? "Remove all of it" : "Delete"}
          </Button>
        </>
      }
    >
      <p>
        <strong>{nameOf(sandbox)}</strong>
      </p>
      {archived ? (
        <p>The conversation ({sandbox.lastSeq} records) is removed. This cannot be undone.</p>
      ) : (
        <>
          <ul class="kept">
            <li>Its sandbox is stopped; its workspace and all its snapshots are removed. This cannot be undone.</li>
            <li>{purge.value ? "Its conversation is removed, too." : "Its conversation is kept, as archived. It can be read, and revived with an empty workspace."}</li>
          </ul>
          <label class="check">
            <input type="checkbox" checked={purge.value} data-testid="delete-purge" onChange={(event) => (purge.value = event.currentTarget.checked)} />
            <span>Also remove the conversation</span>
          </label>
        </>
      )}
    </Dialog>
  );
}

function EmptyDialog({ sandbox, onClose }: About) {
  const busy = useSignal(false);
  const begin = async (): Promise<void> => {
    busy.value = true;
    const now = await attempt(() => api.resume(sandbox.id, { empty: true }), "The session did not begin empty");
    busy.value = false;
    if (!now) return;
    learn(now);
    onClose();
  };
  return (
    <Dialog
      title="Begin with an empty workspace?"
      data-testid="empty-dialog"
      onClose={onClose}
      onSubmit={() => void begin()}
      actions={
        <>
          <Button onClick={onClose} data-autofocus>
            Cancel
          </Button>
          <Button kind="danger" type="submit" busy={busy.value} data-testid="empty-confirm">
            Begin empty
          </Button>
        </>
      }
    >
      <p>
        The files of <strong>{nameOf(sandbox)}</strong> could not be restored{sandbox.reason ? `: ${sandbox.reason}` : "."}
      </p>
      <p class="notice tone-warn">
        <AlertIcon />
        <span>If you begin empty, the next sync keeps the empty workspace as the newest generation. If the cause may pass (a store that is away), try to restore again instead.</span>
      </p>
    </Dialog>
  );
}

function VariablesDialog({ sandbox, onClose }: About) {
  const rows = useSignal<readonly EnvRow[]>([{ name: "", value: "" }]);
  const error = useSignal<string | undefined>(undefined);
  const busy = useSignal(false);
  const give = async (): Promise<void> => {
    const env = readRows(rows.value);
    if (typeof env === "string") {
      error.value = env;
      return;
    }
    busy.value = true;
    const now = await attempt(() => api.resume(sandbox.id, { envVars: env }), "It was not resumed");
    busy.value = false;
    if (!now) return;
    learn(now);
    onClose();
    go(addressOf(sandbox.id));
  };
  return (
    <Dialog
      title="Variables of this session"
      data-testid="variables-dialog"
      onClose={onClose}
      onSubmit={() => void give()}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" busy={busy.value} data-testid="variables-submit">
            Resume
          </Button>
        </>
      }
    >
      <p>
        <strong>{nameOf(sandbox)}</strong> was started with secret variables. They are never stored, so after a restart of the gateway somebody must enter them again. Without any, the session goes on without them.
      </p>
      <EnvRows rows={rows.value} onChange={(next) => (rows.value = next)} />
      {error.value ? (
        <p class="help bad" role="alert">
          {error}
        </p>
      ) : null}
    </Dialog>
  );
}
