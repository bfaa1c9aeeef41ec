// What every driver shares: a terminal without a window, told what to do on stdin, telling what it shows on stdout, one
// JSON value a line. Options come as JSON in the first argument.
import headless from '@xterm/headless';
import { createInterface } from 'node:readline';

export const options = JSON.parse(process.argv[2]);
export const term = new headless.Terminal({
  cols: options.cols, rows: options.rows, scrollback: 1000, allowProposedApi: true,
});

export function tell(what) {
  process.stdout.write(JSON.stringify(what) + '\n');
}

function shown() {
  const buffer = term.buffer.active;
  const line = (row) => buffer.getLine(buffer.baseY + row).translateToString(true);
  return Array.from({ length: term.rows }, (_, row) => line(row));
}

term.onWriteParsed(() => tell({ screen: shown(), history: term.buffer.active.baseY }));

// `type` goes through the terminal as a keyboard's would, so the client finds it where it looks for typing.
const doings = {
  type: ({ text }) => term.input(text, true),
  resize: ({ cols, rows }) => term.resize(cols, rows),
  end: () => process.exit(0),
};

export function obey(more = {}) {
  const known = { ...doings, ...more };
  const lines = createInterface({ input: process.stdin });
  lines.on('line', (line) => {
    const wish = JSON.parse(line);
    known[wish.do](wish);
  });
  lines.on('close', () => process.exit(0));
}
