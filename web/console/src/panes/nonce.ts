// xterm.js under a content security policy without `unsafe-inline`.
//
// It makes <style> elements, also long after a terminal was opened (a lost WebGL context brings back its DOM renderer),
// and that renderer puts 24-bit colours into `style` attributes. The policy lets in a <style> with the page's nonce, and
// styles that are set as properties, not as attributes. xterm's `documentOverride` does not reach all of its elements, so
// `document.createElement` itself is wrapped; Preact makes its elements by another call and meets none of this.

let done = false;

/** From now on, what xterm.js creates is allowed by the page's policy. Once is enough. */
export function permitStyles(): void {
  if (done) return;
  done = true;
  const nonce = document.querySelector<HTMLMetaElement>('meta[name="csp-nonce"]')?.content ?? "";
  const create = document.createElement;
  document.createElement = function (this: Document, name: string, options?: ElementCreationOptions): HTMLElement {
    const element = create.call(this, name, options);
    if (element instanceof HTMLStyleElement) element.nonce = nonce;
    else if (element instanceof HTMLSpanElement) element.setAttribute = setAttribute;
    return element;
  } as typeof create;
}

function setAttribute(this: HTMLElement, name: string, value: string): void {
  if (name === "style") this.style.cssText = value;
  else Element.prototype.setAttribute.call(this, name, value);
}
