/**
 * Who listens to what. A listener that throws harms nobody: the error is thrown again where a page's own are found,
 * after everybody else has heard.
 */

export type Listener<T> = (event: T) => void;

export class Events<Map extends object> {
  private listeners: { [Name in keyof Map]?: Set<Listener<Map[Name]>> } = {};

  /** From now on `listener` hears every `type`; call what is returned to stop. */
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

/** Why something was not done. `code` is the gateway's own word where it has one. */
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
