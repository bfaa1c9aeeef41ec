// A view of one file: text as text, a picture as a picture, of everything else the size.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError, type Entry, fetchFrom } from "../api.ts";
import { Button } from "../ui/button.tsx";
import { BackIcon, CloseIcon, CopyIcon, DownloadIcon, FileIcon } from "../ui/icons.tsx";
import { toast } from "../ui/toast.tsx";
import { clock, size } from "./figures.ts";
import { address, asText, imageType, type Path, type Place, readable, unreadable, visible } from "./paths.ts";
import { Empty, reasonIn, Trouble } from "./words.tsx";

export interface Opened {
  path: Path;
  entry: Entry;
  place: Place;
}

const SHOWN = 256 * 1024;
const LARGEST_IMAGE = 12 * 1024 * 1024;

type Seen =
  | { is: "reading" }
  | { is: "text"; text: string; whole: number; cut: boolean }
  | { is: "image"; url: string; whole: number }
  | { is: "bytes"; whole: number; why: string }
  | { is: "refused"; words: string };

export function Preview({ session, opened, onClose, onDirectory }: { session: string; opened: Opened; onClose: () => void; onDirectory: (path: Path) => void }) {
  const seen = useSignal<Seen>({ is: "reading" });
  const { path, entry, place } = opened;
  const where = address(session, path, place);
  const odd = unreadable(entry);
  const name = readable(path.slice(-1));

  const read = (signal: AbortSignal): void => {
    if (entry.type === "other" || odd) {
      seen.value = { is: "bytes", whole: entry.size, why: odd ?? "It is neither a file nor a directory." };
      return;
    }
    look(where, entry, signal).then(
      (found) => {
        if (signal.aborted) {
          if (found !== "directory" && found.is === "image") URL.revokeObjectURL(found.url);
        } else if (found === "directory") onDirectory(path);
        else seen.value = found;
      },
      (error: unknown) => {
        if (!signal.aborted) seen.value = { is: "refused", words: reasonIn(error) };
      },
    );
  };
  const begin = (): (() => void) => {
    const stop = new AbortController();
    if (seen.peek().is !== "text") seen.value = { is: "reading" };
    read(stop.signal);
    return () => {
      stop.abort();
      const last = seen.peek();
      if (last.is === "image") URL.revokeObjectURL(last.url);
    };
  };
  useEffect(begin, [opened]);

  const copy = async (text: string): Promise<void> => {
    const done = await navigator.clipboard?.writeText(text).then(() => true, () => false);
    toast(done ? "Copied." : "The browser did not allow copying.", done ? "good" : "bad");
  };
  const { value } = seen;
  const whole = "whole" in value ? value.whole : entry.size;
  return (
    <section class="preview" aria-label={`File ${name}`} data-testid="preview" data-kind={value.is}>
      <header class="preview-head">
        <Button kind="quiet" small class="narrow-only" icon={<BackIcon />} aria-label="Back to the tree" data-testid="preview-back" onClick={onClose} />
        <span class="preview-title">
          <strong title={readable(path)}><bdi>{name}</bdi></strong>
          <small>
            {size(whole)}
            {entry.mtime ? `, ${clock(entry.mtime)}` : ""}
            {entry.mode ? `, ${entry.mode}` : ""}
          </small>
        </span>
        {value.is === "text" ? <Button kind="quiet" small icon={<CopyIcon />} aria-label="Copy the text" onClick={() => void copy(value.text)} /> : null}
        {odd || entry.type === "other" ? null : (
          <a class="button button-quiet button-small button-bare" href={where} download={name} title="Download" aria-label={`Download ${name}`} data-testid="preview-download">
            <DownloadIcon />
          </a>
        )}
        <Button kind="quiet" small class="wide-only" icon={<CloseIcon />} aria-label="Close the preview" data-testid="preview-close" onClick={onClose} />
      </header>
      <div class="preview-body">
        {value.is === "reading" ? <p class="pane-loading">Reading.</p> : null}
        {value.is === "refused" ? (
          <Trouble onRetry={() => void begin()} data-testid="preview-trouble">
            {value.words}
          </Trouble>
        ) : null}
        {value.is === "image" ? <img class="preview-image" src={value.url} alt={name} data-testid="preview-image" /> : null}
        {value.is === "text" ? <Text text={value.text} cut={value.cut} whole={value.whole} /> : null}
        {value.is === "bytes" ? (
          <Empty icon={<FileIcon size={22} />} title={size(value.whole)} data-testid="preview-bytes">
            <p>{value.why}</p>
            {odd || entry.type === "other" ? null : (
              <a class="button button-primary button-small" href={where} download={name}>
                <DownloadIcon /> <span class="button-text">Download</span>
              </a>
            )}
          </Empty>
        ) : null}
      </div>
    </section>
  );
}

function Text({ text, cut, whole }: { text: string; cut: boolean; whole: number }) {
  if (text === "") return <Empty title="The file is empty" />;
  const lines = text.split("\n").length - (text.endsWith("\n") ? 1 : 0);
  return (
    <>
      <div class="preview-text" tabIndex={0} role="group" aria-label="Text of the file">
        <pre class="preview-numbers" aria-hidden="true">
          {Array.from({ length: lines }, (_, index) => index + 1).join("\n")}
        </pre>
        <pre class="preview-words" data-testid="preview-text">
          {text}
        </pre>
      </div>
      {cut ? (
        <p class="preview-cut" data-testid="preview-cut">
          The first {size(SHOWN)} of {size(whole)}. Download it for the rest.
        </p>
      ) : null}
    </>
  );
}

/** The type: the first bytes decide, never the name. */
async function look(where: string, entry: Entry, signal: AbortSignal): Promise<Exclude<Seen, { is: "reading" }> | "directory"> {
  const answer = await first(where, entry, signal);
  if (answer === null) return { is: "text", text: "", whole: 0, cut: false };
  if (answer.headers.get("Content-Type")?.startsWith("application/json")) return "directory";
  const bytes = new Uint8Array(await answer.arrayBuffer());
  const whole = Number(/\/(\d+)$/.exec(answer.headers.get("Content-Range") ?? "")?.[1] ?? bytes.length);
  const type = imageType(bytes);
  if (type) {
    if (whole > LARGEST_IMAGE) return { is: "bytes", whole, why: "A picture, too large to be shown here." };
    const all = whole > bytes.length ? await (await fetchFrom(where, { signal })).blob() : new Blob([bytes]);
    return { is: "image", url: URL.createObjectURL(new Blob([all], { type })), whole };
  }
  const cut = whole > bytes.length;
  const text = asText(bytes, cut);
  return text === null ? { is: "bytes", whole, why: "It is not text." } : { is: "text", text, whole, cut };
}

/** Its first part; null if it has none: an empty file has no range to give. */
async function first(where: string, entry: Entry, signal: AbortSignal): Promise<Response | null> {
  if (entry.type === "file" && entry.size === 0) return null;
  try {
    return await fetchFrom(where, { headers: { Range: `bytes=0-${SHOWN - 1}` }, signal });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.status === 416) return null;
    if (error.status === 404 && entry.type === "symlink") throw new ApiError(404, error.code, `It leads to ${visible(entry.target ?? "somewhere")}, and there is nothing that can be read.`);
    throw error;
  }
}
