// What this browser remembers for the page. A browser that keeps nothing (private windows, full discs) costs the memory, not the page.

const PREFIX = "holdfast.";

function read(store: Storage, name: string): string | null {
  try {
    return store.getItem(PREFIX + name);
  } catch {
    return null;
  }
}

function write(store: Storage, name: string, value: string | null): void {
  try {
    if (value === null) store.removeItem(PREFIX + name);
    else store.setItem(PREFIX + name, value);
  } catch {
    // nothing to do: it is a convenience
  }
}

/** For good, in every tab. */
export const kept = {
  get: (name: string): string | null => read(localStorage, name),
  set: (name: string, value: string | null): void => write(localStorage, name, value),
};

/** For this tab, across reloads. */
export const keptHere = {
  get: (name: string): string | null => read(sessionStorage, name),
  set: (name: string, value: string | null): void => write(sessionStorage, name, value),
};
