// One xterm.js terminal, dressed for this page. The only module that imports xterm.js: it is loaded when a terminal is.
import { FitAddon } from "@xterm/addon-fit";
import { type ISearchOptions, SearchAddon } from "@xterm/addon-search";
import { Unicode11Addon } from "@xterm/addon-unicode11";
import { WebLinksAddon } from "@xterm/addon-web-links";
import { type ITerminalAddon, Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import { kept } from "../kept.ts";
import { permitStyles } from "./nonce.ts";
import { mix, themeOf } from "./tint.ts";

const SCROLLBACK = 5000;
const SETTLE_MS = 60; // after the last change of its space, before the terminal takes the new size
const LARGEST_COPY = 100_000; // base64 of the text that a program may offer to copy

export interface ScreenWishes {
  host: HTMLElement;
  label: string;
  hint: string; // id of the text that says how to get out
  fontSize: number;
  spoken: boolean;
  /** A key that belongs to the page, not to the program. */
  onKey: (key: "leave" | "search" | "bigger" | "smaller") => void;
  onMatches: (at: number, of: number) => void;
  onSelection: (some: boolean) => void;
  /** A program asks to put this on the clipboard. */
  onOffer: (text: string) => void;
  /** The address under the pointer; "" if there is no link. */
  onLink: (address: string) => void;
  /** `others`: the size of another viewer, not the one that fits here. */
  onSize: (cols: number, rows: number, others: boolean) => void;
}

export class Screen {
  readonly terminal: Terminal;
  private readonly fitting = new FitAddon();
  private readonly searching = new SearchAddon({ highlightLimit: 1000 });
  private readonly wishes: ScreenWishes;
  private readonly room: ResizeObserver;
  private settling: ReturnType<typeof setTimeout> | undefined;
  private gone = false;

  /** Opens in the host, which must be laid out: it takes all the room there is. */
  constructor(wishes: ScreenWishes) {
    permitStyles();
    this.wishes = wishes;
    this.terminal = new Terminal({
      allowProposedApi: true, // of search and unicode11
      cursorBlink: true,
      fontFamily: getComputedStyle(wishes.host).fontFamily,
      fontSize: wishes.fontSize,
      lineHeight: 1.15,
      linkHandler: { activate: (event, address) => follow(event, address), hover: (_, address) => wishes.onLink(address), leave: () => wishes.onLink("") },
      macOptionIsMeta: true,
      minimumContrastRatio: 4.5,
      overviewRuler: { width: 10 }, // beside the scroll bar: where matches of a search are
      screenReaderMode: wishes.spoken,
      scrollback: SCROLLBACK,
      theme: this.theme(),
    });
    const { terminal } = this;
    terminal.loadAddon(this.fitting);
    terminal.loadAddon(this.searching);
    terminal.loadAddon(new Unicode11Addon());
    terminal.unicode.activeVersion = "11";
    terminal.loadAddon(new WebLinksAddon(follow, { hover: (_, address) => wishes.onLink(address), leave: () => wishes.onLink("") }));
    terminal.attachCustomKeyEventHandler((event) => this.key(event));
    terminal.parser.registerOscHandler(52, (told) => this.offered(told));
    terminal.onSelectionChange(() => wishes.onSelection(terminal.hasSelection()));
    this.searching.onDidChangeResults(({ resultIndex, resultCount }) => wishes.onMatches(resultIndex, resultCount));
    terminal.open(wishes.host);
    terminal.textarea?.setAttribute("aria-label", wishes.label);
    terminal.textarea?.setAttribute("aria-describedby", wishes.hint);
    terminal.onResize(() => this.sized());
    terminal.onCursorMove(() => this.follow());
    this.fit();
    this.sized();
    if (wantsWebgl()) void this.accelerate();
    this.room = new ResizeObserver(() => {
      clearTimeout(this.settling);
      this.settling = setTimeout(() => this.fit(), SETTLE_MS);
    });
    this.room.observe(wishes.host);
  }

  load(addon: ITerminalAddon): void {
    this.terminal.loadAddon(addon);
  }

  /** Take the available space; a hidden terminal keeps its size. */
  fit(): void {
    const size = this.wishes.host.clientWidth > 0 && this.wishes.host.clientHeight > 0 ? this.fitting.proposeDimensions() : undefined;
    if (size && size.cols > 1 && size.rows > 1) this.fitting.fit();
  }

  /** All viewers of a terminal see it in one size. If it is larger than the space here, it scrolls to its cursor. */
  private sized(): void {
    const { host } = this.wishes;
    const { cols, rows } = this.terminal;
    const fits = host.clientWidth > 0 ? this.fitting.proposeDimensions() : undefined;
    host.classList.toggle("larger", fits !== undefined && (cols > fits.cols || rows > fits.rows));
    this.wishes.onSize(cols, rows, fits !== undefined && fits.cols > 1 && (cols !== fits.cols || rows !== fits.rows));
    requestAnimationFrame(() => this.follow());
  }

  private follow(): void {
    const { host } = this.wishes;
    const drawn = host.querySelector<HTMLElement>(".xterm-screen");
    if (!drawn || !host.classList.contains("larger")) return;
    const { cols, rows, buffer } = this.terminal;
    const height = drawn.offsetHeight / rows;
    const width = drawn.offsetWidth / cols;
    const top = buffer.active.cursorY * height;
    const left = buffer.active.cursorX * width;
    if (top < host.scrollTop || top + height > host.scrollTop + host.clientHeight) host.scrollTop = top + height - host.clientHeight;
    if (left < host.scrollLeft || left + width > host.scrollLeft + host.clientWidth) host.scrollLeft = left < host.clientWidth / 2 ? 0 : left - host.clientWidth / 2;
  }

  focus(): void {
    this.terminal.focus();
  }

  dress(): void {
    this.terminal.options.theme = this.theme();
  }

  setFont(size: number): void {
    this.terminal.options.fontSize = size;
    this.fit();
  }

  setSpoken(spoken: boolean): void {
    this.terminal.options.screenReaderMode = spoken;
  }

  /** Search for `words` forwards or backwards, from the last match. */
  find(words: string, way: "next" | "previous" | "typing"): void {
    if (!words) return this.endSearch();
    const token = this.token();
    const wash = mix(this.paper(), token("--warn"), 0.25);
    const active = mix(this.paper(), token("--warn"), 0.55);
    const options: ISearchOptions = {
      incremental: way === "typing",
      decorations: { matchBackground: wash, matchOverviewRuler: token("--warn"), activeMatchBackground: active, activeMatchBorder: token("--warn"), activeMatchColorOverviewRuler: token("--ink") },
    };
    if (way === "previous") this.searching.findPrevious(words, options);
    else this.searching.findNext(words, options);
  }

  endSearch(): void {
    this.searching.clearDecorations();
    this.wishes.onMatches(-1, 0);
  }

  dispose(): void {
    this.gone = true;
    clearTimeout(this.settling);
    this.room.disconnect();
    this.terminal.dispose();
  }

  private key(event: KeyboardEvent): boolean {
    if (event.type !== "keydown" || !event.ctrlKey || !event.shiftKey || event.altKey) return true;
    const act = this.act(event.code);
    if (!act) return true;
    event.preventDefault();
    act();
    return false;
  }

  private act(code: string): (() => void) | null {
    const { onKey } = this.wishes;
    switch (code) {
      case "Escape":
      case "KeyL":
        return () => onKey("leave");
      case "KeyF":
        return () => onKey("search");
      case "Equal":
      case "NumpadAdd":
        return () => onKey("bigger");
      case "Minus":
      case "NumpadSubtract":
        return () => onKey("smaller");
      case "KeyC":
        return () => void copy(this.terminal.getSelection());
      default:
        return null; // Ctrl+Shift+V too: the browser pastes, and asks nobody's permission
    }
  }

  /** OSC 52. A program may not read the clipboard: its queries get no answer. Text that a program wants to copy is only
   * offered; somebody must press a button, because it might be a command when pasted elsewhere. */
  private offered(told: string): boolean {
    const payload = told.slice(told.indexOf(";") + 1);
    if (payload && payload !== "?" && payload.length <= LARGEST_COPY) {
      try {
        const bytes = Uint8Array.from(atob(payload), (character) => character.charCodeAt(0));
        this.wishes.onOffer(new TextDecoder().decode(bytes));
      } catch {
        // no base64: nothing to offer
      }
    }
    return true;
  }

  private async accelerate(): Promise<void> {
    try {
      const { WebglAddon } = await import("@xterm/addon-webgl");
      if (this.gone) return;
      const webgl = new WebglAddon();
      webgl.onContextLoss(() => webgl.dispose()); // the DOM renderer takes over
      this.terminal.loadAddon(webgl);
    } catch {
      // the DOM renderer stays
    }
  }

  private token(): (name: string) => string {
    const style = getComputedStyle(this.wishes.host);
    return (name) => style.getPropertyValue(name).trim();
  }

  private paper(): string {
    return this.token()("--screen");
  }

  private theme() {
    return themeOf(this.token(), this.paper());
  }
}

/** Whether there is a graphics card to draw with: WebGL by arithmetic alone is no faster than the DOM. `holdfast.renderer`
 * (`webgl`, `dom`) in the browser's storage overrules it. */
function wantsWebgl(): boolean {
  const chosen = kept.get("renderer");
  if (chosen === "webgl" || chosen === "dom") return chosen === "webgl";
  const context = document.createElement("canvas").getContext("webgl2", { failIfMajorPerformanceCaveat: true });
  const about = context?.getExtension("WEBGL_debug_renderer_info");
  const card = about ? String(context?.getParameter(about.UNMASKED_RENDERER_WEBGL)) : "";
  context?.getExtension("WEBGL_lose_context")?.loseContext(); // a page has only a few
  return context !== null && !/swiftshader|llvmpipe|software|basic render/i.test(card);
}

function follow(_: MouseEvent, address: string): void {
  if (/^https?:\/\//i.test(address) && URL.canParse(address)) window.open(address, "_blank", "noopener,noreferrer");
}

/** Whether the copy succeeded. */
export async function copy(text: string): Promise<boolean> {
  if (!text) return false;
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
