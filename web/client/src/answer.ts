/**
 * The unfinished answer, from the agent's frames. Pure, and the same rules by which the gateway makes the record of it
 * (gateway/agents/transcript.py): streamed `chunk`s are the words earlier than the `sdk_message` that says them, so they
 * count only from the last one on; tool calls and their results are blocks beside the text. Between two messages, and where
 * a tool was used, stands a blank line.
 *
 * A frame is fed once, by its offset. When a record says that the answer up to some offset is durable, what was fed up to
 * there is gone, and so is what comes late of it: a viewer that is behind may hear of the record first.
 */
import { isObject, words } from "./frames.ts";
import type { Json } from "./types.ts";

export class UnfinishedAnswer {
  /** Of the first frame that is in it; tells one answer from the next. */
  began = 0;
  blocks: Json[] = [];
  private settled = "";
  private streamed = "";
  private last = 0;
  private done = 0; // everything up to this offset is durable

  get text(): string {
    return joined(this.settled, this.streamed);
  }

  get begun(): boolean {
    return this.began > 0;
  }

  /** Another process, or the same from a place that was not asked for: what follows is the answer from its beginning. */
  restart(): void {
    this.clear();
    this.done = 0;
  }

  /** Take one frame in; true if what can be seen has changed. */
  feed(frame: Json & { _offset: number }): boolean {
    const offset = frame._offset;
    if (offset <= this.done || offset <= this.last) return false;
    switch (frame.type) {
      case "stream_start":
        break;
      case "chunk":
        this.streamed += words(frame.text ?? frame.content) ?? "";
        break;
      case "sdk_message":
        if (!this.settle(frame.message)) return false;
        break;
      default: // also `done`: its record is there before it, or is read
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
    this.blocks = [];
  }

  private settle(message: unknown): boolean {
    if (!isObject(message)) return false;
    const content = isObject(message.message) ? message.message.content : undefined;
    const parts: unknown[] = typeof content === "string" ? [{ type: "text", text: content }] : Array.isArray(content) ? content : [];
    const before = this.blocks.length;
    let said = "";
    let begins = true;
    for (const part of parts.filter(isObject)) {
      const { type } = part;
      if (type === "tool_use" || type === "tool_result") {
        this.blocks = [...this.blocks, part];
        begins = true;
      } else if (message.type === "assistant" && type === "text" && words(part.text)) {
        said = begins ? joined(said, part.text) : said + part.text;
        begins = false;
      }
    }
    if (said) {
      this.settled = joined(this.settled, said);
      this.streamed = "";
    }
    return said !== "" || this.blocks.length > before;
  }
}

function joined(before: string, after: unknown): string {
  return before && after ? `${before}\n\n${after}` : before + after;
}
