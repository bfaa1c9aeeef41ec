import type { ButtonHTMLAttributes, ComponentChildren } from "preact";

export interface ButtonProps extends Omit<ButtonHTMLAttributes, "size" | "icon" | "children"> {
  /** primary: the one thing to do here. quiet: no border until it is pointed at. danger: takes something away. */
  kind?: "primary" | "plain" | "quiet" | "danger";
  small?: boolean;
  icon?: ComponentChildren;
  /** Something is under way: pressing again does nothing. */
  busy?: boolean;
  children?: ComponentChildren;
  "data-testid"?: string;
}

/** A button. One that shows only an icon needs `aria-label`, which it also shows when pointed at. */
export function Button({ kind = "plain", small, icon, busy, children, class: name = "", onClick, title, ...rest }: ButtonProps) {
  const bare = children === undefined;
  const classes = `button button-${kind}${small ? " button-small" : ""}${bare ? " button-bare" : ""} ${name}`;
  return (
    <button type="button" {...rest} class={classes} title={title ?? (bare ? rest["aria-label"] : undefined)} aria-busy={busy ? "true" : undefined} onClick={busy ? undefined : onClick}>
      {icon}
      {bare ? null : <span class="button-text">{children}</span>}
    </button>
  );
}
