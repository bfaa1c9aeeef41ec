import { useComputed, useSignal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useRef } from "preact/hooks";
import { DemoMenu } from "../demo.tsx";
import { me, type SessionHandle } from "../house.ts";
import { FilesPane } from "../panes/files.tsx";
import { LogsPane } from "../panes/logs.tsx";
import { TerminalsPane } from "../panes/terminals.tsx";
import { TimelinePane } from "../panes/timeline.tsx";
import { panelOf, Tabs } from "../ui/tabs.tsx";
import type { PaneProps } from "./pane.ts";

const PANES: Record<string, ComponentType<PaneProps>> = { terminal: TerminalsPane, files: FilesPane, sync: TimelinePane, logs: LogsPane };

export function SessionView({ session }: { session: SessionHandle }) {
  const chosen = useSignal("terminal");
  const opened = useRef(new Set<string>());
  opened.current.add(chosen.value);
  return (
    <section>
      <header>{me.value?.demo ? <DemoMenu session={session} /> : null}</header>
      <Tabs label="Beside the chat" panels="pane" selected={chosen.value} onSelect={(id) => (chosen.value = id)} tabs={Object.keys(PANES).map((id) => ({ id, label: id }))} />
      {Object.entries(PANES).map(([id, Pane]) =>
        opened.current.has(id) ? (
          <div key={id} {...panelOf("pane", id)} hidden={chosen.value !== id}>
            <Shown pane={Pane} id={id} chosen={chosen} session={session} />
          </div>
        ) : null,
      )}
    </section>
  );
}

function Shown({ pane: Pane, id, chosen, session }: { pane: ComponentType<PaneProps>; id: string; chosen: { value: string }; session: SessionHandle }) {
  const shown = useComputed(() => chosen.value === id);
  return <Pane session={session} shown={shown} />;
}
