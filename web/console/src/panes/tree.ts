// The tree of files, as far as it was read. Pure: what is known, which rows that makes, where a key leads.
import type { Entry } from "../api.ts";
import { encoded, type Path } from "./paths.ts";

/** The known state of a directory; by its path, joined with `/` (the root's is ""). */
export type Known =
  | { is: "asked" }
  | { is: "listed"; entries: readonly Entry[]; truncated: boolean; shown: number }
  | { is: "refused"; words: string };

export type Directories = ReadonlyMap<string, Known>;

export const AT_ONCE = 500; // entries of a directory that are shown before somebody asks for more

export interface Row {
  key: string; // its path, or `path/?more`, `path/?words`: no encoded name has a question mark
  path: Path;
  depth: number; // from 1
  position: number; // among its siblings, from 1
  siblings: number;
  entry: Entry | null; // null: a row of words
  words?: string;
  more?: boolean; // pressing it shows more of the directory
  expanded?: boolean; // undefined: there is nothing to open
  asked?: boolean;
}

const RANK = { directory: 0, symlink: 1, file: 1, other: 1 };

/** Directories first, then by name, as people sort. */
export function sorted(entries: readonly Entry[]): Entry[] {
  const order = new Intl.Collator("en", { numeric: true });
  return [...entries].sort((a, b) => RANK[a.type] - RANK[b.type] || order.compare(a.name, b.name));
}

/** Whether a row can be opened: a directory, or a link that turned out to lead to one. */
export function opens(entry: Entry, key: string, known: Directories): boolean {
  return entry.type === "directory" || (entry.type === "symlink" && known.has(key));
}

/** The rows to show, from the root down. `open` has the paths of the directories that are open. */
export function rows(known: Directories, open: ReadonlySet<string>): Row[] {
  const found: Row[] = [];
  const walk = (path: Path, depth: number): void => {
    const here = path.join("/");
    const state = known.get(here);
    const saying = (words: string, more = false): void => {
      found.push({ key: `${here}/?${more ? "more" : "words"}`, path, depth, position: 1, siblings: 1, entry: null, words, ...(more ? { more } : {}) });
    };
    if (state?.is === "refused") saying(state.words);
    if (state?.is !== "listed") return;
    if (state.entries.length === 0 && depth > 1) saying("empty");
    const shown = state.entries.slice(0, state.shown);
    for (const [index, entry] of shown.entries()) {
      const below = [...path, encoded(entry)];
      const key = below.join("/");
      const opening = opens(entry, key, known);
      const expanded = opening && open.has(key);
      found.push({ key, path: below, depth, position: index + 1, siblings: shown.length, entry, ...(opening ? { expanded } : {}), ...(expanded && known.get(key)?.is === "asked" ? { asked: true } : {}) });
      if (expanded) walk(below, depth + 1);
    }
    const rest = state.entries.length - shown.length;
    if (rest > 0) saying(`${rest.toLocaleString("en")} more: show the next ${Math.min(rest, AT_ONCE).toLocaleString("en")}`, true);
    else if (state.truncated) saying("There is more than can be listed here.");
  };
  walk([], 1);
  return found;
}

export type Move = { to: string } | { open: string } | { close: string } | null;

/** Where an arrow leads from the row `at`, as a tree should have it. */
export function move(all: readonly Row[], at: string | null, key: string): Move {
  const index = all.findIndex((row) => row.key === at);
  const row = all[index];
  const to = (other: Row | undefined): Move => (other ? { to: other.key } : null);
  if (!row) return to(all[0]);
  switch (key) {
    case "ArrowDown":
      return to(all[index + 1]);
    case "ArrowUp":
      return to(all[index - 1]);
    case "Home":
      return to(all[0]);
    case "End":
      return to(all.at(-1));
    case "ArrowRight":
      if (row.expanded === undefined) return null;
      return row.expanded ? to(all[index + 1]?.depth === row.depth + 1 ? all[index + 1] : undefined) : { open: row.key };
    case "ArrowLeft":
      if (row.expanded) return { close: row.key };
      return to(all.slice(0, index).findLast((other) => other.depth < row.depth));
    default:
      return null;
  }
}

/** The next row whose name begins with `letter`, from the row `at` on, round about. */
export function byLetter(all: readonly Row[], at: string | null, letter: string): Row | undefined {
  const index = all.findIndex((row) => row.key === at);
  const wanted = letter.toLowerCase();
  return [...all.slice(index + 1), ...all.slice(0, index + 1)].find((row) => row.entry?.name.toLowerCase().startsWith(wanted));
}
