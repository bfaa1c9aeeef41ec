/**
 * The unfinished answer, built from the agent's frames. Pure. The gateway makes the record of it by the same rules
 * (gateway/agents/transcript.py): streamed `chunk`s are an early form of the `sdk_message` that repeats them, so only
 * chunks after the last message count; tool calls and their results are blocks beside the text. A blank line stands
 * between two messages, and at a tool call. Among blocks, `{type: "text", at}` says where text begins.
 *
 * Beside that, `work`: the agent's reports on its work, in frames that leave no record, or of which only the last one
 * does.
 *
 * A frame is fed once, by its offset. When a record says that the answer up to some offset is durable, everything fed
 * up to there is dropped, and so is a late frame of it: a viewer that is behind may get the record first.
 */
import { isObject, words } from "./frames.ts";
import { NO_WORK } from "./work.ts";
import type { Json, Work } from "./types.ts";

export const MOST_THINKING = 64 << 10; // characters; the newest stay
export const MOST_CHANGES = 200; // paths; the oldest stay

export class UnfinishedAnswer {
  /** Offset of the first frame in it; tells one answer from the next. */
  began = 0;
  work: Work = NO_WORK;
  private tools: Json[] = [];
  private marks: Array<[after: number, at: number]> = []; // where text begins behind a tool, in the gateway's form
  private settled = "";
  private streamed = "";
  private last = 0;
  private done = 0; // everything up to this offset is durable
  private thinks = false; // the last frame was a thought, which the next one may continue

  get text(): string {
    return joined(this.settled, this.streamed);
  }

  get blocks(): Json[] {
    const { tools, settled, streamed } = this;
    if (!tools.length) return [];
    const marks = streamed ? this.marked(settled && `${settled}\n\n`) : this.marks;
    const all: typeof marks = (settled || streamed) && marks[0]?.[1] !== 0 ? [[0, 0], ...marks] : marks;
    const found: Json[] = [];
    let shown = 0;
    for (const [after, at] of all) {
      found.push(...tools.slice(shown, after), { type: "text", at });
      shown = after;
    }
    return [...found, ...tools.slice(shown)];
  }

  get begun(): boolean {
    return this.began > 0;
  }

  /** Another process, or the same one from another position: the next frame begins an answer. */
  restart(): void {
    this.clear();
    this.done = 0;
  }

  /** The process is gone. An answer of thoughts alone gets no record. */
  abandon(): boolean {
    if (!this.begun || this.text || this.tools.length) return false;
    this.clear();
    return true;
  }

  /** Take one frame in; true if this changes the view. */
  feed(frame: Json & { _offset: number }): boolean {
    const offset = frame._offset;
    if (offset <= this.done || offset <= this.last) return false;
    const thought = this.thinks;
    this.thinks = frame.type === "thinking";
    switch (frame.type) {
      case "stream_start":
        break;
      case "chunk":
        this.streamed += words(frame.text ?? frame.content) ?? "";
        break;
      case "sdk_message":
        if (!this.settle(frame.message)) return false;
        break;
      case "thinking": {
        const said = words(frame.text ?? frame.content) ?? "";
        const { thinking } = this.work;
        this.work = { ...this.work, thinking: (thought ? thinking + said : joined(thinking, said)).slice(-MOST_THINKING) };
        if (!said) return false;
        break;
      }
      case "todo":
      case "plan":
      case "usage": {
        const { _offset, type, ...said } = frame;
        this.work = { ...this.work, [frame.type]: said };
        return this.begun; // alone it is no answer
      }
      case "file_change":
        return this.change(words(frame.path), words(frame.action)) && this.begun;
      default: // also `done`: its record comes before it, or by reading
        return false;
    }
    this.last = offset;
    this.began ||= offset;
    return true;
  }

  /** The answer that ends at `offset` is a record. */
  finished(offset: number): void {
    this.done = Math.max(this.done, offset);
    if (this.last <= offset) this.clear();
  }

  private clear(): void {
    this.began = this.last = 0;
    this.settled = this.streamed = "";
    this.tools = [];
    this.marks = [];
    this.work = NO_WORK;
    this.thinks = false;
  }

  /** One path is one change, and its last action counts. */
  private change(path: string | undefined, action = "changed"): boolean {
    const { changes } = this.work;
    if (!path || (changes.length >= MOST_CHANGES && !changes.some((each) => each.path === path))) return false;
    this.work = { ...this.work, changes: [...changes.filter((each) => each.path !== path), { path, action }] };
    return true;
  }

  /** The marks, with one for text that begins behind this. */
  private marked(before: string): typeof this.marks {
    const { marks, tools } = this;
    return tools.length && (marks.at(-1)?.[0] ?? 0) < tools.length ? [...marks, [tools.length, characters(before)]] : marks;
  }

  private settle(message: unknown): boolean {
    if (!isObject(message)) return false;
    const content = isObject(message.message) ? message.message.content : undefined;
    const parts: unknown[] = typeof content === "string" ? [{ type: "text", text: content }] : Array.isArray(content) ? content : [];
    const before = this.tools.length;
    let said = false;
    let begins = true;
    for (const part of parts.filter(isObject)) {
      const { type } = part;
      if (type === "tool_use" || type === "tool_result") {
        this.tools = [...this.tools, part];
        begins = true;
      } else if (message.type === "assistant" && type === "text" && words(part.text)) {
        if (begins) this.settled &&= `${this.settled}\n\n`;
        if (begins) this.marks = this.marked(this.settled);
        this.settled += words(part.text);
        this.streamed = "";
        said = true;
        begins = false;
      }
    }
    return said || this.tools.length > before;
  }
}

function joined(before: string, after: string): string {
  return before && after ? `${before}\n\n${after}` : before + after;
}

/** In the gateway's unit. */
function characters(text: string): number {
  return text.length - (text.match(/[\ud800-\udbff][\udc00-\udfff]/g)?.length ?? 0);
}
