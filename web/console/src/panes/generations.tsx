// The kept generations of a workspace, and the actions on one.
import { type ReadonlySignal, useSignal, useSignalEffect } from "@preact/signals";
import { learn, type SessionHandle } from "../house.ts";
import { addressOf, go } from "../route.ts";
import { Badge } from "../ui/badge.tsx";
import { Button } from "../ui/button.tsx";
import { DownloadIcon } from "../ui/icons.tsx";
import { attempt, toast } from "../ui/toast.tsx";
import { clock, count, size } from "./figures.ts";
import { BranchIcon, DiffIcon } from "./icons.tsx";
import { visible } from "./paths.ts";
import { branch, type Changed, diff, type Diff, type Snapshot, snapshots, tarAddress } from "./routes.ts";
import { Empty, reasonIn, Trouble } from "./words.tsx";

const NAMED = 200; // paths of one comparison that are shown

interface Props {
  session: SessionHandle;
  shown: ReadonlySignal<boolean>;
  generation: ReadonlySignal<number | null>;
}

export function Generations({ session, shown, generation }: Props) {
  const list = useSignal<readonly Snapshot[] | null>(null);
  const origin = useSignal<string | null>(null);
  const trouble = useSignal<string | null>(null);
  const again = useSignal(0);
  useSignalEffect(() => {
    void generation.value; // a new one: look again
    void again.value;
    if (!shown.value) return;
    snapshots(session.id).then(
      (found) => {
        list.value = found.snapshots;
        origin.value = found.origin;
        trouble.value = null;
      },
      (error: unknown) => (trouble.value = reasonIn(error)),
    );
  });
  const heading = `generations-${session.id}`;
  return (
    <section aria-labelledby={heading}>
      <h2 class="pane-heading" id={heading}>
        Generations <span class="pane-count">{list.value?.length || ""}</span>
      </h2>
      {origin.value ? <p class="pane-note">Began as a branch of {origin.value.replace("@", ", generation ")}.</p> : null}
      {trouble.value ? <Trouble onRetry={() => (again.value += 1)}>{trouble.value}</Trouble> : null}
      {list.value === null ? (
        trouble.value ? null : <p class="pane-loading">Reading.</p>
      ) : list.value.length === 0 ? (
        <Empty title="None yet">The first sync that finds files makes generation 1.</Empty>
      ) : (
        <ol class="generations" data-testid="generations">
          {list.value.map((each, index) => (
            <Row key={each.generation} session={session} snapshot={each} previous={list.value?.[index + 1]?.generation ?? null} newest={index === 0} />
          ))}
        </ol>
      )}
    </section>
  );
}

function Row({ session, snapshot, previous, newest }: { session: SessionHandle; snapshot: Snapshot; previous: number | null; newest: boolean }) {
  const compared = useSignal<Diff | null>(null);
  const open = useSignal(false);
  const busy = useSignal(false);
  const { generation } = snapshot;
  const compare = async (): Promise<void> => {
    if (previous === null) return;
    open.value = !open.value;
    if (!open.value || compared.value) return;
    busy.value = true;
    compared.value = (await attempt(() => diff(session.id, previous, generation), "Comparing")) ?? null;
    open.value = compared.value !== null;
    busy.value = false;
  };
  const begin = async (): Promise<void> => {
    busy.value = true;
    const made = await attempt(() => branch(session.id, generation), "Branching");
    busy.value = false;
    if (!made) return;
    learn(made);
    toast(`A new session began with generation ${generation}.`, "good");
    go(addressOf(made.id));
  };
  return (
    <li class="generation" data-testid={`generation-${generation}`}>
      <div class="generation-row">
        <span class="generation-number">{generation}</span>
        <span class="generation-words">
          <time dateTime={snapshot.at}>{clock(snapshot.at)}</time>
          <span class="generation-size">
            {count(snapshot.files, "file")}, {size(snapshot.bytes)}
          </span>
          {newest ? <Badge tone="accent">newest</Badge> : null}
          {snapshot.pinned ? <Badge tone="warn" title={snapshot.pinned}>pinned</Badge> : null}
          {snapshot.note ? <span class="generation-note">{snapshot.note}</span> : null}
        </span>
        <span class="generation-acts">
          <Button kind="quiet" small icon={<DiffIcon />} busy={busy.value} aria-expanded={open.value} disabled={previous === null} aria-label={previous === null ? "Nothing before it to compare with" : `What changed since generation ${previous}`} data-testid={`generation-diff-${generation}`} onClick={() => void compare()} />
          <Button kind="quiet" small icon={<BranchIcon />} aria-label={`Branch: a new session from generation ${generation}`} data-testid={`generation-branch-${generation}`} busy={busy.value} onClick={() => void begin()} />
          <a class="button button-quiet button-small button-bare" href={tarAddress(session.id, generation)} download={`${session.id}-${generation}.tar`} title={`Download generation ${generation} as a tar`} aria-label={`Download generation ${generation} as a tar`} data-testid={`generation-tar-${generation}`}>
            <DownloadIcon />
          </a>
        </span>
      </div>
      {open.value && compared.value ? <Comparison diff={compared.value} /> : null}
    </li>
  );
}

function Comparison({ diff: found }: { diff: Diff }) {
  const rows: [string, string, readonly Changed[]][] = [
    ["added", "+", found.added],
    ["changed", "~", [...found.changed].sort((a, b) => Number(b.content ?? true) - Number(a.content ?? true))],
    ["removed", "−", found.removed],
  ];
  const { added, changed, removed } = found.counts;
  const named = rows.flatMap(([kind, sign, paths]) => paths.map((path) => ({ kind, sign, ...path }))).slice(0, NAMED);
  const rest = added + changed + removed - named.length;
  return (
    <div class="comparison" data-testid="comparison">
      <p class="comparison-counts">
        Since generation {found.from}: {added} added, {changed} changed, {removed} removed.
      </p>
      <ul>
        {named.map((each) => (
          <li key={`${each.kind} ${each.path}`} class={each.kind}>
            <span aria-hidden="true" class="sign">{each.sign}</span>
            <span class="sr-only">{each.kind}: </span>
            <bdi class="comparison-path">{visible(each.path)}</bdi>
            <small>{each.content === false ? "mode or time" : each.type === "file" ? size(each.size) : each.type}</small>
          </li>
        ))}
      </ul>
      {rest > 0 ? <p class="pane-note">and {rest.toLocaleString("en")} more</p> : null}
    </div>
  );
}
