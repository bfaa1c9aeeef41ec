// Prepares a draft for sending.

/** Without the empty lines before it and the blanks after it; the first line keeps its indent. */
export function wordsOf(draft: string): string {
  const text = draft.trimEnd();
  const blank = text.slice(0, text.length - text.trimStart().length);
  return text.slice(blank.lastIndexOf("\n") + 1);
}

/** Whether it has more bytes than that inside a frame, with its quotes and escapes. */
export function isLonger(text: string, most: number): boolean {
  if (text.length * 6 + 2 <= most) return false; // nothing needs more than \u0000
  return text.length > most || new TextEncoder().encode(JSON.stringify(text)).length > most;
}
