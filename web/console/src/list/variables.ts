// What was typed or pasted as environment variables. Pure.

export interface EnvRow {
  name: string;
  value: string;
}

const NAME = /^[A-Za-z_][A-Za-z0-9_]{0,127}$/;

/** The variables, or what is wrong with them. Rows without name and value do not count. */
export function readRows(rows: readonly EnvRow[]): Record<string, string> | string {
  const used = rows.filter(({ name, value }) => name !== "" || value !== "");
  const bad = used.find(({ name }) => !NAME.test(name));
  if (bad) return bad.name ? `"${bad.name}" is not a variable name: use letters, digits and underscores, and no digit at the beginning.` : "A value has no name.";
  const names = used.map(({ name }) => name);
  const twice = names.find((name, at) => names.indexOf(name) !== at);
  return twice ? `${twice} appears twice.` : Object.fromEntries(used.map(({ name, value }) => [name, value]));
}

/** Lines like NAME=value, pasted into a name, become rows of their own. */
export function pasted(text: string): EnvRow[] | undefined {
  const lines = text.split(/\r?\n/).map((line) => line.trim().replace(/^export\s+/, "")).filter((line) => line && !line.startsWith("#"));
  const rows = lines.map((line) => /^([A-Za-z_][A-Za-z0-9_]*)=(.*)$/.exec(line));
  return lines.length && rows.every(Boolean) ? rows.map((found) => ({ name: found?.[1] ?? "", value: (found?.[2] ?? "").replace(/^(["'])(.*)\1$/, "$2") })) : undefined;
}
