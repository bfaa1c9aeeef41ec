// The user's credentials: which there are, setting one, and removing one. A value is sent once, and never comes back.
import { signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, type Credential } from "./api.ts";
import { Button } from "./ui/button.tsx";
import { Dialog } from "./ui/dialog.tsx";
import { KeyIcon } from "./ui/icons.tsx";
import { attempt, toast } from "./ui/toast.tsx";
import { Ago } from "./when.tsx";

/** Whether they are shown. */
export const credentials = signal(false);

const KINDS: Record<string, string> = { api: "key", oauth: "sign-in", app: "app" };

export function CredentialsDialog() {
  const found = useSignal<readonly Credential[] | undefined>(undefined);
  const providers = useSignal<readonly string[]>([]);
  const provider = useSignal("");
  const key = useSignal("");
  const busy = useSignal(false);
  const look = async (): Promise<void> => {
    const answer = await attempt(() => api.credentials(), "The credentials cannot be listed");
    if (!answer) return;
    found.value = answer.credentials;
    providers.value = answer.providers;
    provider.value ||= answer.providers[0] ?? "";
  };
  useEffect(() => void look(), []);
  const set = async (): Promise<void> => {
    if (!key.value.trim()) return;
    busy.value = true;
    const value = key.value.trim();
    key.value = "";
    const kept = await attempt(() => api.setCredential(provider.value, value), "The key was not kept");
    busy.value = false;
    if (kept) toast(`The key for ${kept.provider} is kept.`, "good");
    await look();
  };
  const remove = async (name: string): Promise<void> => {
    await attempt(() => api.deleteCredential(name), `The credential for ${name} was not removed`);
    await look();
  };
  return (
    <Dialog
      title="Credentials"
      data-testid="credentials-dialog"
      onClose={() => (credentials.value = false)}
      onSubmit={() => void set()}
      actions={
        <Button kind="primary" type="submit" busy={busy.value} icon={<KeyIcon />} data-testid="credential-submit">
          Keep this key
        </Button>
      }
    >
      <p class="help">Your sessions use these keys without having them: a request of an agent gets its key on the way out. Nothing shows a key again.</p>
      {found.value?.length ? (
        <ul class="share-list" aria-label="Your credentials">
          {found.value.map((one) => (
            <li key={one.provider} data-testid="credential" data-provider={one.provider}>
              <span>
                <strong>{one.provider}</strong> {KINDS[one.type] ?? one.type}
                <small class="help">
                  {one.everybody ? "the operator's, for everybody" : <>set <Ago at={one.setAt} /></>}
                  {one.problem ? <em data-testid="credential-problem"> {one.problem}</em> : null}
                </small>
              </span>
              {one.everybody ? null : (
                <Button small aria-label={`Remove the credential for ${one.provider}`} data-testid="credential-delete" onClick={() => void remove(one.provider)}>
                  Remove
                </Button>
              )}
            </li>
          ))}
        </ul>
      ) : found.value ? (
        <p data-testid="credential-none">You have no credentials.</p>
      ) : null}
      <label class="labelled">
        <span>Provider</span>
        <select class="field" value={provider.value} data-testid="credential-provider" onChange={(event) => (provider.value = event.currentTarget.value)}>
          {providers.value.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </label>
      <label class="labelled">
        <span>Key {found.value?.some((one) => one.provider === provider.value && !one.everybody) ? <em>in place of the one there is</em> : null}</span>
        <input class="field mono" type="password" autoComplete="off" maxLength={8192} value={key.value} data-testid="credential-key" onInput={(event) => (key.value = event.currentTarget.value)} />
      </label>
    </Dialog>
  );
}
