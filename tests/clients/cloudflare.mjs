// The xterm add-on of @cloudflare/sandbox. Of a browser it needs `location`, to build addresses, and a terminal that can
// take the focus; nothing else is put in place of anything.
import { SandboxAddon } from '@cloudflare/sandbox/xterm';
import { obey, options, tell, term } from './screen.mjs';

globalThis.location = new URL(options.origin);
term.focus = () => {};

let socket;
const addon = new SandboxAddon({
  getWebSocketUrl: ({ sandboxId, origin }) => `${origin}/v1/sandbox/${sandboxId}/pty?${options.query}`,
  onStateChange: (state, error) => tell({ state, error: error?.message ?? null }),
});

// The network is cut, not the client: it sees its socket end and does what it does.
class Seen extends WebSocket {
  constructor(...given) {
    super(...given);
    socket = this;
    this.addEventListener('close', ({ code }) => tell({ closed: code }));
  }
}
globalThis.WebSocket = Seen;

term.loadAddon(addon);
addon.connect({ sandboxId: options.sandbox });
obey({ cut: () => socket.close(4000), disconnect: () => addon.disconnect() });
