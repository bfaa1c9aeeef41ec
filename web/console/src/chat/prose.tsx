import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { Button } from "../ui/button.tsx";

type MarkdownModule = typeof import("./markdown.tsx");

const loaded = signal<MarkdownModule | undefined>(undefined);
let loading = false;

function load(): MarkdownModule | undefined {
  if (!loaded.value && !loading) {
    loading = true;
    import("./markdown.tsx").then(
      (module) => (loaded.value = module),
      () => (loading = false), // tried again with the next text
    );
  }
  return loaded.value;
}

const AS_MARKDOWN = 32 * 1024; // as in tokens.ts, which is loaded later
const SHOWN = 64 * 1024;
const GROWING_SHOWN = 12 * 1024;

/** Agent text. A very long one is shown plainly, and only a part of it until somebody asks for all: a page should stay
 * quick. */
export function Prose({ text, growing }: { text: string; growing: boolean }) {
  const [all, setAll] = useState(false);
  const markdown = load();
  if (markdown && text.length <= AS_MARKDOWN) {
    return (
      <div class="prose">
        <markdown.Markdown text={text} growing={growing} />
      </div>
    );
  }
  if (all || text.length <= (growing ? AS_MARKDOWN : SHOWN)) return <div class="prose plain-text">{text}</div>;
  return (
    <div class="prose plain-text">
      {growing ? `…${text.slice(-GROWING_SHOWN)}` : `${text.slice(0, SHOWN)}…`}
      {growing ? null : (
        <p>
          <Button small onClick={() => setAll(true)}>
            Show all of it ({Math.round(text.length / 1024).toLocaleString()} KiB)
          </Button>
        </p>
      )}
    </div>
  );
}
