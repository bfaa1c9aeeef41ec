import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Button, type ButtonProps } from "./button.tsx";

export interface MenuItem {
  label: string;
  icon?: ComponentChildren;
  /** A second, softer line. */
  hint?: string;
  danger?: boolean;
  disabled?: boolean;
  /** Makes it one of several to choose from; true on the chosen one. */
  checked?: boolean;
  onSelect: () => void;
  "data-testid"?: string;
}

interface MenuProps {
  items: readonly (MenuItem | "line")[];
  /** The button that opens it. */
  button: Omit<ButtonProps, "onClick">;
}

/** A button with a menu: arrows, Home, End and first letters move, Enter and Space choose, Escape and Tab close. */
export function Menu({ items, button }: MenuProps) {
  const [open, setOpen] = useState(false);
  const opener = useRef<HTMLSpanElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const id = useId();

  useLayoutEffect(() => {
    const popup = list.current;
    const anchor = opener.current?.getBoundingClientRect();
    if (!open || !popup || !anchor) return;
    popup.showPopover();
    const room = 8;
    const { width, height } = popup.getBoundingClientRect();
    const left = Math.max(room, Math.min(anchor.right - width, innerWidth - width - room));
    const below = anchor.bottom + 4;
    popup.style.left = `${left}px`;
    popup.style.top = `${below + height + room > innerHeight ? Math.max(room, anchor.top - height - 4) : below}px`;
    choices(popup)[0]?.focus();
  }, [open]);

  const close = (): void => {
    setOpen(false);
    opener.current?.querySelector("button")?.focus();
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const all = choices(event.currentTarget as HTMLElement);
    const at = all.indexOf(document.activeElement as HTMLElement);
    const go = (to: number): void => {
      event.preventDefault();
      all.at(to % all.length)?.focus();
    };
    if (event.key === "ArrowDown") go(at + 1);
    else if (event.key === "ArrowUp") go(at - 1);
    else if (event.key === "Home") go(0);
    else if (event.key === "End") go(-1);
    else if (event.key === "Escape" || event.key === "Tab") {
      event.preventDefault();
      close();
    } else if (event.key.length === 1 && event.key !== " ") {
      const letter = event.key.toLowerCase();
      const next = [...all.slice(at + 1), ...all].find((one) => one.textContent?.trim().toLowerCase().startsWith(letter));
      next?.focus();
    }
  };
  return (
    <span class="menu" ref={opener}>
      <Button {...button} aria-haspopup="menu" aria-expanded={open} aria-controls={open ? id : undefined} onClick={() => setOpen(!open)} />
      {open ? (
        <div
          ref={list}
          id={id}
          class="menu-list"
          role="menu"
          popover="auto"
          onKeyDown={onKeyDown}
          onToggle={(event) => {
            if (event.newState === "closed") setOpen(false);
          }}
        >
          {items.map((item, at) =>
            item === "line" ? (
              <hr key={at} class="menu-line" />
            ) : (
              <button
                key={item.label}
                type="button"
                role={item.checked === undefined ? "menuitem" : "menuitemradio"}
                aria-checked={item.checked}
                tabIndex={-1}
                class={`menu-item${item.danger ? " danger" : ""}`}
                aria-disabled={item.disabled}
                data-testid={item["data-testid"]}
                onClick={() => {
                  if (item.disabled) return;
                  close();
                  item.onSelect();
                }}
              >
                <span class="menu-icon">{item.icon}</span>
                <span class="menu-words">
                  {item.label}
                  {item.hint ? <small>{item.hint}</small> : null}
                </span>
                {item.checked ? <span class="menu-check" aria-hidden="true" /> : null}
              </button>
            ),
          )}
        </div>
      ) : null}
    </span>
  );
}

const choices = (popup: HTMLElement): HTMLElement[] => [...popup.querySelectorAll<HTMLElement>(".menu-item")];
