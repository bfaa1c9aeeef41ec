import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { noticesOf, packageOf } from "../licences.ts";

test("a module is its package's, whatever leads to it", () => {
  assert.equal(packageOf("/w/node_modules/preact/hooks/dist/hooks.mjs", "/w/node_modules"), "/w/node_modules/preact");
  assert.equal(packageOf("/w/node_modules/@xterm/xterm/css/xterm.css?used", "/w/node_modules"), "/w/node_modules/@xterm/xterm");
  assert.equal(packageOf("/w/node_modules/a/node_modules/b/index.js", "/w/node_modules"), "/w/node_modules/a/node_modules/b");
  assert.equal(packageOf("\0vite/preload-helper.js", "/w/node_modules"), "/w/node_modules/vite");
  assert.equal(packageOf("/w/console/src/main.tsx", "/w/node_modules"), undefined);
});

test("every package is named once, with its text, and one without a text stops the build", async () => {
  const home = await mkdtemp(join(tmpdir(), "licences-"));
  const put = async (name: string, licence?: string): Promise<string> => {
    await mkdir(join(home, name));
    await writeFile(join(home, name, "package.json"), JSON.stringify({ name, version: "1.2.3" }));
    if (licence !== undefined) await writeFile(join(home, name, "LICENSE.md"), licence);
    return join(home, name);
  };
  try {
    const [b, a] = [await put("b", "Text of b"), await put("a", "Text of a\n\n# Licenses of bundled dependencies\nnot in the page")];
    const text = await noticesOf([b, a, b]);
    assert.equal(text, `a 1.2.3\n\nText of a\n\n${"-".repeat(80)}\n\nb 1.2.3\n\nText of b\n`);
    await assert.rejects(noticesOf([a, await put("bare")]), /bare 1\.2\.3 is part of the page and has no licence text/);
    await assert.rejects(noticesOf([await put("empty", " \n")]), /empty 1\.2\.3/);
  } finally {
    await rm(home, { recursive: true });
  }
});
