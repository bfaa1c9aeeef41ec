// The workspace's files: a tree that is read as it is opened, and a view of one of them. Nothing in it is executed: a
// file's content is shown as text or as a picture, or offered as a download.
import { useComputed, useSignal, useSignalEffect } from "@preact/signals";
import { useRef } from "preact/hooks";
import { api, ApiError, type Directory, type Entry, fetchFrom } from "../api.ts";
import type { PaneProps } from "../session/pane.ts";
import { Button } from "../ui/button.tsx";
import { ChevronDownIcon, ChevronRightIcon, FileIcon, FolderIcon, LinkIcon, RetryIcon } from "../ui/icons.tsx";
import { attempt } from "../ui/toast.tsx";
import { clock, count, size } from "./figures.ts";
import "./panes.css";
import "./files.css";
import { OpenFolderIcon } from "./icons.tsx";
import { address, type Path, type Place, readable, visible } from "./paths.ts";
import { type Opened, Preview } from "./preview.tsx";
import { type Snapshot, snapshots } from "./routes.ts";
import { AT_ONCE, byLetter, type Directories, type Known, move, type Row, rows, sorted } from "./tree.ts";
import { Empty, reasonIn, Trouble } from "./words.tsx";

type Source = "auto" | "live" | "synced" | number;

export function FilesPane({ session, shown }: PaneProps) {
  const root = useSignal<Place["root"]>("workspace");
  const source = useSignal<Source>("auto");
  const generations = useSignal<readonly Snapshot[]>([]);
  const known = useSignal<Directories>(new Map());
  const open = useSignal<ReadonlySet<string>>(new Set());
  const focused = useSignal<string | null>(null);
  const chosen = useSignal<Opened | null>(null);
  const answered = useSignal<{ source: "live" | "synced"; generation: number | null } | null>(null);
  const refusal = useSignal<{ code: string; words: string } | null>(null);
  const round = useRef(0); // number of the look: answers to earlier ones are dropped
  const treeElement = useRef<HTMLUListElement>(null);

  const place = (): Place => {
    const wanted = source.peek();
    const running = session.sandbox.peek().status === "running";
    return { root: root.peek(), source: wanted === "auto" ? (running ? "live" : "synced") : wanted };
  };
  const set = (key: string, what: Known): void => {
    known.value = new Map(known.peek()).set(key, what);
  };
  const list = async (path: Path): Promise<void> => {
    const key = path.join("/");
    const mine = round.current;
    const before = known.peek().get(key);
    if (before?.is !== "listed") set(key, { is: "asked" });
    try {
      const found = (await (await fetchFrom(address(session.id, path, place(), true))).json()) as Directory;
      if (mine !== round.current) return;
      if (path.length === 0) {
        answered.value = { source: found.source, generation: found.generation };
        refusal.value = null;
      }
      set(key, { is: "listed", entries: sorted(found.entries), truncated: found.truncated, shown: before?.is === "listed" ? before.shown : AT_ONCE });
    } catch (error) {
      if (mine !== round.current) return;
      if (path.length === 0) refusal.value = { code: error instanceof ApiError ? error.code : "", words: reasonIn(error) };
      set(key, { is: "refused", words: reasonIn(error) });
    }
  };
  /** Read everything that is open again. */
  const refresh = (anew = false): void => {
    round.current += 1;
    if (anew) {
      known.value = new Map();
      open.value = new Set();
      answered.value = null;
      chosen.value = null;
      focused.value = null;
    }
    void list([]);
    for (const key of open.peek()) void list(key.split("/"));
    if (chosen.peek()) chosen.value = { ...(chosen.peek() as Opened), place: place() };
    snapshots(session.id).then((found) => (generations.value = found.snapshots), () => {});
  };

  // At the start, when the source changes, and when the sandbox comes or goes and its files are shown.
  const live = useComputed(() => session.sandbox.value.status === "running");
  const seen = useRef("");
  useSignalEffect(() => {
    if (!shown.value) return;
    const what = `${root.value} ${source.value} ${source.value === "auto" || source.value === "live" ? live.value : ""}`;
    if (what === seen.current) return;
    const first = seen.current === "";
    seen.current = what;
    refresh(!first);
  });
  // A new generation while the newest is shown.
  const generation = useComputed(() => session.sandbox.value.sync?.generation ?? null);
  const newest = useRef(generation.peek());
  useSignalEffect(() => {
    if (generation.value === newest.current) return;
    newest.current = generation.value;
    if (shown.peek()) refresh();
  });

  const all = useComputed(() => rows(known.value, open.value));
  const focus = (key: string): void => {
    focused.value = key;
    treeElement.current?.querySelector<HTMLElement>(`[data-key="${CSS.escape(key)}"]`)?.focus();
  };
  const toggle = (row: Row, wanted = !row.expanded): void => {
    const next = new Set(open.peek());
    if (wanted) next.add(row.key);
    else next.delete(row.key);
    open.value = next;
    if (wanted) void list(row.path);
  };
  const press = (row: Row): void => {
    focused.value = row.key;
    const { entry } = row;
    if (row.more) {
      const key = row.path.join("/");
      const state = known.peek().get(key);
      if (state?.is === "listed") set(key, { ...state, shown: state.shown + AT_ONCE });
    } else if (entry && row.expanded !== undefined) toggle(row);
    else if (entry) chosen.value = { path: row.path, entry, place: place() };
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const at = focused.peek();
    const row = all.peek().find((each) => each.key === at);
    if ((event.key === "Enter" || event.key === " ") && row) {
      event.preventDefault();
      press(row);
      return;
    }
    const moved = move(all.peek(), at, event.key);
    if (moved) {
      event.preventDefault();
      if ("to" in moved) focus(moved.to);
      else if (row) toggle(row, "open" in moved);
      return;
    }
    if (event.key.length === 1 && event.key !== " " && !event.ctrlKey && !event.metaKey && !event.altKey) {
      const next = byLetter(all.peek(), at, event.key);
      if (next) focus(next.key);
    }
  };
  /** The entry taken for a file turned out to be a directory: a link to one. */
  const turnedOut = (path: Path): void => {
    chosen.value = null;
    const key = path.join("/");
    open.value = new Set(open.peek()).add(key);
    void list(path);
  };

  const rootState = known.value.get("");
  const stop = all.value.some((row) => row.key === focused.value) ? focused.value : all.value[0]?.key;
  return (
    <div class={`pane-inside files${chosen.value ? " previews" : ""}`} data-testid="files-pane">
      <div class="pane-bar" role="toolbar" aria-label="Files">
        <label class="pane-choice">
          <span class="sr-only">Which files</span>
          <select data-testid="files-root" value={root.value} onChange={(event) => (root.value = event.currentTarget.value as Place["root"])}>
            <option value="workspace">Workspace</option>
            <option value="agent">Agent's home</option>
          </select>
        </label>
        <label class="pane-choice">
          <span class="sr-only">Version</span>
          <select
            data-testid="files-source"
            value={String(source.value)}
            onChange={(event) => {
              const { value } = event.currentTarget;
              source.value = value === "auto" || value === "live" || value === "synced" ? value : Number(value);
            }}
          >
            <option value="auto">Automatic: {live.value ? "live" : "newest kept"}</option>
            <option value="live">Live, in the sandbox</option>
            <option value="synced">Newest kept</option>
            {generations.value.length ? (
              <optgroup label="Generations">
                {generations.value.map((each) => (
                  <option key={each.generation} value={String(each.generation)}>
                    {each.generation}: {clock(each.at)}, {count(each.files, "file")}
                  </option>
                ))}
              </optgroup>
            ) : null}
          </select>
        </label>
        <span class="pane-count" data-testid="files-answered">
          {answered.value ? (answered.value.source === "live" ? "live" : `generation ${answered.value.generation}`) : ""}
        </span>
        <span class="pane-spring" />
        <Button kind="quiet" small icon={<RetryIcon />} aria-label="Refresh" data-testid="files-refresh" onClick={() => refresh()} />
      </div>
      <div class="files-body">
        <div class="files-tree">
          {refusal.value ? (
            <Refused refusal={refusal.value} onRetry={() => refresh()} onKept={() => (source.value = "synced")} onWake={() => void attempt(() => api.wake(session.id), "Waking it")} />
          ) : !rootState || rootState.is === "asked" ? (
            <p class="pane-loading">Reading.</p>
          ) : all.value.length === 0 ? (
            <Empty icon={<FolderIcon size={22} />} title="Nothing here yet" data-testid="files-empty">
              Files that the agent or a terminal writes show up here.
            </Empty>
          ) : (
            <ul ref={treeElement} role="tree" aria-label={root.value === "workspace" ? "Workspace" : "Agent's home"} class="tree" data-testid="files-tree" onKeyDown={onKeyDown}>
              {all.value.map((row) => (
                <TreeRow key={row.key} row={row} stop={row.key === stop} chosen={chosen.value?.path.join("/") === row.key} onPress={() => press(row)} onFocus={() => (focused.value = row.key)} />
              ))}
            </ul>
          )}
        </div>
        {chosen.value ? <Preview session={session.id} opened={chosen.value} onClose={() => (chosen.value = null)} onDirectory={turnedOut} /> : null}
      </div>
    </div>
  );
}

function Refused({ refusal, onRetry, onKept, onWake }: { refusal: { code: string; words: string }; onRetry: () => void; onKept: () => void; onWake: () => void }) {
  if (refusal.code === "no_snapshot") {
    return (
      <Empty icon={<FolderIcon size={22} />} title="Nothing is kept yet" data-testid="files-empty">
        The first sync keeps what the workspace holds then.
      </Empty>
    );
  }
  if (refusal.code === "not_running") {
    return (
      <Empty icon={<FolderIcon size={22} />} title="Its sandbox is not running" data-testid="files-not-running">
        <p>So its live files cannot be shown. The newest kept version can.</p>
        <span class="pane-empty-acts">
          <Button small kind="primary" onClick={onKept}>
            Show the newest kept version
          </Button>
          <Button small onClick={onWake}>
            Wake it
          </Button>
        </span>
      </Empty>
    );
  }
  return (
    <Trouble onRetry={onRetry} data-testid="files-trouble">
      {refusal.words}
    </Trouble>
  );
}

function TreeRow({ row, stop, chosen, onPress, onFocus }: { row: Row; stop: boolean; chosen: boolean; onPress: () => void; onFocus: () => void }) {
  const { entry } = row;
  const label = entry ? visible(entry.name) : row.words;
  return (
    <li
      role="treeitem"
      class={`tree-row${entry ? "" : " words"}${chosen ? " chosen" : ""}`}
      style={{ "--depth": row.depth - 1 }}
      data-key={row.key}
      data-testid={entry ? "file-row" : "file-words"}
      data-path={readable(row.path)}
      tabIndex={stop ? 0 : -1}
      aria-level={row.depth}
      aria-posinset={row.position}
      aria-setsize={row.siblings}
      aria-expanded={row.expanded}
      aria-selected={chosen}
      aria-busy={row.asked}
      onClick={onPress}
      onFocus={onFocus}
    >
      <span class="tree-twist" aria-hidden="true">
        {row.expanded === undefined ? null : row.expanded ? <ChevronDownIcon size={12} /> : <ChevronRightIcon size={12} />}
      </span>
      {entry ? <EntryIcon entry={entry} expanded={row.expanded} /> : null}
      <span class="tree-name" title={label}>
        <bdi>{label}</bdi>
        {entry?.nameBase64 ? (
          <span class="tree-odd" title="Its name is not UTF-8">
            {" "}
            not UTF-8
          </span>
        ) : null}
        {entry?.type === "symlink" ? <span class="tree-target"> → <bdi>{visible(entry.target ?? "")}</bdi></span> : null}
        {entry?.unsettled ? <span class="tree-odd" title="It changed while it was read"> unsettled</span> : null}
      </span>
      {entry?.type === "file" ? <span class="tree-size">{size(entry.size)}</span> : null}
    </li>
  );
}

function EntryIcon({ entry, expanded }: { entry: Entry; expanded: boolean | undefined }) {
  if (entry.type === "directory") return expanded ? <OpenFolderIcon class="tree-folder" /> : <FolderIcon class="tree-folder" />;
  if (entry.type === "symlink") return <LinkIcon class="tree-file" />;
  return <FileIcon class="tree-file" />;
}
