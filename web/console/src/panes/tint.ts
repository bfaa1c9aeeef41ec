// A terminal's colours, from the page's own: sixteen of them out of the few tokens there are.
import type { ITheme } from "@xterm/xterm";

type Rgb = [number, number, number];

/** `#abc` and `#aabbcc`; anything else is grey. */
export function parseHex(text: string): Rgb {
  const hex = text.trim().replace(/^#/, "");
  const long = hex.length === 3 ? [...hex].map((digit) => digit + digit).join("") : hex;
  if (!/^[0-9a-f]{6}$/i.test(long)) return [128, 128, 128];
  return [0, 2, 4].map((at) => Number.parseInt(long.slice(at, at + 2), 16)) as Rgb;
}

export function mix(one: string, other: string, share: number): string {
  const [a, b] = [parseHex(one), parseHex(other)];
  return `#${a.map((value, index) => Math.round(value * (1 - share) + (b[index] ?? 0) * share).toString(16).padStart(2, "0")).join("")}`;
}

/** The tokens have no purple: it has the larger parts of red and blue, and less green than either. */
function purple(red: string, blue: string): string {
  const [a, b] = [parseHex(red), parseHex(blue)];
  const parts = [Math.max(a[0], b[0]) * 0.92, Math.min(a[1], b[1]) * 0.9, Math.max(a[2], b[2]) * 0.95];
  return `#${parts.map((value) => Math.round(value).toString(16).padStart(2, "0")).join("")}`;
}

/** `token` gives the value of a custom property; `paper` is the terminal's background. */
export function themeOf(token: (name: string) => string, paper: string): ITheme {
  const [ink, soft, faint] = [token("--ink"), token("--soft"), token("--faint")];
  const hues = { red: token("--bad"), green: token("--good"), yellow: token("--warn"), blue: token("--info"), cyan: token("--accent") };
  const magenta = purple(hues.red, hues.blue);
  const bright = (hue: string) => mix(hue, ink, 0.25);
  return {
    background: paper,
    foreground: ink,
    cursor: hues.cyan,
    cursorAccent: paper,
    selectionBackground: mix(paper, hues.cyan, 0.3),
    selectionInactiveBackground: mix(paper, hues.cyan, 0.18),
    scrollbarSliderBackground: mix(paper, ink, 0.16),
    scrollbarSliderHoverBackground: mix(paper, ink, 0.28),
    scrollbarSliderActiveBackground: mix(paper, ink, 0.36),
    overviewRulerBorder: paper,
    ...hues,
    magenta,
    black: mix(paper, ink, 0.85),
    white: soft,
    brightBlack: faint,
    brightWhite: ink,
    brightRed: bright(hues.red),
    brightGreen: bright(hues.green),
    brightYellow: bright(hues.yellow),
    brightBlue: bright(hues.blue),
    brightMagenta: bright(magenta),
    brightCyan: bright(hues.cyan),
  };
}
