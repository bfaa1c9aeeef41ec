// Who the session's agent is, and what it may do without asking.
import type { Mode } from "@holdfast/client";
import { agents, type SessionHandle, setMode } from "../house.ts";
import { RobotIcon } from "../ui/icons.tsx";
import { Menu, type MenuItem } from "../ui/menu.tsx";
import { attempt } from "../ui/toast.tsx";
import { agentName, memoryWords, MODE, titleOf, versionOf } from "../words.ts";

export function AgentMenu({ session }: { session: SessionHandle }) {
  const { id, status, agent: chosen } = session.sandbox.value;
  const { name, version, model, mode } = session.agent.value;
  const known = agents.value;
  const shown = (chosen === null || typeof chosen === "string" ? agentName(chosen, known) : "") || (name ? titleOf(name, known?.agents ?? []) : agentName(chosen, known));
  if (!shown) return null;
  const forgot = session.items.value.some((item) => item.kind === "note" && item.type === "agent_status");
  const running = version ?? versionOf(chosen, known);
  const about: MenuItem = {
    label: running ? `${shown} ${running}` : shown,
    hint: [model ? `Model: ${model}.` : "", chosen === null ? "As this gateway runs it." : "", memoryWords(chosen, known, forgot)].filter(Boolean).join(" "),
    disabled: true,
    onSelect: () => {},
    "data-testid": "agent-about",
  };
  const modes = (Object.keys(MODE) as Mode[]).map((each): MenuItem => ({
    label: MODE[each].word,
    hint: MODE[each].meaning,
    checked: mode === each,
    onSelect: () => void attempt(() => setMode(id, each), "The mode is as it was"),
    "data-testid": `mode-${each}`,
  }));
  const word = mode !== undefined && mode in MODE ? MODE[mode as Mode].word : undefined;
  const tellsMode = chosen !== "none" && status !== "archived";
  return (
    <Menu
      button={{ kind: "quiet", small: true, class: "agent", icon: <RobotIcon size={14} />, title: "The agent, and what it may do without asking", children: word && tellsMode ? `${shown} · ${word}` : shown, "data-testid": "agent" }}
      items={tellsMode ? [about, "line", ...modes] : [about]}
    />
  );
}
