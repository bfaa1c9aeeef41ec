// What the agent and the bridge logged: its end, kept up to date while somebody looks at it.
import { useComputed, useSignal, useSignalEffect } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { api } from "../api.ts";
import type { PaneProps } from "../session/pane.ts";
import { Button } from "../ui/button.tsx";
import { CopyIcon, LogsIcon, SearchIcon } from "../ui/icons.tsx";
import { toast } from "../ui/toast.tsx";
import { count, preciseClock } from "./figures.ts";
import { FollowIcon, WrapIcon } from "./icons.tsx";
import { type Event, linesOf, matching } from "./lines.ts";
import "./panes.css";
import "./logs.css";
import { Empty, reasonIn, Trouble } from "./words.tsx";

const EVERY_MS = 2000;
const AT_END_PX = 24;

export function LogsPane({ session, shown }: PaneProps) {
  const text = useSignal<string | null>(null); // null: not read yet
  const trouble = useSignal<string | null>(null);
  const follow = useSignal(true);
  const wrap = useSignal(true);
  const wanted = useSignal("");
  const list = useRef<HTMLDivElement>(null);

  const read = async (): Promise<void> => {
    try {
      text.value = await api.logs(session.id);
      trouble.value = null;
    } catch (error) {
      trouble.value = reasonIn(error);
    }
  };
  useSignalEffect(() => {
    if (!shown.value) return;
    if (!follow.value) {
      if (text.peek() === null) void read();
      return;
    }
    let timer: ReturnType<typeof setTimeout> | undefined;
    let over = false;
    const again = async (): Promise<void> => {
      if (!document.hidden) await read();
      if (!over) timer = setTimeout(() => void again(), EVERY_MS);
    };
    void again();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  });

  const lines = useComputed(() => linesOf(text.value ?? ""));
  const kept = useComputed(() => matching(lines.value, wanted.value));
  const toEnd = (): void => {
    const element = list.current;
    if (element && follow.peek()) element.scrollTop = element.scrollHeight;
  };
  useLayoutEffect(toEnd, [kept.value, follow.value, wrap.value]);
  useEffect(() => {
    const element = list.current;
    if (!element) return;
    const room = new ResizeObserver(toEnd);
    room.observe(element);
    return () => room.disconnect();
  }, []);
  // A reader who scrolls up wants to read; at the end again, it follows.
  const onScroll = (): void => {
    const element = list.current;
    if (!element || element.clientHeight === 0) return;
    const atEnd = element.scrollHeight - element.scrollTop - element.clientHeight < AT_END_PX;
    if (!atEnd) follow.value = false;
  };
  const copy = async (): Promise<void> => {
    const done = await navigator.clipboard?.writeText(kept.value.map((line) => line.text).join("\n")).then(() => true, () => false);
    toast(done ? `${count(kept.value.length, "line")} copied.` : "The browser did not allow copying.", done ? "good" : "bad");
  };

  return (
    <div class="pane-inside logs" data-testid="logs-pane">
      <div class="pane-bar" role="toolbar" aria-label="Log">
        <label class="pane-filter">
          <SearchIcon />
          <input type="search" placeholder="Filter" aria-label="Show only lines with these words" data-testid="logs-filter" value={wanted.value} onInput={(event) => (wanted.value = event.currentTarget.value)} />
        </label>
        <span class="pane-count" data-testid="logs-count">
          {wanted.value ? `${kept.value.length.toLocaleString("en")} of ${count(lines.value.length, "line")}` : count(lines.value.length, "line")}
        </span>
        <span class="pane-spring" />
        <Button kind="quiet" small icon={<FollowIcon />} aria-pressed={follow.value} data-testid="logs-follow" onClick={() => (follow.value = !follow.value)}>
          Follow
        </Button>
        <Button kind="quiet" small icon={<WrapIcon />} aria-label="Wrap long lines" aria-pressed={wrap.value} data-testid="logs-wrap" onClick={() => (wrap.value = !wrap.value)} />
        <Button kind="quiet" small icon={<CopyIcon />} aria-label="Copy these lines" data-testid="logs-copy" disabled={kept.value.length === 0} onClick={() => void copy()} />
      </div>
      {trouble.value ? <Trouble onRetry={() => void read()}>{trouble.value}</Trouble> : null}
      <div ref={list} class={`log-lines${wrap.value ? " wraps" : ""}`} tabIndex={0} role="log" aria-live="off" aria-label="Log lines" data-testid="logs-lines" onScroll={onScroll} hidden={kept.value.length === 0}>
        {kept.value.map((line) => (
          <div key={line.key} class={`log-line ${line.level}`}>
            {line.event ? <Told event={line.event} /> : line.text}
          </div>
        ))}
      </div>
      {kept.value.length > 0 || trouble.value ? null : text.value === null ? (
        <p class="pane-loading">Reading.</p>
      ) : wanted.value ? (
        <Empty icon={<SearchIcon size={22} />} title="No line has these words" data-testid="logs-empty" />
      ) : (
        <Empty icon={<LogsIcon size={22} />} title="Nothing was logged yet" data-testid="logs-empty">
          The agent's stderr and the bridge's messages appear here.
        </Empty>
      )}
    </div>
  );
}

function Told({ event }: { event: Event }) {
  return (
    <>
      {event.at === null ? null : <time class="log-at">{preciseClock(event.at)} </time>}
      <b class="log-event">{event.name}</b>
      {event.fields.map(([name, value]) => (
        <span key={name} class="log-field">
          {" "}
          <i>{name}=</i>
          {value}
        </span>
      ))}
    </>
  );
}
