// The terminal manager of @jupyterlab/services, wired to a terminal as JupyterLab's terminal widget does it.
import { PageConfig } from '@jupyterlab/coreutils';
import services from '@jupyterlab/services';
import { obey, options, tell, term } from './screen.mjs';

PageConfig.setOption('terminalsAvailable', 'true');
console.warn = console.error = (text) => tell({ said: String(text) });

const serverSettings = services.ServerConnection.makeSettings({ baseUrl: options.base, token: options.token });
const manager = new services.TerminalManager({ serverSettings });
let session;

function size() {
  session.send({ type: 'set_size', content: [term.rows, term.cols, term.rows * 17, term.cols * 9] });
}

async function open() {
  await manager.ready;
  session = await (options.name ? manager.connectTo({ model: { name: options.name } }) : manager.startNew());
  session.messageReceived.connect((_, { type, content }) => {
    if (type === 'stdout') term.write(content[0]);
  });
  session.connectionStatusChanged.connect((_, state) => {
    tell({ state });
    if (state === 'connected') size();
  });
  session.disposed.connect(() => tell({ state: 'disposed' }));
  term.onData((data) => session.send({ type: 'stdin', content: [data] }));
  term.onResize(size);
  tell({ state: session.connectionStatus, name: session.name });
  size();
}

open().catch((error) => {
  tell({ failed: String(error), status: error.response?.status ?? null });
  process.exit(1);
});
obey({
  reconnect: () => session.reconnect(),
  list: async () => {
    await manager.refreshRunning();
    tell({ state: 'listed', running: Array.from(manager.running(), ({ name }) => name) });
  },
  shutdown: async () => {
    await manager.shutdown(session.name);
    tell({ state: 'shut down' });
  },
});
