import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";

export interface Tab {
  id: string;
  label: string;
  icon?: ComponentChildren;
  /** Shown after the label, e.g. a count or a Badge. */
  extra?: ComponentChildren;
  /** The tab can be closed (Delete, or its cross). */
  onClose?: () => void;
  "data-testid"?: string;
}

interface TabsProps {
  label: string;
  tabs: readonly Tab[];
  selected: string;
  onSelect: (id: string) => void;
  /** The panel of a tab has the id `${panels}-${tab.id}`; see `panelOf`. */
  panels: string;
  class?: string;
  /** After the last tab, outside the list of tabs. */
  children?: ComponentChildren;
}

/** What a tab's panel needs to be one. */
export const panelOf = (panels: string, id: string) => ({ id: `${panels}-${id}`, role: "tabpanel" as const, "aria-labelledby": `${panels}-tab-${id}` });

/** A row of tabs: one stop for the Tab key, arrows, Home and End move and select. */
export function Tabs({ label, tabs, selected, onSelect, panels, class: name = "", children }: TabsProps) {
  useEffect(() => document.getElementById(`${panels}-tab-${selected}`)?.parentElement?.scrollIntoView({ block: "nearest", inline: "nearest" }), [selected, tabs.length]);
  const onKeyDown = (event: KeyboardEvent): void => {
    const at = tabs.findIndex((tab) => tab.id === selected);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: -1 }[event.key];
    if (event.key === "Delete") tabs[at]?.onClose?.();
    if (to === undefined) return;
    event.preventDefault();
    const next = tabs.at(to % tabs.length);
    if (!next) return;
    onSelect(next.id);
    document.getElementById(`${panels}-tab-${next.id}`)?.focus();
  };
  return (
    <div class={`tabs ${name}`}>
      <div class="tab-list" role="tablist" aria-label={label} onKeyDown={onKeyDown}>
        {tabs.map((tab) => (
          <span key={tab.id} role="presentation" class={`tab-slot${tab.id === selected ? " selected" : ""}`}>
            <button
              type="button"
              role="tab"
              class="tab"
              id={`${panels}-tab-${tab.id}`}
              aria-controls={`${panels}-${tab.id}`}
              aria-selected={tab.id === selected}
              tabIndex={tab.id === selected ? 0 : -1}
              data-testid={tab["data-testid"]}
              onClick={() => onSelect(tab.id)}
            >
              {tab.icon}
              <span class="tab-label">{tab.label}</span>
              {tab.extra}
            </button>
            {tab.onClose ? (
              <button type="button" class="tab-close" tabIndex={-1} aria-label={`Close ${tab.label}`} onClick={tab.onClose}>
                <svg width="10" height="10" viewBox="0 0 10 10" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" aria-hidden="true">
                  <path d="m2 2 6 6M8 2 2 8" />
                </svg>
              </button>
            ) : null}
          </span>
        ))}
      </div>
      {children}
    </div>
  );
}
