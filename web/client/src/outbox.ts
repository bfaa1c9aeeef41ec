/**
 * Stores a session's unsettled items, so that a reload loses none.
 *
 * Two adapters keep one promise: an item whose `put` resolved is there at the next `load`, oldest first by `order`,
 * until it is removed; the same cid again replaces it. Several tabs may share one: a tab that finds an item of another
 * sends it too, which the cid makes harmless. The conversation has the bounds: an outbox stores what it gets. Any
 * method may reject; the caller then goes on in memory.
 */
import type { OutboxItem } from "./types.ts";

export interface Outbox {
  load(session: string): Promise<OutboxItem[]>;
  put(session: string, item: OutboxItem): Promise<void>;
  remove(session: string, cid: string): Promise<void>;
}

/** Until the page is closed. */
export function memoryOutbox(): Outbox {
  const sessions = new Map<string, Map<string, OutboxItem>>();
  const of = (session: string) => {
    const found = sessions.get(session) ?? new Map<string, OutboxItem>();
    sessions.set(session, found);
    return found;
  };
  return {
    load: async (session) => inOrder([...of(session).values()]),
    put: async (session, item) => void of(session).set(item.cid, structuredClone(item)),
    remove: async (session, cid) => void of(session).delete(cid),
  };
}

const STORE = "outbox";
const OPEN_WITHIN = 3_000;

/** In the browser's database `name`, shared by all tabs of this origin. */
export function indexedDBOutbox(name = "holdfast", factory: IDBFactory | undefined = globalThis.indexedDB): Outbox {
  let opened: Promise<IDBDatabase> | undefined;
  const open = () =>
    (opened ??= new Promise<IDBDatabase>((resolve, reject) => {
      if (!factory) return reject(new Error("there is no IndexedDB here"));
      const asked = factory.open(name, 1);
      const late = setTimeout(() => reject(new Error("IndexedDB does not answer")), OPEN_WITHIN);
      asked.onupgradeneeded = () => asked.result.createObjectStore(STORE, { keyPath: ["session", "cid"] });
      asked.onerror = () => reject(asked.error);
      asked.onsuccess = () => {
        clearTimeout(late);
        asked.result.onversionchange = () => asked.result.close(); // a deletion must not wait for this page
        asked.result.onclose = () => (opened = undefined);
        resolve(asked.result);
      };
    }));
  const within = async <T>(mode: IDBTransactionMode, act: (store: IDBObjectStore) => IDBRequest<T>): Promise<T> => {
    const database = await open();
    return new Promise<T>((resolve, reject) => {
      const transaction = database.transaction(STORE, mode);
      const request = act(transaction.objectStore(STORE));
      transaction.oncomplete = () => resolve(request.result);
      transaction.onabort = transaction.onerror = () => reject(transaction.error ?? request.error);
    });
  };
  return {
    async load(session) {
      const range = IDBKeyRange.bound([session], [session, []]); // an array is after every string
      const found = await within<OutboxItem[]>("readonly", (store) => store.getAll(range));
      return inOrder(found.map(({ ...item }) => (delete (item as { session?: string }).session, item)));
    },
    put: async (session, item) => void (await within("readwrite", (store) => store.put({ ...item, session }))),
    remove: async (session, cid) => void (await within("readwrite", (store) => store.delete([session, cid]))),
  };
}

function inOrder(items: OutboxItem[]): OutboxItem[] {
  return items.sort((one, other) => one.order - other.order);
}
