// Where a session runs, what it is held to, and what it uses: looked up again and again while somebody looks at it.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { lookUp, sandboxes } from "../house.ts";
import type { Sandbox } from "../sandbox.ts";
import { Badge } from "../ui/badge.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { type Look, type Use, uses } from "../usage.ts";
import { LEVEL, nameOf } from "../words.ts";

const EVERY = 2_000;
const FULL = 0.9; // of a limit: from there on it is likely to be met

export function PlaceDialog({ sandbox: first, onClose }: { sandbox: Sandbox; onClose: () => void }) {
  const sandbox = sandboxes.value?.get(first.id) ?? first;
  const looks = useSignal<[Look | undefined, Look | undefined]>([undefined, undefined]);
  const failed = useSignal(false);
  useEffect(() => {
    let over = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const look = async (): Promise<void> => {
      try {
        const { incarnation, limits = null, usage = null } = document.hidden && looks.peek()[1] ? {} as Partial<Sandbox> : await lookUp(first.id);
        if (!over && incarnation !== undefined) looks.value = [looks.peek()[1], { at: performance.now() / 1000, incarnation, limits, usage }];
        failed.value = false;
      } catch {
        failed.value = true; // it is looked at again
      }
      if (!over) timer = setTimeout(() => void look(), EVERY);
    };
    void look();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [first.id]);
  const [before, now] = looks.value;
  const rows = now ? uses(before, now) : [];
  return (
    <Dialog title="Sandbox" data-testid="place-dialog" onClose={onClose}>
      <dl class="facts">
        <Fact name="Session">{nameOf(sandbox)}</Fact>
        <Fact name="Runs on">
          <Badge data-testid="place-provider">
            {sandbox.provider} {sandbox.level}
          </Badge>
        </Fact>
        {sandbox.image ? (
          <Fact name="Image">
            <code data-testid="place-image">{sandbox.image}</code>
            {sandbox.imageDigest ? <small class="digest">{sandbox.imageDigest}</small> : null}
          </Fact>
        ) : null}
        <Fact name="Start">{sandbox.incarnation === 0 ? "not started yet" : `number ${sandbox.incarnation}`}</Fact>
      </dl>
      <p class="help">{LEVEL[sandbox.level] ?? "This gateway does not have its provider, so nothing is known about it."}</p>
      <section aria-label="What it uses" class="uses" data-testid="place-uses" aria-busy={!now && !failed.value}>
        {rows.map((row) => (
          <UseRow key={row.what} use={row} />
        ))}
        {now && !rows.length ? <p class="help">{sandbox.status === "running" ? "This provider does not measure usage." : "It is not running, so it uses nothing."}</p> : null}
      </section>
      {failed.value ? (
        <p class="help bad" role="status">
          Its usage cannot be read right now. The page tries again.
        </p>
      ) : null}
    </Dialog>
  );
}

const Fact = ({ name, children }: { name: string; children: preact.ComponentChildren }) => (
  <div>
    <dt>{name}</dt>
    <dd>{children}</dd>
  </div>
);

function UseRow({ use: { what, words, share } }: { use: Use }) {
  return (
    <div class="use" data-testid={`use-${what.toLowerCase()}`}>
      <span>{what}</span>
      <span class="use-words">{words}</span>
      {share === undefined ? null : (
        <div class={`use-bar${share >= FULL ? " full" : ""}`} role="meter" aria-label={what} aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(share * 100)} aria-valuetext={words}>
          <span style={{ inlineSize: `${share * 100}%` }} />
        </div>
      )}
    </div>
  );
}
