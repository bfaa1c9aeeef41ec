// Agent text as Markdown, safely: marked only cuts it into tokens, Preact makes elements of them. There is no HTML anywhere on the
// way, links lead to the web or to mail, pictures are links. Loaded when the first answer is shown.
import { type ComponentChildren, type VNode } from "preact";
import { useRef, useState } from "preact/hooks";
import type { Tokens } from "marked";
import { Button } from "../ui/button.tsx";
import { CheckIcon, CopyIcon } from "../ui/icons.tsx";
import { Growing, inColumns, safeAddress, spelled, type Token } from "./tokens.ts";

const DEEPEST = 24;

export function Markdown({ text, growing }: { text: string; growing: boolean }) {
  const reader = useRef<Growing | undefined>(undefined);
  reader.current ??= new Growing();
  let tokens: readonly Token[];
  try {
    tokens = reader.current.read(text.replaceAll("\r\n", "\n"), !growing);
  } catch {
    return <p class="plain-text">{text}</p>; // a text on which marked fails is still a text
  }
  return <>{tokens.map((token, at) => block(token, at, 0))}</>;
}

const each = (tokens: readonly Token[] | undefined, depth: number, how: typeof block): ComponentChildren => tokens?.map((token, at) => how(token, at, depth + 1));

function block(token: Token, key: number, depth: number): VNode | null {
  if (depth > DEEPEST) return <p key={key}>{token.raw}</p>;
  switch (token.type) {
    case "plain":
      return <p key={key} class="plain-text">{token.raw}</p>;
    case "space":
    case "def":
      return null;
    case "heading": {
      const Level = `h${Math.min(6, (token as Tokens.Heading).depth + 2)}` as "h3";
      return <Level key={key}>{each(token.tokens, depth, inline)}</Level>;
    }
    case "paragraph":
      return <p key={key} class={inColumns(token.raw) ? "columns" : undefined}>{each(token.tokens, depth, inline)}</p>;
    case "code":
      return <CodeBlock key={key} text={(token as Tokens.Code).text} lang={(token as Tokens.Code).lang} />;
    case "blockquote":
      return <blockquote key={key}>{each(token.tokens, depth, block)}</blockquote>;
    case "list": {
      const { items, ordered, start } = token as Tokens.List;
      const rows = items.map((item, at) => (
        <li key={at} class={item.task ? "task" : undefined}>
          {each(item.tokens, depth, item.loose ? block : tight)}
        </li>
      ));
      return ordered ? <ol key={key} start={start === "" ? undefined : start}>{rows}</ol> : <ul key={key}>{rows}</ul>;
    }
    case "table": {
      const { header, rows } = token as Tokens.Table;
      const cell = (Cell: "th" | "td") => (one: Tokens.TableCell, at: number) => (
        <Cell key={at} class={one.align ? `align-${one.align}` : undefined}>
          {each(one.tokens, depth, inline)}
        </Cell>
      );
      return (
        <div key={key} class="table-frame" tabIndex={0} role="group" aria-label="Table">
          <table>
            <thead>
              <tr>{header.map(cell("th"))}</tr>
            </thead>
            <tbody>
              {rows.map((row, at) => (
                <tr key={at}>{row.map(cell("td"))}</tr>
              ))}
            </tbody>
          </table>
        </div>
      );
    }
    case "hr":
      return <hr key={key} />;
    case "html":
      return <p key={key}>{token.raw.trimEnd()}</p>;
    default:
      return <p key={key}>{token.tokens ? each(token.tokens, depth, inline) : spelled(token.raw)}</p>;
  }
}

/** Within the items of a list that is not spread out: text stands without a paragraph. */
function tight(token: Token, key: number, depth: number): VNode | null {
  return token.type === "text" || token.type === "checkbox" ? inline(token, key, depth) : block(token, key, depth);
}

function inline(token: Token, key: number, depth: number): VNode | null {
  if (depth > DEEPEST) return <span key={key}>{token.raw}</span>;
  const inner = (): ComponentChildren => each(token.tokens, depth, inline);
  switch (token.type) {
    case "strong":
      return <strong key={key}>{inner()}</strong>;
    case "em":
      return <em key={key}>{inner()}</em>;
    case "del":
      return <del key={key}>{inner()}</del>;
    case "br":
      return <br key={key} />;
    case "codespan":
      return <code key={key}>{(token as Tokens.Codespan).text}</code>;
    case "checkbox":
      return <input key={key} type="checkbox" disabled checked={(token as Tokens.Checkbox).checked} aria-label={(token as Tokens.Checkbox).checked ? "done" : "to do"} />;
    case "link":
      return <Away key={key} href={(token as Tokens.Link).href}>{inner()}</Away>;
    case "image":
      return <Away key={key} href={(token as Tokens.Image).href}>{(token as Tokens.Image).text || "picture"}</Away>;
    case "escape":
      return <span key={key}>{(token as Tokens.Escape).text}</span>;
    case "html":
      return <span key={key}>{token.raw}</span>;
    default:
      return token.tokens ? <span key={key}>{inner()}</span> : <span key={key}>{spelled((token as Tokens.Text).text ?? token.raw)}</span>;
  }
}

function Away({ href, children }: { href: string; children: ComponentChildren }) {
  const address = safeAddress(href);
  return address ? (
    <a href={address} target="_blank" rel="noopener noreferrer">
      {children}
    </a>
  ) : (
    <span title={href}>{children}</span>
  );
}

export function CodeBlock({ text, lang }: { text: string; lang?: string | undefined }) {
  const [copied, setCopied] = useState(false);
  const copy = async (): Promise<void> => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <div class="code-block">
      <div class="code-head">
        <span>{lang?.split(/\s/)[0] || "text"}</span>
        <Button kind="quiet" small icon={copied ? <CheckIcon size={14} /> : <CopyIcon size={14} />} aria-label={copied ? "Copied" : "Copy this code"} onClick={() => void copy()} />
      </div>
      <pre tabIndex={0}>
        <code>{text}</code>
      </pre>
    </div>
  );
}
