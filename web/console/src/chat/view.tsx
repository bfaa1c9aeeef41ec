// The conversation. It stays at its end unless the reader scrolled up; earlier items load when they reach the top.
import { useSignal, useSignalEffect } from "@preact/signals";
import type { Item, MessageItem } from "@holdfast/client";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { announce } from "../announce.tsx";
import { agents, type SessionHandle } from "../house.ts";
import { Button } from "../ui/button.tsx";
import { DownIcon } from "../ui/icons.tsx";
import { Composer } from "./composer.tsx";
import { PageRows } from "./pages.tsx";
import { pagesOf } from "./paging.ts";
import { Queue } from "./queue.tsx";
import { retryWords } from "./told.ts";
import { inTurns, newsOf, queueOf, turnOf } from "./turn.ts";
import { agentName, isDemo } from "../words.ts";

const NEAR = 48;
/** A stored message in this status is on its way to the agent, and waits for nobody. */
const MOVING = ["running", "starting", "sleeping"];

export function Chat({ session }: { session: SessionHandle }) {
  const items = session.items.value;
  const { more, loading } = session.history.value;
  const turn = turnOf(items);
  const { status } = session.sandbox.value;
  const queue = turn !== "idle" || !MOVING.includes(status) ? queueOf(items) : [];
  const pages = pagesOf(inTurns(queue.length ? items.filter((item) => !queue.includes(item as MessageItem)) : items));
  const { retrying } = session.agent.value;
  const frame = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const sticks = useRef(true);
  const first = useRef<string | undefined>(undefined);
  const away = useSignal(false);
  const news = useSignal(false);
  const writeDraft = useRef<(text: string) => void>(() => {});
  const addDraft = useRef<(text: string) => void>(() => {});
  const before = useRef<readonly Item[]>(items);

  const beginning = `${more} ${items[0]?.key}`;
  // The reader's place, counted from the end: earlier messages come in above and must not move the text being read.
  const fromEnd = frame.current ? frame.current.scrollHeight - frame.current.scrollTop : 0;
  useLayoutEffect(() => {
    const box = frame.current;
    if (!box) return;
    if (sticks.current) box.scrollTop = box.scrollHeight;
    else if (first.current !== beginning) box.scrollTop = box.scrollHeight - fromEnd;
    first.current = beginning;
  }, [items, more]);
  useEffect(() => {
    const watcher = new ResizeObserver(() => {
      if (sticks.current && frame.current) frame.current.scrollTop = frame.current.scrollHeight;
    });
    if (content.current) watcher.observe(content.current);
    if (frame.current) watcher.observe(frame.current);
    return () => watcher.disconnect();
  }, []);
  useSignalEffect(() => {
    const after = session.items.value;
    const told = newsOf(before.current, after);
    if (told) announce(told);
    if (!sticks.current && after.at(-1)?.key !== before.current.at(-1)?.key) news.value = true;
    before.current = after;
  });

  const toEnd = (): void => {
    sticks.current = true;
    away.value = news.value = false;
    if (frame.current) frame.current.scrollTop = frame.current.scrollHeight;
  };
  const onScroll = (): void => {
    const box = frame.current;
    if (!box) return;
    sticks.current = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR;
    away.value = !sticks.current;
    if (sticks.current) news.value = false;
    if (box.scrollTop < 300 && !sticks.current) void session.loadEarlier();
  };
  return (
    <section class="chat" aria-labelledby="conversation">
      <h2 class="sr-only" id="conversation">Conversation</h2>
      <div class="chat-frame">
        <div class="chat-scroll" ref={frame} onScroll={onScroll} role="log" aria-live="off" aria-label="Messages" tabIndex={0} data-testid="transcript">
          <div class="chat-items" ref={content}>
            {more ? (
              <div class="beginning">
                <Button kind="quiet" small busy={loading} data-testid="earlier" onClick={() => void session.loadEarlier()}>
                  {loading ? "Loading earlier messages" : "Earlier messages"}
                </Button>
              </div>
            ) : null}
            {items.length === 0 ? <FirstWords session={session} onPick={(text) => writeDraft.current(text)} /> : null}
            {pages.map((page, at) => (
              <PageRows key={page.key} page={page} session={session} tail={at >= pages.length - 2} />
            ))}
            {turn === "working" || retrying ? (
              <div class="row working" data-testid="working">
                <span class="dots" aria-hidden="true"><i /><i /><i /></span>
                {retrying ? <span class="retrying" role="status" data-testid="retrying">{retryWords(retrying)}</span> : <span class="sr-only">The agent is working.</span>}
              </div>
            ) : null}
          </div>
        </div>
        {away.value ? (
          <Button class="to-end" small icon={<DownIcon size={14} />} data-testid="to-end" onClick={toEnd}>
            {news.value ? "new" : "to the end"}
          </Button>
        ) : null}
      </div>
      <Queue session={session} waiting={queue} onEdit={(text) => addDraft.current(text)} />
      <Composer
        session={session}
        turn={turn}
        onReady={(write, add) => {
          writeDraft.current = write;
          addDraft.current = add;
        }}
      />
    </section>
  );
}

const TRIES = [
  { say: "/help", does: "what the demo agent can do" },
  { say: "/write hello.txt Hello from the chat", does: "put a file into the workspace" },
  { say: "/permission open the door", does: "be asked for a permission" },
  { say: "/ask Which colour?", does: "be asked a question" },
  { say: "/long 20", does: "watch a long answer; stop it, or reload the page" },
];

/** An empty conversation says what to do with it. */
function FirstWords({ session, onPick }: { session: SessionHandle; onPick: (text: string) => void }) {
  const { agent } = session.sandbox.value;
  const demo = isDemo(agent, agents.value);
  if (!session.history.value.loaded) return null; // it may be on its way
  if (agent === "none")
    return (
      <div class="first-words" data-testid="first-words">
        <h2>This session has no agent.</h2>
        <p>Its terminals and files are beside this. Messages are stored, but nobody answers them.</p>
      </div>
    );
  return (
    <div class="first-words" data-testid="first-words">
      <h2>Say something.</h2>
      {demo ? (
        <>
          <p>
            <code>/help</code> shows what the demo agent can do. Or try one of these:
          </p>
          <ul>
            {TRIES.map(({ say, does }) => (
              <li key={say}>
                <button type="button" class="try" data-testid="try" onClick={() => onPick(say)}>
                  <code>{say}</code>
                  <span>{does}</span>
                </button>
              </li>
            ))}
          </ul>
        </>
      ) : (
        <p>
          {agentName(agent, agents.value) || "The agent"} reads what you write here, and works in the workspace that the terminal and the files beside this show. While it works
          you can go on writing: it answers one message after the other.
        </p>
      )}
    </div>
  );
}
