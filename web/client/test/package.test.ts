/** The package as others get it: how much it weighs, what is in it, and that it can be used. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { LARGEST, size } from "../scripts/size.ts";

const HERE = fileURLToPath(new URL("..", import.meta.url));
const TSC = fileURLToPath(new URL("../../node_modules/typescript/bin/tsc", import.meta.url));
const run = (directory: string, ...args: string[]) => execFileSync(process.execPath, args, { cwd: directory, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });

test("all of it is under 10 KiB gzipped, and a page pays only for what it uses", async () => {
  assert.ok((await size("index")) <= LARGEST, `${await size("index")} bytes`);
  assert.ok((await size("xterm")) < 1024);
});

test("it builds, others compile against it and Node imports it", () => {
  const directory = mkdtempSync(join(tmpdir(), "holdfast-client-"));
  try {
    const packed = join(directory, "node_modules", "@holdfast", "client");
    mkdirSync(packed, { recursive: true });
    run(HERE, TSC, "--project", "tsconfig.build.json", "--outDir", join(packed, "dist"));
    for (const name of ["package.json", "src"]) cpSync(join(HERE, name), join(packed, name), { recursive: true });
    writeFileSync(
      join(directory, "consumer.ts"),
      `import { connect, type Item } from "@holdfast/client";
       import { transcript } from "@holdfast/client/transcript";
       import { HoldfastAddon } from "@holdfast/client/xterm";
       const session = connect({ url: "http://127.0.0.1:1", session: "s", getToken: () => "t" });
       const items: Item[] = transcript(session).items;
       session.on("ack", ({ seq }) => seq.toFixed());
       // @ts-expect-error there is no such event
       session.on("nothing", () => {});
       new HoldfastAddon(session.terminal()).dispose();
       session.leave();
       console.log(items.length, session.state.phase);`,
    );
    for (const [module, resolution] of [["esnext", "bundler"], ["nodenext", "nodenext"]])
      run(directory, TSC, "--ignoreConfig", "--noEmit", "--strict", "--target", "es2022", "--lib", "es2023,dom", "--types", "", "--module", module!, "--moduleResolution", resolution!, "consumer.ts");
    assert.equal(run(directory, "consumer.ts"), "0 ended\n");
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});

test("it takes along its sources, what was built of them, its page and its licence, and nothing else", () => {
  const { files, license, exports } = JSON.parse(readFileSync(join(HERE, "package.json"), "utf8"));
  assert.deepEqual(files, ["dist", "src", "README.md", "LICENSE"]);
  assert.equal(license, "MIT");
  assert.deepEqual(Object.keys(exports), [".", "./agents", "./transcript", "./watch", "./xterm"]);
  assert.equal(readFileSync(join(HERE, "LICENSE"), "utf8"), readFileSync(join(HERE, "../../LICENSE"), "utf8"));
});
