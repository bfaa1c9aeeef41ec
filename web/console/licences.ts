// The notices of what others wrote and the page contains: every package a module of which is in the bundle.
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Plugin } from "vite";

const PACKAGE = /^(.*[\\/]node_modules[\\/]((?:@[^\\/]+[\\/])?[^\\/]+))[\\/]/;
/** Helpers that the tools themselves put into a bundle. */
const HELPERS: readonly [RegExp, string][] = [[/^\0vite\//, "vite"], [/^\0rolldown\//, "rolldown"]];
/** From here on a tool lists what it contains itself, and what is not in the page. */
const REST = /^# Licenses of bundled dependencies/m;

/** The directory of the package a module is from; undefined for our own. */
export function packageOf(id: string, packages: string): string | undefined {
  const helper = HELPERS.find(([form]) => form.test(id));
  return helper ? join(packages, helper[1]) : PACKAGE.exec(id)?.[1];
}

/** Name, version and licence text of each package, by name. Fails if one has no text. */
export async function noticesOf(directories: Iterable<string>): Promise<string> {
  const notices = await Promise.all([...new Set(directories)].map(noticeOf));
  return notices.sort().join(`\n${"-".repeat(80)}\n\n`);
}

async function noticeOf(directory: string): Promise<string> {
  const { name, version } = JSON.parse(await readFile(join(directory, "package.json"), "utf8")) as { name: string; version: string };
  const file = (await readdir(directory)).sort().find((one) => /^(licen[cs]e|copying)/i.test(one));
  const text = file && (await readFile(join(directory, file), "utf8")).split(REST)[0]?.trim();
  if (!text) throw new Error(`${name} ${version} is part of the page and has no licence text in its package`);
  return `${name} ${version}\n\n${text}\n`;
}

export function licences(packages: string): Plugin {
  return {
    name: "licences",
    apply: "build",
    async generateBundle(_, bundle) {
      const ids = Object.values(bundle).flatMap((one) => (one.type === "chunk" ? one.moduleIds : []));
      const directories = ids.map((id) => packageOf(id, packages)).filter((one) => one !== undefined);
      this.emitFile({ type: "asset", fileName: "licences.txt", source: await noticesOf(directories) });
    },
  };
}
