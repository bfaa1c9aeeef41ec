// Builds the page into the gateway's package. Every file also lies there compressed, so that nothing is squeezed twice.
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { brotliCompressSync, gzipSync } from "node:zlib";
import { defineConfig, type Plugin } from "vite";
import { licences } from "./licences.ts";

const GATEWAY = process.env.HOLDFAST_URL ?? "http://127.0.0.1:8080";
const SMALL = 1024;

function compressed(): Plugin {
  let outDir = "";
  return {
    name: "compressed",
    apply: "build",
    configResolved(config) {
      outDir = join(config.root, config.build.outDir, "assets");
    },
    async writeBundle() {
      for (const name of await readdir(outDir)) {
        if (!/\.(js|css|svg|json)$/.test(name)) continue;
        const bytes = await readFile(join(outDir, name));
        if (bytes.length < SMALL) continue;
        await writeFile(join(outDir, `${name}.gz`), gzipSync(bytes, { level: 9 }));
        await writeFile(join(outDir, `${name}.br`), brotliCompressSync(bytes));
      }
    },
  };
}

export default defineConfig({
  resolve: { conditions: ["source", "module", "browser", "production", "default"] },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../../gateway/page",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2022",
    rolldownOptions: { checks: { bundlerTimings: false } },
  },
  plugins: [compressed(), licences(join(import.meta.dirname, "../node_modules"))],
  server: { proxy: { "/api": GATEWAY, "/files": GATEWAY, "/logs": GATEWAY, "/signin": GATEWAY, "/ws": { target: GATEWAY, ws: true }, "/terminal": { target: GATEWAY, ws: true } } },
});
