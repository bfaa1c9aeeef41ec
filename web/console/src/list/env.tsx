// Names and values for a sandbox. They live in this form and nowhere else in the page, and are gone when it closes.
import { useId } from "preact/hooks";
import { Button } from "../ui/button.tsx";
import { PlusIcon, TrashIcon } from "../ui/icons.tsx";
import { type EnvRow, pasted } from "./variables.ts";

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
