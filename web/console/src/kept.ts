// The page's data in this browser. A browser that stores nothing (private windows, full disks) costs the memory, not
// the page.

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

/** The key of one user's own data: another user of this browser neither reads nor changes it. */
export const own = (name: string, user: string): string => `${name}.${JSON.stringify(user)}`;

const dropped = new Set<string>();
const draftName = (user: string, session: string): string => `${own("draft", user)}.${session}`;

/** Text that is not sent yet. */
export const drafts = {
  get: (user: string, session: string): string | null => keptHere.get(draftName(user, session)),
  set(user: string, session: string, text: string | null): void {
    if (!dropped.has(user)) keptHere.set(draftName(user, session), text);
  },
  /** All of this user's text, and the text of a field that is about to close. */
  drop(user: string): void {
    dropped.add(user);
    try {
      const begins = PREFIX + draftName(user, "");
      for (const name of Object.keys(sessionStorage)) if (name.startsWith(begins)) sessionStorage.removeItem(name);
    } catch {
      // then nothing was stored
    }
  },
  /** The user is here (again). */
  begin: (user: string): void => void dropped.delete(user),
};
