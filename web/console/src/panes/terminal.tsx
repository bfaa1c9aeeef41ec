// One terminal on the page: its screen, and a strip that says plainly what state it is in.
import { type ReadonlySignal, useSignal, useSignalEffect } from "@preact/signals";
import type { TerminalChannel } from "@holdfast/client";
import { HoldfastAddon } from "@holdfast/client/xterm";
import { useEffect, useRef } from "preact/hooks";
import { api } from "../api.ts";
import type { SessionHandle } from "../house.ts";
import { theme } from "../theme.ts";
import { Button } from "../ui/button.tsx";
import { ChevronDownIcon, CloseIcon } from "../ui/icons.tsx";
import { attempt, toast } from "../ui/toast.tsx";
import { count } from "./figures.ts";
import { hold } from "./held.ts";
import { UpIcon } from "./icons.tsx";
import type { Screen } from "./screen.ts";
import { passes, type Said, say, type Standing } from "./standing.ts";

/** The methods that buttons around a terminal use. */
export interface ScreenControl {
  search(): void;
  selects(): boolean;
  copy(): Promise<boolean>;
  paste(text: string): void;
}

export interface TerminalViewProps {
  session: SessionHandle;
  name: string;
  visible: ReadonlySignal<boolean>;
  fontSize: ReadonlySignal<number>;
  spoken: ReadonlySignal<boolean>;
  looking: ReadonlySignal<boolean>;
  onFont: (by: number) => void;
  onLeave: () => void;
  onSelection: (some: boolean) => void;
  control: (control: ScreenControl | null) => void;
}

const ERROR_SHOWN_MS = 6000;
/** In milliseconds since 1970, like the client's `retryAt`: a clock that is never set. */
const clockNow = (): number => performance.timeOrigin + performance.now();
const KEYS: [string, string, string][] = [
  ["Esc", "\x1b", "Esc"],
  ["Tab", "\t", "Tab"],
  ["^C", "\x03", "Control C"],
  ["^D", "\x04", "Control D"],
  ["↑", "\x1b[A", "Up"],
  ["↓", "\x1b[B", "Down"],
  ["←", "\x1b[D", "Left"],
  ["→", "\x1b[C", "Right"],
];

export function TerminalView({ session, name, visible, fontSize, spoken, looking, onFont, onLeave, onSelection, control }: TerminalViewProps) {
  const host = useRef<HTMLDivElement>(null);
  const screen = useRef<Screen | null>(null);
  const channel = useRef<TerminalChannel | null>(null);
  const ready = useSignal(false); // the screen is open
  const failed = useSignal(false); // its code could not be loaded
  const turn = useSignal(0); // another one: connect anew
  const now = useSignal(clockNow());
  const standing = useSignal<Standing>({ phase: "connecting", status: "running", exit: null, error: null });
  const matches = useSignal<{ at: number; of: number } | null>(null); // null: nobody searches
  const words = useSignal("");
  const searchForm = useRef<HTMLFormElement>(null);
  const searchBox = useRef<HTMLInputElement>(null);
  const offer = useSignal<string | null>(null);
  const link = useSignal("");
  const size = useSignal("");
  const foreign = useSignal(false); // it has the size of another viewer's window
  const hint = `terminal-hint-${session.id}-${name}`;

  const search = (): void => {
    matches.value ??= { at: -1, of: 0 };
    const selected = screen.current?.terminal.getSelection() ?? "";
    if (selected && !selected.includes("\n")) words.value = selected;
    // Now, not at the next drawing: input right after the shortcut is for the box, not for the program.
    if (searchForm.current) searchForm.current.hidden = false;
    searchBox.current?.focus();
    searchBox.current?.select();
  };
  const endSearch = (): void => {
    screen.current?.endSearch();
    matches.value = null;
    screen.current?.focus();
  };

  // The screen: once, when it is first to be seen.
  useSignalEffect(() => {
    if (!visible.value || screen.current || failed.value) return;
    let gone = false;
    void import("./screen.ts")
      .then((module) => {
        const element = host.current;
        if (gone || !element || screen.current) return;
        const made = new module.Screen({
          host: element,
          label: `Terminal ${name}`,
          hint,
          fontSize: fontSize.peek(),
          spoken: spoken.peek(),
          onKey: (key) => {
            if (key === "leave") onLeave();
            else if (key === "search") search();
            else onFont(key === "bigger" ? 1 : -1);
          },
          onMatches: (at, of) => {
            if (matches.peek()) matches.value = { at, of };
          },
          onSelection,
          onOffer: (text) => (offer.value = text),
          onLink: (address) => (link.value = address),
          onSize: (cols, rows, others) => {
            size.value = `${cols} × ${rows}`;
            foreign.value = others;
          },
        });
        screen.current = made;
        control({ search, selects: () => made.terminal.hasSelection(), copy: () => module.copy(made.terminal.getSelection()), paste: (text) => made.terminal.paste(text) });
        ready.value = true;
      })
      .catch((error: unknown) => {
        failed.value = true;
        console.error(error);
      });
    return () => {
      gone = true;
    };
  });
  useEffect(
    () => () => {
      control(null);
      screen.current?.dispose();
      screen.current = null;
    },
    [],
  );

  // The connection: from the moment there is a screen; made anew on request or when its role changes.
  useSignalEffect(() => {
    void turn.value;
    const role = looking.value ? "view" : undefined;
    const terminal = screen.current?.terminal;
    if (!ready.value || !terminal) return;
    const { cols, rows } = terminal;
    const opened = session.client.terminal(name, { cols, rows, ...(role ? { role } : {}) });
    channel.current = opened;
    const set = (change: Partial<Standing>): void => {
      standing.value = { ...standing.peek(), ...change };
    };
    standing.value = { ...opened.state, status: session.sandbox.peek().status, exit: null, error: null };
    const stops = [
      opened.on("state", (state) => (standing.value = { ...standing.peek(), retryAt: undefined, code: undefined, reason: undefined, ...state })),
      opened.on("ready", ({ absent }) => set(absent ? { exit: null } : { status: "running", exit: null, error: null })),
      opened.on("reset", () => set({ status: "running", exit: null, error: null })),
      opened.on("exit", ({ code, signal }) => set({ exit: { code, signal } })),
      opened.on("status", ({ status }) => set({ status })),
      opened.on("error", ({ code, error }) => {
        set({ error: { code, error } });
        if (passes({ code })) setTimeout(() => {
          if (standing.peek().error?.code === code) set({ error: null });
        }, ERROR_SHOWN_MS);
      }),
    ];
    const addon = new HoldfastAddon(opened);
    screen.current?.load(addon);
    terminal.options.disableStdin = role === "view";
    const letGo = hold(name, terminal, opened);
    return () => {
      letGo();
      for (const stop of stops) stop();
      addon.dispose();
      opened.close();
    };
  });

  useSignalEffect(() => {
    if (visible.value && ready.value) {
      const frame = requestAnimationFrame(() => screen.current?.fit());
      return () => cancelAnimationFrame(frame);
    }
  });
  // What an effect depends on is what it reads: the values first, the screen, which may not be there yet, afterwards.
  useSignalEffect(() => {
    const points = fontSize.value;
    screen.current?.setFont(points);
  });
  useSignalEffect(() => {
    const aloud = spoken.value;
    screen.current?.setSpoken(aloud);
  });
  useSignalEffect(() => {
    void theme.value;
    const frame = requestAnimationFrame(() => screen.current?.dress());
    return () => cancelAnimationFrame(frame);
  });
  // A count-down is told each second, while there is one.
  useSignalEffect(() => {
    if (standing.value.phase !== "waiting") return;
    now.value = clockNow();
    const ticks = setInterval(() => (now.value = clockNow()), 500);
    return () => clearInterval(ticks);
  });

  const act = (what: NonNullable<Said["act"]>): void => {
    if (what === "reopen") turn.value += 1;
    else if (what === "restart") channel.current?.write("\r");
    else void attempt(() => api.wake(session.id), "Waking it");
    screen.current?.focus();
  };
  const copyOffer = async (): Promise<void> => {
    const text = offer.value ?? "";
    offer.value = null;
    const done = await navigator.clipboard?.writeText(text).then(() => true, () => false);
    toast(done ? "Copied." : "The browser did not allow copying.", done ? "good" : "bad");
    screen.current?.focus();
  };

  const said: Said | null = failed.value ? { tone: "bad", words: "The terminal could not be loaded. Reload the page." } : ready.value ? say(standing.value, now.value) : { tone: "info", words: "Opening.", moving: true };
  return (
    <div class="terminal-frame">
      <div class="terminal-area">
        <div ref={host} class="terminal-host" data-testid="terminal" data-name={name} data-phase={standing.value.phase} />
        <form
          ref={searchForm}
          hidden={matches.value === null}
          class="terminal-find"
          role="search"
          data-testid="terminal-find"
          onSubmit={(event) => {
            event.preventDefault();
            screen.current?.find(words.value, "next");
          }}
          onKeyDown={(event) => {
            if (event.key === "Escape") endSearch();
            else if (event.key === "Enter" && event.shiftKey) {
              event.preventDefault();
              screen.current?.find(words.value, "previous");
            }
          }}
        >
          <input
            ref={searchBox}
            type="search"
            aria-label={`Search in terminal ${name}`}
            placeholder="Search"
            data-testid="terminal-find-box"
            value={words.value}
            onInput={(event) => {
              words.value = event.currentTarget.value;
              screen.current?.find(words.value, "typing");
            }}
          />
          <output class="terminal-found" data-testid="terminal-find-count">
            {matches.value ? found(words.value, matches.value) : ""}
          </output>
          <Button kind="quiet" small icon={<UpIcon />} aria-label="Previous match (Shift+Enter)" data-testid="terminal-find-previous" onClick={() => screen.current?.find(words.value, "previous")} />
          <Button kind="quiet" small icon={<ChevronDownIcon />} aria-label="Next match (Enter)" data-testid="terminal-find-next" onClick={() => screen.current?.find(words.value, "next")} />
          <Button kind="quiet" small icon={<CloseIcon />} aria-label="Close search (Escape)" data-testid="terminal-find-close" onClick={endSearch} />
        </form>
        {offer.value !== null ? (
          <div class="terminal-offer" role="alert" data-testid="terminal-offer">
            <span>
              A program wants to copy {count(offer.value.length, "character")}: <code>{offer.value.slice(0, 60)}</code>
            </span>
            <Button small kind="primary" onClick={() => void copyOffer()}>
              Copy
            </Button>
            <Button small kind="quiet" onClick={() => (offer.value = null)}>
              No
            </Button>
          </div>
        ) : null}
      </div>
      <div class="terminal-keys" role="toolbar" aria-label="Keys that a phone lacks">
        {KEYS.map(([label, bytes, spelled]) => (
          <button
            key={label}
            type="button"
            class="terminal-key"
            aria-label={spelled}
            onPointerDown={(event) => event.preventDefault()}
            onClick={() => {
              screen.current?.terminal.input(bytes);
              screen.current?.focus();
            }}
          >
            {label}
          </button>
        ))}
      </div>
      <div class={`terminal-strip${said ? ` tone-${said.tone}` : ""}${foreign.value ? " foreign" : ""}`}>
        <span class="terminal-said" role="status" data-testid="terminal-status">
          {said ? (
            <>
              <span class={`badge-dot${said.moving ? " moving" : ""}`} aria-hidden="true" /> {said.words}
            </>
          ) : link.value ? (
            <span class="terminal-link">{link.value}</span>
          ) : looking.value ? (
            "View only: your input is not sent."
          ) : null}
        </span>
        {said?.act ? (
          <Button small onClick={() => act(said.act as NonNullable<Said["act"]>)} data-testid={`terminal-${said.act}`}>
            {ACTS[said.act]}
          </Button>
        ) : (
          <span class="terminal-size" data-testid="terminal-size">{foreign.value ? `sized by another viewer: ${size.value}` : size.value}</span>
        )}
        <span class="terminal-hint" id={hint}>
          <kbd>Ctrl</kbd> <kbd>Shift</kbd> <kbd>L</kbd> leaves the terminal
        </span>
      </div>
    </div>
  );
}

const ACTS: Record<NonNullable<Said["act"]>, string> = { restart: "Start again", reopen: "Open again", wake: "Wake it" };

function found(words: string, { at, of }: { at: number; of: number }): string {
  if (!words) return "";
  if (of === 0) return "none";
  return at < 0 ? `${of}+` : `${at + 1} of ${of}`;
}
