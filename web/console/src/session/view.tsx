// A session: its head, its conversation, and the panes beside it; on a phone one of them at a time.
import { type ReadonlySignal, signal, useComputed, useSignalEffect } from "@preact/signals";
import type { ComponentChildren, ComponentType } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Chat } from "../chat/view.tsx";
import { DemoMenu } from "../demo.tsx";
import { me, type SessionHandle } from "../house.ts";
import { kept } from "../kept.ts";
import { actionsFor, wake } from "../list/actions.tsx";
import { PlaceButton, StatusBadge, SyncFact } from "../list/view.tsx";
import { narrow } from "../screen.ts";
import { markSeen } from "../unread.ts";
import { Button } from "../ui/button.tsx";
import { Guard } from "../ui/guard.tsx";
import { ChatIcon, FolderIcon, LogsIcon, MoreIcon, PeopleIcon, PlayIcon, SyncIcon, TerminalIcon } from "../ui/icons.tsx";
import { Menu } from "../ui/menu.tsx";
import { panelOf, type Tab, Tabs } from "../ui/tabs.tsx";
import { nameOf } from "../words.ts";
import { AgentMenu } from "./agent.tsx";
import { Banner } from "./banner.tsx";
import { ConnectionState } from "./connection.tsx";
import type { PaneProps } from "./pane.ts";
import { Split } from "./split.tsx";

type PaneId = "terminal" | "files" | "sync" | "logs";

const PANES: Record<PaneId, { label: string; icon: ComponentChildren; load: () => Promise<ComponentType<PaneProps>> }> = {
  terminal: { label: "Terminal", icon: <TerminalIcon />, load: () => import("../panes/terminals.tsx").then((module) => module.TerminalsPane) },
  files: { label: "Files", icon: <FolderIcon />, load: () => import("../panes/files.tsx").then((module) => module.FilesPane) },
  sync: { label: "Sync", icon: <SyncIcon />, load: () => import("../panes/timeline.tsx").then((module) => module.TimelinePane) },
  logs: { label: "Logs", icon: <LogsIcon />, load: () => import("../panes/logs.tsx").then((module) => module.LogsPane) },
};
const PANE_IDS = Object.keys(PANES) as PaneId[];
const isPane = (id: string | null): id is PaneId => PANE_IDS.includes(id as PaneId);

const remembered = kept.get("pane");
const pane = signal<PaneId>(isPane(remembered) ? remembered : "terminal");
/** On a phone: whether the conversation is what is shown. */
const onChat = signal(true);

function choose(id: string): void {
  onChat.value = id === "chat";
  if (!isPane(id)) return;
  pane.value = id;
  kept.set("pane", id);
}

interface SessionViewProps {
  session: SessionHandle;
  menuButton: ComponentChildren;
  /** Open it anew, where its line has ended for good. */
  onReopen: () => void;
}

export function SessionView({ session, menuButton, onReopen }: SessionViewProps) {
  const main = useRef<HTMLElement>(null);
  useEffect(() => {
    onChat.value = true;
    // A keyboard that covers half a phone is not what somebody who opens a session wants to see.
    if (matchMedia("(pointer: fine)").matches) main.current?.querySelector<HTMLElement>("#composer")?.focus();
  }, [session]);
  const seen = (): void => {
    // The list may be a moment behind what the conversation shows.
    const shown = session.items.value.findLast(({ seq }) => seq !== undefined)?.seq ?? 0;
    const { lastSeq } = session.sandbox.value;
    if (!document.hidden) markSeen(session.id, Math.max(lastSeq, shown));
  };
  useSignalEffect(seen);
  useEffect(() => {
    document.addEventListener("visibilitychange", seen);
    return () => document.removeEventListener("visibilitychange", seen);
  }, [session]);
  const small = narrow.value;
  const chatShown = !small || onChat.value;
  const chat = (
    <div class="split-chat" hidden={!chatShown} {...(small ? panelOf("pane", "chat") : {})}>
      <Chat session={session} />
    </div>
  );
  const tabs: Tab[] = PANE_IDS.map((id) => ({ id, label: PANES[id].label, icon: PANES[id].icon, "data-testid": `tab-${id}` }));
  const panes = (
    <div class="split-panes" hidden={small && onChat.value}>
      {small ? null : <Tabs label="Beside the conversation" panels="pane" class="pane-tabs" selected={pane.value} onSelect={choose} tabs={tabs} />}
      {PANE_IDS.map((id) => (
        <Pane key={id} id={id} session={session} />
      ))}
    </div>
  );
  return (
    <main class="session" id="main" ref={main} data-testid="session" data-id={session.id} data-created={session.created} tabIndex={-1}>
      <Head session={session} menuButton={menuButton} onReopen={onReopen} />
      <Banner session={session} />
      {small ? (
        <div class="single">
          {chat}
          {panes}
        </div>
      ) : (
        <Split left={chat} right={panes} />
      )}
      {small ? (
        <Tabs
          label="Parts of the session"
          panels="pane"
          class="bottom-tabs"
          selected={onChat.value ? "chat" : pane.value}
          onSelect={choose}
          tabs={[{ id: "chat", label: "Chat", icon: <ChatIcon />, "data-testid": "tab-chat" }, ...tabs]}
        />
      ) : null}
    </main>
  );
}

function Head({ session, menuButton, onReopen }: SessionViewProps) {
  const sandbox = session.sandbox.value;
  return (
    <header class="session-head">
      {menuButton}
      <div class="session-title">
        <h1 title={sandbox.id}>{nameOf(sandbox)}</h1>
        <div class="session-facts">
          <StatusBadge sandbox={sandbox} />
          <PlaceButton sandbox={sandbox} />
          <SyncFact sandbox={sandbox} />
          <AgentMenu session={session} />
        </div>
      </div>
      <ConnectionState session={session} onReopen={onReopen} />
      <span class="viewers" title="Connections to this session: chats and terminals of all viewers" data-testid="viewers">
        <PeopleIcon size={14} />
        {sandbox.viewers}
        <span class="sr-only"> {sandbox.viewers === 1 ? "viewer" : "viewers"}</span>
      </span>
      {sandbox.status === "sleeping" ? (
        <Button small icon={<PlayIcon size={14} />} data-testid="wake" onClick={() => void wake(sandbox)}>
          Wake
        </Button>
      ) : null}
      {me.value?.demo ? <DemoMenu session={session} /> : null}
      <Menu button={{ kind: "quiet", icon: <MoreIcon />, "aria-label": "What to do with this session", "data-testid": "session-menu" }} items={actionsFor(sandbox)} />
    </header>
  );
}

/** A pane is made when it is first shown, and stays. */
function Pane({ id, session }: { id: PaneId; session: SessionHandle }) {
  const shown: ReadonlySignal<boolean> = useComputed(() => pane.value === id && !(narrow.value && onChat.value));
  const [What, setWhat] = useState<ComponentType<PaneProps>>();
  const [failed, setFailed] = useState(false);
  const loading = useRef(false);
  const visible = shown.value;
  useEffect(() => {
    if (!visible || What || loading.current) return;
    loading.current = true;
    PANES[id].load().then(
      (component) => setWhat(() => component),
      () => {
        loading.current = false;
        setFailed(true);
      },
    );
  }, [visible, What, failed]);
  return (
    <div class="pane" {...panelOf("pane", id)} hidden={!visible} data-testid={`pane-${id}`}>
      {What ? <Guard><What session={session} shown={shown} /></Guard> : failed ? <PaneFailed again={() => setFailed(false)} /> : null}
    </div>
  );
}

const PaneFailed = ({ again }: { again: () => void }) => (
  <div class="pane-failed">
    <p>This part of the page could not be loaded.</p>
    <Button onClick={again}>Try again</Button>
  </div>
);
