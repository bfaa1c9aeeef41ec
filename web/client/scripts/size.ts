/** What the client weighs in a page: bundled, minified and gzipped. `npm run size` prints it; a test holds it to its bound. */
import { gzipSync } from "node:zlib";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

/** Steering, the queue and the mode of real agents took the last of 10,000 bytes. */
export const LARGEST = 10 << 10;

/** Bytes of everything that `src/{entry}.ts` exports. */
export async function size(entry: string): Promise<number> {
  const path = fileURLToPath(new URL(`../src/${entry}.ts`, import.meta.url));
  const { outputFiles } = await build({ entryPoints: [path], bundle: true, minify: true, format: "esm", target: "es2022", write: false });
  return gzipSync(outputFiles[0]!.contents, { level: 9 }).length;
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  for (const entry of ["index", "agents", "transcript", "watch", "xterm"]) process.stdout.write(`${entry}: ${await size(entry)} bytes\n`);
