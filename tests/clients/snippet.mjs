// The shortest client there is: two lines of it are the whole protocol.
import { obey, options, tell, term } from './screen.mjs';

const ws = new WebSocket(options.url);
ws.onmessage = (e) => term.write(e.data);
term.onData((d) => ws.send(d));

ws.onopen = () => tell({ state: 'connected' });
ws.onclose = ({ code }) => tell({ state: 'closed', code });
obey();
