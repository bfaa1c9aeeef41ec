// Paths as the gateway's file routes take them: percent-encoded bytes. A name need not be UTF-8. Pure.

export interface Named {
  name: string;
  nameBase64?: string;
}

/** A path below its root: names already encoded, so that each is one part of a URL and nothing else. */
export type Path = readonly string[];

/** The name as one part of a URL. */
export function encoded(entry: Named): string {
  if (entry.nameBase64 === undefined) return encodeURIComponent(entry.name);
  const bytes = Uint8Array.from(atob(entry.nameBase64), (character) => character.charCodeAt(0));
  return [...bytes].map((byte) => `%${byte.toString(16).padStart(2, "0").toUpperCase()}`).join("");
}

/** Why the gateway would refuse to read a file of that name, or null. It can still be listed and exported. */
export function unreadable(entry: Named): string | null {
  return entry.name.includes("\\") ? "Its name contains a backslash. Download the whole snapshot to get it." : null;
}

export interface Place {
  root: "workspace" | "agent";
  source: "live" | "synced" | number; // a number is a generation
}

/** The address of `path`; `directory` if that is what it must be. */
export function address(session: string, path: Path, place: Place, directory = false): string {
  const query = new URLSearchParams();
  if (place.root !== "workspace") query.set("root", place.root);
  if (typeof place.source === "number") query.set("generation", String(place.source));
  else query.set("source", place.source);
  const slash = directory && path.length ? "/" : "";
  return `/files/${encodeURIComponent(session)}/${path.join("/")}${slash}?${query}`;
}

/** The path as people read it; what is not UTF-8 shows as U+FFFD. */
export function readable(path: Path): string {
  return path.map((part) => visible(shown(part))).join("/");
}

/** A name with nothing in it that cannot be seen or that turns letters around: control characters as their symbols. */
export function visible(name: string): string {
  return name
    .replace(/[\u0000-\u001f]/g, (control) => String.fromCharCode(0x2400 + control.charCodeAt(0)))
    .replace(/\u007f/g, "\u2421")
    .replace(/[\u0080-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g, "\ufffd");
}

function shown(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    const bytes = part.replace(/%([0-9A-F]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
    return new TextDecoder().decode(Uint8Array.from(bytes, (character) => character.charCodeAt(0)));
  }
}

// The type is in the first bytes. The name means nothing: a program wrote everything in a workspace.
const MAGIC: [string, number[]][] = [
  ["image/png", [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]],
  ["image/jpeg", [0xff, 0xd8, 0xff]],
  ["image/gif", [0x47, 0x49, 0x46, 0x38]],
];

/** The type of an image that may be shown (never SVG: that is a document), or null. */
export function imageType(bytes: Uint8Array): string | null {
  for (const [type, magic] of MAGIC) if (magic.every((byte, index) => bytes[index] === byte)) return type;
  const word = (from: number) => String.fromCharCode(...bytes.subarray(from, from + 4));
  return word(0) === "RIFF" && word(8) === "WEBP" ? "image/webp" : null;
}

/** The bytes as text, or null if they are none. `cut`: they may end in the middle of a character. */
export function asText(bytes: Uint8Array, cut: boolean): string | null {
  if (bytes.includes(0)) return null;
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: cut });
  } catch {
    return null;
  }
}
