// The native dialect in a terminal without a window. Told what to do on stdin; says something only when it is asked to,
// so that nobody has to listen. Options: address, cols, rows.
import headless from '@xterm/headless';
import { createInterface } from 'node:readline';
import { dump } from './dump.mjs';
import { NativeTerminal } from './native_terminal.mjs';

const options = JSON.parse(process.argv[2]);
const term = new headless.Terminal({
  cols: options.cols, rows: options.rows, scrollback: 1000, allowProposedApi: true, logLevel: 'off',
});
const heard = [];
const client = new NativeTerminal(term, options.address, { told: (what) => heard.push(what) });

function shown() {
  const buffer = term.buffer.active;
  const line = (row) => buffer.getLine(buffer.baseY + row).translateToString(true);
  return Array.from({ length: term.rows }, (_, row) => line(row));
}

function look() {
  const { epoch, offset, counts } = client;
  // What has come is drawn first.
  client.write('', false, () => {
    const told = { look: shown(), epoch, offset, counts, heard: heard.splice(0), dump: dump(term._core) };
    process.stdout.write(JSON.stringify(told) + '\n');
  });
}

const doings = {
  look, type: ({ text }) => client.type(text), away: () => client.leave(), back: () => client.connect(),
};
createInterface({ input: process.stdin })
  .on('line', (line) => {
    const wish = JSON.parse(line);
    doings[wish.do](wish);
  })
  .on('close', () => process.exit(0));
client.connect();
