// The choice of a new session's agent. An agent that is not available shows why, and what to type.
import type { Mode } from "@holdfast/client";
import type { Signal } from "@preact/signals";
import { agents } from "../house.ts";
import type { Network } from "../api.ts";
import { agentHelp, MODE, titleOf } from "../words.ts";

interface AgentChoiceProps {
  chosen: Signal<string>;
  mode: Signal<Mode | "">;
  network: Network;
}

/** Why the chosen agent is not available; undefined: it is. */
export function whyNoAgent(chosen: string): string | undefined {
  const one = agents.value?.agents.find(({ name }) => name === chosen);
  return one && !one.available ? (one.reason ?? "It is not available here.") : undefined;
}

export function AgentChoice({ chosen, mode, network }: AgentChoiceProps) {
  const known = agents.value;
  if (!known) return null;
  const name = chosen.value || known.default;
  const wrong = whyNoAgent(name);
  return (
    <>
      <label class="labelled">
        <span>Agent</span>
        <select class="field" value={chosen} data-testid="create-agent" aria-describedby="create-agent-help" onChange={(event) => (chosen.value = event.currentTarget.value)}>
          <option value="">{titleOf(known.default, known.agents)} (as this gateway runs it)</option>
          {known.agents.filter((one) => one.name !== known.default).map((one) => (
            <option key={one.name} value={one.name}>
              {one.title}
              {one.available ? "" : ", not here"}
            </option>
          ))}
        </select>
        <small id="create-agent-help" class={`help${wrong ? " bad" : ""}`} role={wrong ? "alert" : undefined} data-testid="create-agent-help">
          {wrong ? spelled(wrong) : agentHelp(name, network)}
        </small>
      </label>
      {name === "none" || name === "demo" ? null : (
        <label class="labelled">
          <span>What it may do without asking</span>
          <select class="field" value={mode} data-testid="create-mode" onChange={(event) => (mode.value = event.currentTarget.value as Mode | "")}>
            <option value="">The agent's own default</option>
            {(Object.keys(MODE) as Mode[]).map((each) => (
              <option key={each} value={each}>
                {MODE[each].word}. {MODE[each].meaning}
              </option>
            ))}
          </select>
        </label>
      )}
    </>
  );
}

/** A sentence with the commands in it set as such. */
function spelled(words: string) {
  return words.split("`").map((part, at) => (at % 2 ? <code key={at}>{part}</code> : part));
}
