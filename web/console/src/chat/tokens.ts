// The parsing half of Markdown. Pure: text in, tokens and harmless addresses out.
import { Lexer, type Tokens } from "marked";

export type Token = Tokens.Generic;

const OPTIONS = { gfm: true, breaks: true } as const;

/** Longer texts are not parsed as Markdown: some take far more than twice as long for twice the text. */
export const AS_MARKDOWN = 32 * 1024;
const INLINE = 4 * 1024; // emphasis and links are parsed in blocks up to this long
const MARKS = 600; // and with up to that many characters that may begin one
const BLANKS = 250; // in a row; further ones are left out
const MOST_FENCES = 1000;
const DEEP = /^[ \t]*(?:>[ \t]*|[-*+][ \t]+|\d{1,9}[.)][ \t]+){50}/m;

/** Parses the marks within a block only if that is quick; else the block is plain text. */
class Careful extends Lexer {
  override inlineTokens(src: string, tokens: Token[] = []): Token[] {
    if (src.length <= INLINE && (src.match(/[*_~`[\]<\\@]/g)?.length ?? 0) <= MARKS) return super.inlineTokens(src, tokens as never) as Token[];
    tokens.push({ type: "text", raw: src, text: src });
    return tokens;
  }
}

/** Whether a text is parsed as Markdown at all. */
export function isMarkdown(text: string): boolean {
  return text.length <= AS_MARKDOWN && (text.match(/^[ \t>]*(?:```|~~~)/gm)?.length ?? 0) <= MOST_FENCES && !DEEP.test(text);
}

const lex = (text: string): Token[] => (isMarkdown(text) ? new Careful(OPTIONS).lex(text) : text ? [{ type: "plain", raw: text }] : []);

/** Tokens of a growing text: everything before the last few blocks is settled and not parsed again. At its end it is
 * parsed as a whole, once, so that a reference defined below is known above. A text that is not parsed as Markdown is
 * one token, `plain`. */
export class Growing {
  private text = "";
  private tokens: Token[] = [];

  read(told: string, whole: boolean): readonly Token[] {
    const text = told.replace(/[ \t]{2,}/g, (blanks) => blanks.slice(0, BLANKS));
    const settled = whole || !text.startsWith(this.text) ? [] : this.tokens.slice(0, -3);
    const start = settled.map((token) => token.raw).join("");
    // marked treats some white space as other white space: then its tokens do not say where the text ended
    this.tokens = start && text.startsWith(start) && text.length <= AS_MARKDOWN ? [...settled, ...lex(text.slice(start.length))] : lex(text);
    this.text = text;
    return this.tokens;
  }
}

/** Only whole addresses that lead to the web or to mail are links; of others only the text stays. */
export function safeAddress(href: string): string | undefined {
  try {
    const url = new URL(href);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : undefined;
  } catch {
    return undefined;
  }
}

/** Plain lines set in columns with spaces (usage texts, listings): they line up only in a monospaced font. */
export function inColumns(raw: string): boolean {
  const lines = raw.split("\n");
  return lines.length > 2 && lines.filter((line) => /\S {3,}\S/.test(line)).length * 2 >= lines.length;
}

const NAMED = new Map(Object.entries({ amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", copy: "©", reg: "®", hellip: "…", mdash: "—", ndash: "–", rarr: "→", larr: "←", times: "×", middot: "·", bull: "•", deg: "°", laquo: "«", raquo: "»" }));

/** Character references as the characters they name; an unknown one stays as it is. */
export function spelled(text: string): string {
  if (!text.includes("&")) return text;
  return text.replace(/&(#[xX][0-9a-fA-F]{1,6}|#[0-9]{1,7}|[A-Za-z]{2,8});/g, (whole, name: string) => {
    if (!name.startsWith("#")) return NAMED.get(name) ?? whole;
    const code = /^#x/i.test(name) ? Number.parseInt(name.slice(2), 16) : Number(name.slice(1));
    return code > 0 && code <= 0x10ffff && !(code >= 0xd800 && code <= 0xdfff) ? String.fromCodePoint(code) : "\ufffd";
  });
}
