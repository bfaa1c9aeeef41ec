/**
 * Events and their listeners. A listener that throws harms nobody: after all others have run, the error is thrown again
 * as one of the page's own.
 */

export type Listener<T> = (event: T) => void;

export class Events<Map extends object> {
  private listeners: { [Name in keyof Map]?: Set<Listener<Map[Name]>> } = {};

  /** From now on `listener` gets every `type`; call the returned function to stop. */
  on<Name extends keyof Map>(type: Name, listener: Listener<Map[Name]>): () => void {
    const heard = (this.listeners[type] ??= new Set());
    heard.add(listener);
    return () => void heard.delete(listener);
  }

  /** @internal */
  emit<Name extends keyof Map>(type: Name, event: Map[Name]): void {
    for (const listener of [...(this.listeners[type] ?? [])]) {
      try {
        listener(event);
      } catch (error) {
        queueMicrotask(() => {
          throw error;
        });
      }
    }
  }
}

/** Why something failed. `code` is the gateway's own word if it has one. */
export class HoldfastError extends Error {
  code: string;
  status: number | undefined;

  constructor(code: string, message: string, status?: number) {
    super(message);
    this.name = "HoldfastError";
    this.code = code;
    this.status = status;
  }
}
