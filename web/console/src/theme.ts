// Light, dark, or as the system says. What counts stands on <html data-theme>; terminals and styles read it there.
import { computed, effect, signal } from "@preact/signals";
import { kept } from "./kept.ts";

export type ThemeChoice = "system" | "light" | "dark";

const system = matchMedia("(prefers-color-scheme: dark)");
const systemIsDark = signal(system.matches);
const remembered = kept.get("theme");

export const themeChoice = signal<ThemeChoice>(remembered === "light" || remembered === "dark" ? remembered : "system");
export const theme = computed<"light" | "dark">(() => (themeChoice.value === "system" ? (systemIsDark.value ? "dark" : "light") : themeChoice.value));

export function chooseTheme(choice: ThemeChoice): void {
  themeChoice.value = choice;
  kept.set("theme", choice === "system" ? null : choice);
}

system.addEventListener("change", (event) => (systemIsDark.value = event.matches));
effect(() => {
  document.documentElement.dataset.theme = theme.value;
});
