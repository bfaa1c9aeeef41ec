// Markdown before it is anything to see. Pure: text in, tokens and harmless addresses out.
import { lexer, type Tokens } from "marked";

export type Token = Tokens.Generic;

const OPTIONS = { gfm: true, breaks: true } as const;

/** Tokens of a text that grows: what is before the last few blocks is settled and not read again. At its end it is read as a
 * whole, once, so that a reference defined below is known above. */
export class Growing {
  private text = "";
  private tokens: Token[] = [];

  read(text: string, whole: boolean): readonly Token[] {
    const settled = whole || !text.startsWith(this.text) ? [] : this.tokens.slice(0, -3);
    const start = settled.map((token) => token.raw).join("");
    // marked reads some white space as other white space: then what was read does not say where it ended
    this.tokens = start && text.startsWith(start) ? [...settled, ...lexer(text.slice(start.length), OPTIONS)] : lexer(text, OPTIONS);
    this.text = text;
    return this.tokens;
  }
}

/** Only addresses that are whole and lead to the web or to mail are links; of the rest the text stays. */
export function safeAddress(href: string): string | undefined {
  try {
    const url = new URL(href);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : undefined;
  } catch {
    return undefined;
  }
}

/** Plain lines that are set in columns with spaces (usage texts, listings): they only line up in letters of one width. */
export function inColumns(raw: string): boolean {
  const lines = raw.split("\n");
  return lines.length > 2 && lines.filter((line) => /\S {3,}\S/.test(line)).length * 2 >= lines.length;
}

const NAMED = new Map(Object.entries({ amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", copy: "©", reg: "®", hellip: "…", mdash: "—", ndash: "–", rarr: "→", larr: "←", times: "×", middot: "·", bull: "•", deg: "°", laquo: "«", raquo: "»" }));

/** Character references as the characters they name; what is none stays as it is. */
export function spelled(text: string): string {
  if (!text.includes("&")) return text;
  return text.replace(/&(#[xX][0-9a-fA-F]{1,6}|#[0-9]{1,7}|[A-Za-z]{2,8});/g, (whole, name: string) => {
    if (!name.startsWith("#")) return NAMED.get(name) ?? whole;
    const code = /^#x/i.test(name) ? Number.parseInt(name.slice(2), 16) : Number(name.slice(1));
    return code > 0 && code <= 0x10ffff && !(code >= 0xd800 && code <= 0xdfff) ? String.fromCodePoint(code) : "\ufffd";
  });
}
