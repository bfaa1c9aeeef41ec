// What xterm.js makes of bytes. Each line in is one terminal, as JSON: {cols, rows, scrollback, steps}, where a step is
// {write: base64}, {resize: [cols, rows]} or "dump". Each line out has the dumps, and what the terminal answered.
import {createInterface} from 'node:readline';
import headless from '@xterm/headless';
import {dump} from './dump.mjs';

for await (const line of createInterface({input: process.stdin})) {
  const {cols, rows, scrollback, steps} = JSON.parse(line);
  const terminal = new headless.Terminal({cols, rows, scrollback, allowProposedApi: true, logLevel: 'off'});
  const core = terminal._core;
  const answers = [];
  terminal.onData(answer => answers.push(answer));
  const dumps = [];
  let failed = null;
  try {
    for (const step of steps) {
      if (step === 'dump') dumps.push(dump(core));
      else if (step.resize) terminal.resize(...step.resize);
      else core.writeSync(Buffer.from(step.write, 'base64'));
    }
  } catch (error) {
    failed = String(error.stack);
  }
  terminal.dispose();
  process.stdout.write(JSON.stringify({dumps, answers, failed}) + '\n');
}
