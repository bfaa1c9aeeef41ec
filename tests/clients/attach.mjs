// @xterm/addon-attach on a WebSocket, as its documentation shows it.
import attach from '@xterm/addon-attach';
import { obey, options, tell, term } from './screen.mjs';

const socket = new WebSocket(options.url);
socket.addEventListener('open', () => {
  term.loadAddon(new attach.AttachAddon(socket));
  tell({ state: 'connected' });
});
socket.addEventListener('close', ({ code }) => tell({ state: 'closed', code }));
obey();
