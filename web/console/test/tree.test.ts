import assert from "node:assert/strict";
import { test } from "node:test";
import type { Entry } from "../src/api.ts";
import { byLetter, type Known, move, rows, sorted } from "../src/panes/tree.ts";

const entry = (name: string, type: Entry["type"] = "file"): Entry => ({ name, type, size: 1, mode: "0644", mtime: null });
const listed = (...entries: Entry[]): Known => ({ is: "listed", entries, truncated: false, shown: 500 });

const KNOWN = new Map<string, Known>([
  ["", listed(entry("docs", "directory"), entry("src", "directory"), entry("a.txt"))],
  ["src", listed(entry("deep", "directory"), entry("b.py"))],
]);
const keys = (open: string[], known: ReadonlyMap<string, Known> = KNOWN) => rows(known, new Set(open)).map((row) => row.key);

test("what is open shows its entries below it, one level further in", () => {
  assert.deepEqual(keys([]), ["docs", "src", "a.txt"]);
  assert.deepEqual(keys(["src"]), ["docs", "src", "src/deep", "src/b.py", "a.txt"]);
  assert.deepEqual(rows(KNOWN, new Set(["src"])).map((row) => row.depth), [1, 1, 2, 2, 1]);
});

test("a directory inside one that is closed is not shown, though it is open", () => {
  assert.deepEqual(keys(["src/deep"]), ["docs", "src", "a.txt"]);
});

test("a directory is told from a file by what can be opened, a link only once it led to one", () => {
  const known = new Map<string, Known>([["", listed(entry("l", "symlink"), entry("f"))]]);
  assert.deepEqual(rows(known, new Set()).map((row) => row.expanded), [undefined, undefined]);
  known.set("l", listed(entry("x")));
  assert.deepEqual(rows(known, new Set(["l"])).map((row) => row.key), ["l", "l/x", "f"]);
});

test("a large directory is shown in parts, and one that was cut says so", () => {
  const many = Array.from({ length: 501 }, (_, index) => entry(`f${index}`));
  const all = rows(new Map<string, Known>([["", listed(...many)]]), new Set());
  assert.equal(all.length, 501);
  assert.ok(all.at(-1)?.more);
  const cut = rows(new Map<string, Known>([["", { is: "listed", entries: [entry("a")], truncated: true, shown: 500 }]]), new Set());
  assert.match(cut.at(-1)?.words ?? "", /more than can be listed/);
});

test("a directory that cannot be read says why, in its place", () => {
  const known = new Map(KNOWN).set("src", { is: "refused", words: "It is gone." });
  const row = rows(known, new Set(["src"]))[2];
  assert.deepEqual([row?.words, row?.depth, row?.entry], ["It is gone.", 2, null]);
});

test("arrows go where a tree's arrows go", () => {
  const all = rows(KNOWN, new Set(["src"]));
  assert.deepEqual(move(all, "docs", "ArrowDown"), { to: "src" });
  assert.deepEqual(move(all, "docs", "ArrowUp"), null);
  assert.deepEqual(move(all, "docs", "ArrowRight"), { open: "docs" });
  assert.deepEqual(move(all, "src", "ArrowRight"), { to: "src/deep" });
  assert.deepEqual(move(all, "src", "ArrowLeft"), { close: "src" });
  assert.deepEqual(move(all, "src/b.py", "ArrowLeft"), { to: "src" });
  assert.deepEqual(move(all, "src/b.py", "ArrowRight"), null);
  assert.deepEqual(move(all, "src", "End"), { to: "a.txt" });
  assert.deepEqual(move(all, "gone", "ArrowDown"), { to: "docs" });
  assert.deepEqual(move([], null, "ArrowDown"), null);
});

test("a letter goes to the next name that begins with it, round about", () => {
  const all = rows(KNOWN, new Set(["src"]));
  assert.equal(byLetter(all, "src", "d")?.key, "src/deep");
  assert.equal(byLetter(all, "src/deep", "D")?.key, "docs");
  assert.equal(byLetter(all, "docs", "z"), undefined);
});

test("directories come first, and 10 after 9", () => {
  assert.deepEqual(sorted([entry("f10"), entry("f9"), entry("z", "directory")]).map((each) => each.name), ["z", "f9", "f10"]);
});
