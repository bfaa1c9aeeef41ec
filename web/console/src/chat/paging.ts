// How a conversation is cut into pages. Pure.
import type { Item } from "@holdfast/client";

const PAGE = 40;

export interface Page {
  key: number;
  items: readonly Item[];
}

/** Items by their numbers, so that a page stays the same when others come before it; an item without a number is with
 * the one before it. */
export function pagesOf(items: readonly Item[]): Page[] {
  const pages: { key: number; items: Item[] }[] = [];
  for (const item of items) {
    const last = pages.at(-1);
    const key = item.seq === undefined ? (last?.key ?? 0) : Math.floor(item.seq / PAGE);
    if (last && key <= last.key) last.items.push(item);
    else pages.push({ key, items: [item] });
  }
  return pages;
}
