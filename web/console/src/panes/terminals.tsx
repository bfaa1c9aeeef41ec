// The terminals of a session: tabs, and one xterm.js terminal behind each opened one. A hidden one stays connected and
// drawn, so that it shows its screen at once.
import { type ReadonlySignal, useComputed, useSignal, useSignalEffect } from "@preact/signals";
import { useCallback, useEffect, useRef } from "preact/hooks";
import { api } from "../api.ts";
import { kept } from "../kept.ts";
import type { PaneProps } from "../session/pane.ts";
import { Button } from "../ui/button.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { CopyIcon, MoreIcon, PlusIcon, SearchIcon } from "../ui/icons.tsx";
import { Menu } from "../ui/menu.tsx";
import { panelOf, Tabs } from "../ui/tabs.tsx";
import { attempt, toast } from "../ui/toast.tsx";
import { PasteIcon } from "./icons.tsx";
import "./panes.css";
import "./terminals.css";
import type { ScreenControl } from "./terminal.tsx";
import { TerminalView } from "./terminal.tsx";

const FIRST = "main";
const LOOK_AGAIN_MS = 15_000;
const SMALLEST = 9;
const LARGEST = 28;
const USUAL = 13;

function rememberedFont(): number {
  const size = Number(kept.get("font-size"));
  return size >= SMALLEST && size <= LARGEST ? size : USUAL;
}

/** The first name that is free: shell-2, shell-3, ... */
export function freeName(taken: readonly string[]): string {
  let number = 2;
  while (taken.includes(`shell-${number}`)) number += 1;
  return `shell-${number}`;
}

export function TerminalsPane({ session, shown }: PaneProps) {
  const panels = `terminal-${session.id}`;
  const names = useSignal<readonly string[]>([FIRST]);
  const own = useRef(new Set<string>()); // opened here, and perhaps not created yet
  const chosen = useSignal(FIRST);
  const opened = useRef(new Set<string>());
  const closing = useSignal<string | null>(null);
  const fontSize = useSignal(rememberedFont());
  const spoken = useSignal(kept.get("screen-reader") === "yes");
  const looking = useSignal(false);
  const controls = useRef(new Map<string, ScreenControl>());
  const selects = useSignal(false);

  const look = useCallback(async () => {
    const found = await api.terminals(session.id).catch(() => null); // it says itself what is wrong, where it is shown
    if (!found) return;
    names.value = [...new Set([FIRST, ...found.map((each) => each.name), ...own.current])];
    if (!names.value.includes(chosen.value)) chosen.value = FIRST;
  }, [session.id]);

  useSignalEffect(() => {
    const status = session.sandbox.value.status;
    if (!shown.value || status === "archived") return;
    void look();
    const again = setInterval(() => {
      if (!document.hidden) void look();
    }, LOOK_AGAIN_MS);
    return () => clearInterval(again);
  });
  useEffect(() => kept.set("font-size", fontSize.value === USUAL ? null : String(fontSize.value)), [fontSize.value]);
  useEffect(() => kept.set("screen-reader", spoken.value ? "yes" : null), [spoken.value]);

  const select = (name: string): void => {
    chosen.value = name;
    selects.value = controls.current.get(name)?.selects() ?? false;
  };
  const add = (): void => {
    const name = freeName(names.value);
    own.current.add(name);
    names.value = [...names.value, name];
    select(name);
  };
  const forget = (name: string): void => {
    own.current.delete(name);
    opened.current.delete(name);
    const at = names.value.indexOf(name);
    names.value = names.value.filter((each) => each !== name);
    if (chosen.value === name) select(names.value[Math.max(0, at - 1)] ?? FIRST);
  };
  const close = async (name: string): Promise<void> => {
    const found = await api.terminals(session.id).catch(() => []);
    if (found.find((each) => each.name === name)?.alive) closing.value = name;
    else await end(name, found.some((each) => each.name === name));
  };
  const end = async (name: string, there: boolean): Promise<void> => {
    closing.value = null;
    if (there && (await attempt(() => api.closeTerminal(session.id, name).then(() => true), `Closing ${name}`)) === undefined) return;
    forget(name);
  };
  const font = (by: number): void => {
    fontSize.value = Math.min(LARGEST, Math.max(SMALLEST, fontSize.value + by));
  };
  const current = (): ScreenControl | undefined => controls.current.get(chosen.value);
  const leave = (): void => document.getElementById(`${panels}-tab-${chosen.value}`)?.focus();
  const copy = async (): Promise<void> => {
    if (!selects.value) toast("Select something in the terminal first.");
    else if (await current()?.copy()) toast("Copied.", "good");
    else toast("The browser did not allow copying.", "bad");
  };
  const paste = async (): Promise<void> => {
    const text = await navigator.clipboard?.readText().catch(() => null);
    if (text === null || text === undefined) toast("The browser does not share its clipboard: press Ctrl+Shift+V in the terminal.", "warn");
    else current()?.paste(text);
  };

  opened.current.add(chosen.value);
  return (
    <div class="pane-inside terminals" data-testid="terminals-pane">
      <Tabs
        label="Terminals"
        class="terminal-tabs"
        panels={panels}
        selected={chosen.value}
        onSelect={select}
        tabs={names.value.map((name) => ({ id: name, label: name, "data-testid": `terminal-tab-${name}`, ...(name === FIRST ? {} : { onClose: () => void close(name) }) }))}
      >
        <Button kind="quiet" small icon={<PlusIcon />} aria-label="New terminal" data-testid="terminal-new" onClick={add} />
        <span class="pane-spring" />
        <div class="pane-tools" role="toolbar" aria-label="Terminal">
          <Button kind="quiet" small icon={<SearchIcon />} aria-label="Search (Ctrl+Shift+F)" data-testid="terminal-search" onClick={() => current()?.search()} />
          <Button kind="quiet" small class="wide-only" icon={<CopyIcon />} aria-label="Copy selection (Ctrl+Shift+C)" data-testid="terminal-copy" disabled={!selects.value} onClick={() => void copy()} />
          <Button kind="quiet" small class="wide-only" icon={<PasteIcon />} aria-label="Paste (Ctrl+Shift+V)" data-testid="terminal-paste" onClick={() => void paste()} />
          <Button kind="quiet" small class="wide-only" aria-label="Smaller text" data-testid="terminal-smaller" disabled={fontSize.value <= SMALLEST} onClick={() => font(-1)} icon={<span class="letter small">A</span>} />
          <Button kind="quiet" small class="wide-only" aria-label="Larger text" data-testid="terminal-larger" disabled={fontSize.value >= LARGEST} onClick={() => font(1)} icon={<span class="letter large">A</span>} />
          <Menu
            button={{ kind: "quiet", small: true, icon: <MoreIcon />, "aria-label": "More about this terminal", ...{ "data-testid": "terminal-more" } }}
            items={[
              { label: "Copy selection", hint: "Ctrl+Shift+C", onSelect: () => void copy() },
              { label: "Paste", hint: "Ctrl+Shift+V", onSelect: () => void paste() },
              { label: "Larger text", hint: "Ctrl+Shift+Plus", onSelect: () => font(1) },
              { label: "Smaller text", hint: "Ctrl+Shift+Minus", onSelect: () => font(-1) },
              "line",
              { label: "Read aloud", hint: "For screen readers: the text of the screen, as it comes", checked: spoken.value, onSelect: () => (spoken.value = !spoken.value), "data-testid": "terminal-spoken" },
              { label: "View only", hint: "Your input is not sent", checked: looking.value, onSelect: () => (looking.value = !looking.value), "data-testid": "terminal-look" },
            ]}
          />
        </div>
      </Tabs>
      <div class="terminal-stack">
        {names.value
          .filter((name) => opened.current.has(name))
          .map((name) => (
            <Panel
              key={name}
              panels={panels}
              name={name}
              chosen={chosen}
              shown={shown}
              render={(visible) => (
                <TerminalView
                  session={session}
                  name={name}
                  visible={visible}
                  fontSize={fontSize}
                  spoken={spoken}
                  looking={looking}
                  onFont={font}
                  onLeave={leave}
                  onSelection={(some) => {
                    if (chosen.value === name) selects.value = some;
                  }}
                  control={(control) => {
                    if (control) controls.current.set(name, control);
                    else controls.current.delete(name);
                  }}
                />
              )}
            />
          ))}
      </div>
      {closing.value ? (
        <Dialog
          title={`Close ${closing.value}?`}
          data-testid="terminal-close-dialog"
          onClose={() => (closing.value = null)}
          onSubmit={() => void end(closing.value ?? "", true)}
          actions={
            <>
              <Button onClick={() => (closing.value = null)}>Keep it</Button>
              <Button kind="danger" type="submit" data-testid="terminal-close-confirm" data-autofocus>
                End it and close
              </Button>
            </>
          }
        >
          <p>Its program is still running. Closing ends it for everybody in this terminal.</p>
        </Dialog>
      ) : null}
    </div>
  );
}

interface PanelProps {
  panels: string;
  name: string;
  chosen: ReadonlySignal<string>;
  shown: ReadonlySignal<boolean>;
  render: (visible: ReadonlySignal<boolean>) => preact.JSX.Element;
}

function Panel({ panels, name, chosen, shown, render }: PanelProps) {
  const visible = useComputed(() => shown.value && chosen.value === name);
  return (
    <div class="terminal-panel" {...panelOf(panels, name)} hidden={chosen.value !== name}>
      {render(visible)}
    </div>
  );
}
