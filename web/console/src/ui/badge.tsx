import type { ComponentChildren } from "preact";

export type Tone = "good" | "warn" | "bad" | "info" | "accent" | "plain";

/** A word with a colour. `dot` puts a mark before it; `moving` lets that mark breathe. */
export function Badge({ tone = "plain", dot, moving, children, ...rest }: { tone?: Tone; dot?: boolean; moving?: boolean; children: ComponentChildren; title?: string; "data-testid"?: string }) {
  return (
    <span class={`badge tone-${tone}`} {...rest}>
      {dot ? <span class={`badge-dot${moving ? " moving" : ""}`} aria-hidden="true" /> : null}
      {children}
    </span>
  );
}
