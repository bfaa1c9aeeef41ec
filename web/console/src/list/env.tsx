// Names and values for a sandbox. They live in this form and nowhere else in the page, and are gone when it closes.
import { useId } from "preact/hooks";
import { Button } from "../ui/button.tsx";
import { PlusIcon, TrashIcon } from "../ui/icons.tsx";

export interface EnvRow {
  name: string;
  value: string;
}

const NAME = /^[A-Za-z_][A-Za-z0-9_]{0,127}$/;

/** The variables, or what is wrong with them. Rows without name and value do not count. */
export function readRows(rows: readonly EnvRow[]): Record<string, string> | string {
  const used = rows.filter(({ name, value }) => name !== "" || value !== "");
  const bad = used.find(({ name }) => !NAME.test(name));
  if (bad) return bad.name ? `"${bad.name}" is no name for a variable: letters, digits and underscores, not beginning with a digit.` : "A value has no name.";
  const names = used.map(({ name }) => name);
  const twice = names.find((name, at) => names.indexOf(name) !== at);
  return twice ? `${twice} is there twice.` : Object.fromEntries(used.map(({ name, value }) => [name, value]));
}

/** Lines like NAME=value, pasted into a name, become rows of their own. */
function pasted(text: string): EnvRow[] | undefined {
  const lines = text.split(/\r?\n/).map((line) => line.trim().replace(/^export\s+/, "")).filter((line) => line && !line.startsWith("#"));
  const rows = lines.map((line) => /^([A-Za-z_][A-Za-z0-9_]*)=(.*)$/.exec(line));
  return lines.length && rows.every(Boolean) ? rows.map((found) => ({ name: found?.[1] ?? "", value: (found?.[2] ?? "").replace(/^(["'])(.*)\1$/, "$2") })) : undefined;
}

export function EnvRows({ rows, onChange }: { rows: readonly EnvRow[]; onChange: (rows: EnvRow[]) => void }) {
  const id = useId();
  const put = (at: number, change: Partial<EnvRow>): void => onChange(rows.map((row, each) => (each === at ? { ...row, ...change } : row)));
  return (
    <div class="env-rows">
      {rows.map((row, at) => (
        <div class="env-row" key={at}>
          <input
            class="field mono"
            aria-label={`Name of variable ${at + 1}`}
            placeholder="NAME"
            autocomplete="off"
            autocapitalize="off"
            spellcheck={false}
            id={`${id}-${at}`}
            data-testid="env-name"
            value={row.name}
            onInput={(event) => put(at, { name: event.currentTarget.value })}
            onPaste={(event) => {
              const found = pasted(event.clipboardData?.getData("text") ?? "");
              if (!found) return;
              event.preventDefault();
              onChange([...rows.slice(0, at), ...found, ...rows.slice(at + 1)]);
            }}
          />
          <input class="field mono" type="password" aria-label={`Value of ${row.name || `variable ${at + 1}`}`} placeholder="value" autocomplete="off" data-testid="env-value" value={row.value} onInput={(event) => put(at, { value: event.currentTarget.value })} />
          <Button kind="quiet" icon={<TrashIcon />} aria-label={`Remove ${row.name || `variable ${at + 1}`}`} onClick={() => onChange(rows.filter((_, each) => each !== at))} />
        </div>
      ))}
      <Button small icon={<PlusIcon size={14} />} data-testid="env-add" onClick={() => onChange([...rows, { name: "", value: "" }])}>
        Add a variable
      </Button>
    </div>
  );
}
