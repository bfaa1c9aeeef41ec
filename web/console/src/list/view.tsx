// The user's sessions, live.
import { computed, useSignal } from "@preact/signals";
import { connection, limits, sandboxes, tryNow } from "../house.ts";
import { addressOf, openId } from "../route.ts";
import type { Sandbox } from "../sandbox.ts";
import { unreadOf } from "../unread.ts";
import { Badge } from "../ui/badge.tsx";
import { Button } from "../ui/button.tsx";
import { MoreIcon, PlusIcon, SearchIcon, SyncIcon } from "../ui/icons.tsx";
import { Menu } from "../ui/menu.tsx";
import { Ago } from "../when.tsx";
import { LEVEL, limitWords, nameOf, STATUS, SYNC } from "../words.ts";
import { actionsFor, askPlace } from "./actions.tsx";
import { openCreate } from "./creating.ts";

/** The most recently used first; archived ones after all others. */
const inOrder = computed<readonly Sandbox[]>(() =>
  [...(sandboxes.value?.values() ?? [])].sort(
    (one, other) => Number(one.status === "archived") - Number(other.status === "archived") || other.lastActiveAt.localeCompare(one.lastActiveAt) || one.id.localeCompare(other.id),
  ),
);

export function matches(sandbox: Sandbox, filter: string): boolean {
  const said = [sandbox.title, sandbox.id, STATUS[sandbox.status]?.word, sandbox.status, sandbox.repoUrl].join(" ").toLowerCase();
  return filter.toLowerCase().split(/\s+/).every((word) => said.includes(word));
}

export function SessionList({ onChosen }: { onChosen: () => void }) {
  const filter = useSignal("");
  const known = sandboxes.value !== undefined;
  const shown = inOrder.value.filter((one) => matches(one, filter.value.trim()));
  return (
    <nav class="sessions" aria-label="Sessions">
      <div class="sessions-head">
        <div class="filter">
          <SearchIcon size={14} />
          <input type="search" class="field" placeholder="Filter sessions" aria-label="Filter sessions" value={filter} data-testid="filter" onInput={(event) => (filter.value = event.currentTarget.value)} />
        </div>
        <Button kind="primary" icon={<PlusIcon />} aria-label="Start a session" data-testid="create" onClick={openCreate} />
      </div>
      <ul class="session-rows" data-testid="sessions">
        {shown.map((one) => (
          <SessionRow key={one.id} sandbox={one} onChosen={onChosen} />
        ))}
      </ul>
      {known && inOrder.value.length === 0 ? <p class="sessions-empty">No sessions yet.</p> : null}
      {known && inOrder.value.length > 0 && shown.length === 0 ? <p class="sessions-empty">No session matches “{filter}”.</p> : null}
      {known ? null : <Placeholders />}
      <LimitNotes />
      <ListState />
    </nav>
  );
}

/** Shown only if something is nearly used up. */
function LimitNotes() {
  const words = limits.value ? limitWords(limits.value) : [];
  if (!words.length) return null;
  return (
    <p class="list-state" role="status" data-testid="limits">
      <span>{words.join(" ")}</span>
    </p>
  );
}

/** Shown only if the list is not live. */
function ListState() {
  const { phase } = connection.value;
  if (phase === "online" || (phase === "connecting" && connection.value.attempt === 0)) return null;
  return (
    <p class="list-state" role="status" data-testid="list-state">
      <span>{phase === "offline" ? "Offline: the list may be old" : "Reconnecting to the gateway"}</span>
      {phase === "waiting" ? (
        <Button small kind="quiet" onClick={tryNow}>
          now
        </Button>
      ) : null}
    </p>
  );
}

const Placeholders = () => (
  <ul class="session-rows" aria-hidden="true">
    {[0, 1, 2].map((at) => (
      <li key={at} class="session-row placeholder">
        <span class="session-link" />
      </li>
    ))}
  </ul>
);

function SessionRow({ sandbox, onChosen }: { sandbox: Sandbox; onChosen: () => void }) {
  const open = openId.value === sandbox.id;
  const unread = open ? 0 : unreadOf(sandbox);
  return (
    <li class={`session-row${open ? " open" : ""}`} data-testid="session-row" data-id={sandbox.id} data-status={sandbox.status}>
      <a class="session-link" href={addressOf(sandbox.id)} aria-current={open ? "page" : undefined} onClick={onChosen}>
        <span class="session-line">
          <span class="session-name">{nameOf(sandbox)}</span>
          {unread ? (
            <span class="unread" data-testid="unread">
              {unread > 99 ? "99+" : unread}
              <span class="sr-only"> unread</span>
            </span>
          ) : null}
          <Ago at={sandbox.lastActiveAt} />
        </span>
        <span class="session-line session-facts">
          <StatusBadge sandbox={sandbox} />
          <PlaceBadge sandbox={sandbox} />
          <SyncFact sandbox={sandbox} />
        </span>
      </a>
      <Menu button={{ kind: "quiet", small: true, icon: <MoreIcon />, "aria-label": `What to do with ${nameOf(sandbox)}`, "data-testid": "row-menu" }} items={actionsFor(sandbox)} />
    </li>
  );
}

export function StatusBadge({ sandbox }: { sandbox: Sandbox }) {
  const status = STATUS[sandbox.status] ?? { word: sandbox.status, tone: "plain" as const, meaning: "" };
  return (
    <Badge tone={status.tone} dot moving={status.moving} title={sandbox.reason ? `${status.meaning} ${sandbox.reason}` : status.meaning} data-testid="status">
      {status.word}
    </Badge>
  );
}

const placeWords = ({ provider, level }: Sandbox): string => `Runs on ${provider}, ${level}. ${LEVEL[level] ?? ""}`.trim();

export function PlaceBadge({ sandbox }: { sandbox: Sandbox }) {
  return (
    <Badge title={placeWords(sandbox)} data-testid="provider">
      {sandbox.provider} {sandbox.level}
    </Badge>
  );
}

/** The same, to press: it tells more. */
export function PlaceButton({ sandbox }: { sandbox: Sandbox }) {
  return (
    <button type="button" class="badge badge-button tone-plain" title={placeWords(sandbox)} data-testid="provider" onClick={() => askPlace(sandbox)}>
      {sandbox.provider} {sandbox.level}
    </button>
  );
}

export function SyncFact({ sandbox }: { sandbox: Sandbox }) {
  const { sync } = sandbox;
  if (!sync) return null;
  const state = SYNC[sync.state] ?? SYNC.idle;
  return (
    <span class={`sync-fact tone-text-${state.tone}`} title={`Generation ${sync.generation ?? 0}. ${state.meaning}${sync.lastError ? ` ${sync.lastError}` : ""}`} data-testid="sync" data-state={sync.state}>
      <SyncIcon size={12} class={state.moving ? "turning" : ""} />
      <span aria-hidden="true">gen</span>
      <span class="sr-only">generation</span> {sync.generation ?? 0}
      {sync.state === "idle" ? <span class="sr-only"> idle</span> : ` ${state.word}`}
    </span>
  );
}
