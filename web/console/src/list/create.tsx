import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, ApiError, type Me, type Network, networkOf, type NewSandbox } from "../api.ts";
import type { Mode } from "@holdfast/client";
import { learn, lookAtAgents, lookAtProviders, me } from "../house.ts";
import { addressOf, go } from "../route.ts";
import { markSeen } from "../unread.ts";
import { Button } from "../ui/button.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { attempt } from "../ui/toast.tsx";
import { networkWords } from "../words.ts";
import { AgentChoice, whyNoAgent } from "./agent.tsx";
import { EnvRows } from "./env.tsx";
import { type EnvRow, readRows } from "./variables.ts";
import { providerOf, Where } from "./where.tsx";

const ID = /^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$/;
const LOOK_EVERY = 5_000; // the gateway asks its providers no more often
const LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"; // no two of them look alike
const HOW = ["calm", "steady", "brisk", "clear", "deep", "early", "fair", "firm", "gentle", "late", "lucky", "north", "quiet", "salt", "still", "sunny"];
const WHAT = ["anchor", "bay", "beacon", "bollard", "buoy", "cove", "current", "ferry", "harbour", "haven", "jetty", "keel", "lagoon", "mooring", "pier", "tide"];

/** A free id that one can say: about 38 random bits. */
export function freshId(): string {
  const [how = 0, what = 0, ...rest] = crypto.getRandomValues(new Uint8Array(8));
  return `${HOW[how % HOW.length]}-${WHAT[what % WHAT.length]}-${rest.map((byte) => LETTERS[byte % LETTERS.length]).join("")}`;
}

const NOTHING: Me["network"] = { default: "none", max: "none" };
const NETWORKS: Record<Network, string> = { none: "None", outbound: "Outbound", hosts: "Hosts" };

const networksWithin = (most: Network): Network[] => (most === "none" ? ["none"] : most === "hosts" ? ["none", "hosts"] : ["none", "outbound", "hosts"]);

export async function create(id: string, what: NewSandbox): Promise<void> {
  const made = await api.create(id, what);
  markSeen(made.id, made.lastSeq);
  learn(made);
  go(addressOf(made.id));
}

/** With nothing to choose: create a session now, and open it. */
export const startOne = (): Promise<void | undefined> => attempt(() => create(freshId(), {}), "No session was started");

export function CreateDialog({ onClose }: { onClose: () => void }) {
  const id = useSignal("");
  const title = useSignal("");
  const provider = useSignal<string | undefined>(undefined);
  const image = useSignal("");
  const where = providerOf(provider.value);
  const possible = where?.networks ?? ["none", "outbound"];
  const allowed = me.value?.network ?? NOTHING;
  const offered = networksWithin(networkOf(allowed.max)).filter((one) => possible.includes(one === "hosts" ? "outbound" : one));
  const wanted = useSignal<Network>(networkOf(allowed.default));
  const known = typeof allowed.default === "string" ? allowed.max : allowed.default;
  const hosts = useSignal(typeof known === "string" ? "" : known.allow.join(", "));
  const network: Network = offered.includes(wanted.value) ? wanted.value : "none";
  useEffect(() => {
    const look = (): void => void (lookAtProviders(), lookAtAgents());
    look();
    const again = setInterval(look, LOOK_EVERY);
    return () => clearInterval(again);
  }, []);
  const agent = useSignal("");
  const mode = useSignal<Mode | "">("");
  const repoUrl = useSignal("");
  const repoBranch = useSignal("");
  const rows = useSignal<readonly EnvRow[]>([]);
  const error = useSignal<string | undefined>(undefined);
  const busy = useSignal(false);

  const submit = async (): Promise<void> => {
    if (busy.value) return;
    const env = readRows(rows.value);
    const named = id.value.trim();
    if (named && !ID.test(named)) error.value = "An id is letters, digits, - and _, and begins with a letter or digit.";
    else if (typeof env === "string") error.value = env;
    else if (agent.value && whyNoAgent(agent.value)) error.value = "This agent is not available here. The line beside it says what to type; or choose another.";
    else {
      busy.value = true;
      error.value = undefined;
      const allow = hosts.value.split(/[\s,]+/).filter((one) => one);
      const what: NewSandbox = { network: network !== "hosts" ? network : allow.length ? { allow } : "none" };
      if (agent.value) what.agent = agent.value;
      if (mode.value) what.mode = mode.value;
      if (where && provider.value !== undefined) what.provider = where.name;
      if (where?.images.length && image.value.trim()) what.image = image.value.trim();
      if (title.value.trim()) what.title = title.value.trim();
      if (repoUrl.value.trim()) what.repoUrl = repoUrl.value.trim();
      if (what.repoUrl && repoBranch.value.trim()) what.repoBranch = repoBranch.value.trim();
      if (Object.keys(env).length) what.envVars = env;
      try {
        await create(named || freshId(), what);
        onClose();
      } catch (cause) {
        if (!(cause instanceof ApiError)) throw cause;
        error.value = cause.status === 409 && cause.code === "taken" ? "This id is taken. Choose another." : cause.message;
      } finally {
        busy.value = false;
      }
    }
  };
  return (
    <Dialog
      title="Start a session"
      data-testid="create-dialog"
      onClose={onClose}
      onSubmit={() => void submit()}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" busy={busy.value} data-testid="create-submit">
            Start
          </Button>
        </>
      }
    >
      <label class="labelled">
        <span>Title <em>optional</em></span>
        <input class="field" maxLength={256} value={title} data-autofocus data-testid="create-title" onInput={(event) => (title.value = event.currentTarget.value)} />
      </label>
      <AgentChoice chosen={agent} mode={mode} network={network} />
      <label class="labelled">
        <span>Git repository <em>optional, cloned into the workspace</em></span>
        <input class="field" type="url" placeholder="https://example.com/project.git" value={repoUrl} data-testid="create-repo" onInput={(event) => (repoUrl.value = event.currentTarget.value)} />
      </label>
      {repoUrl.value.trim() ? (
        <label class="labelled">
          <span>Branch <em>optional</em></span>
          <input class="field" value={repoBranch} onInput={(event) => (repoBranch.value = event.currentTarget.value)} />
        </label>
      ) : null}
      <Where chosen={provider} image={image} />
      <fieldset class="labelled">
        <legend>Network</legend>
        <div class="segments">
          {offered.map((one) => (
            <label key={one} class="segment">
              <input type="radio" name="network" value={one} checked={network === one} data-testid={`create-network-${one}`} onChange={() => (wanted.value = one)} />
              <span>{NETWORKS[one]}</span>
            </label>
          ))}
        </div>
        {network === "hosts" ? <input class="field" aria-label="Hosts" data-testid="create-hosts" value={hosts} onInput={(event) => (hosts.value = event.currentTarget.value)} /> : null}
        <p class="help" data-testid="create-network-help">{networkWords(network, networkOf(allowed.max), repoUrl.value.trim() !== "", possible)}</p>
      </fieldset>
      <details class="advanced">
        <summary>Advanced</summary>
        <label class="labelled">
          <span>Id <em>made up if left empty</em></span>
          <input class="field mono" placeholder="my-session" autocapitalize="off" spellcheck={false} value={id} data-testid="create-id" onInput={(event) => (id.value = event.currentTarget.value)} />
        </label>
        <fieldset class="labelled">
          <legend>Environment variables</legend>
          <p class="help">For secrets. They are kept in the gateway's memory only, and never in this page.</p>
          <EnvRows rows={rows.value} onChange={(next) => (rows.value = next)} />
        </fieldset>
      </details>
      {error.value ? (
        <p class="help bad" role="alert" data-testid="create-error">
          {error}
        </p>
      ) : null}
    </Dialog>
  );
}
