// A client of the native dialect, as docs/protocol/terminal.md asks for one: it counts, comes back where it was, clears and
// paints at a `reset`, and keeps to itself what its terminal answers to bytes that are old. For Node and for browsers.
const AGAIN_MS = 50;

export class NativeTerminal {
  // `told(what)` hears of every control message and of every end of a connection.
  constructor(term, address, { told = () => {} } = {}) {
    this.term = term;
    this.address = address;
    this.told = told;
    this.epoch = null;
    this.offset = 0;
    this.counts = { connections: 0, resets: 0, replayed: 0, unsaid: 0, lost: 0 };
    this.written = []; // whether each piece that the terminal has yet to parse is old
    this.replayed = 0;
    this.picture = null; // the `reset` whose picture has not come
    term.onData((data) => this.answer(data));
  }

  connect() {
    this.leave(); // one connection at a time: another would be a viewer of its own
    const url = new URL(this.address);
    if (this.epoch !== null) {
      url.searchParams.set('epoch', this.epoch);
      url.searchParams.set('offset', this.offset);
    }
    const socket = new WebSocket(url);
    socket.binaryType = 'arraybuffer';
    socket.onmessage = ({ data }) => {
      if (this.socket !== socket) return; // it was left
      if (typeof data === 'string') this.hear(JSON.parse(data));
      else this.take(new Uint8Array(data));
    };
    socket.onclose = ({ code }) => {
      if (this.socket !== socket) return;
      this.leave();
      this.told({ type: 'closed', code });
      this.again = setTimeout(() => this.connect(), AGAIN_MS);
    };
    this.socket = socket;
  }

  hear(message) {
    if (message.type === 'ready') {
      this.counts.connections += 1;
      this.counts.replayed += message.replayed;
      this.replayed = message.replayed;
      this.count(message);
    } else if (message.type === 'reset') {
      this.counts.resets += 1;
      this.replayed = 0;
      this.picture = message;
    }
    // In its turn: what was written before was written for the size before.
    if (message.cols) this.write('', false, () => this.term.resize(message.cols, message.rows));
    this.told(message);
  }

  count({ epoch, offset }) {
    if (epoch) [this.epoch, this.offset] = [epoch, offset];
  }

  take(bytes) {
    if (this.picture) {
      this.count(this.picture);
      this.picture = null;
      this.write('\x1bc', true);
      this.write(bytes, true);
      return;
    }
    this.offset += bytes.length;
    const old = Math.min(this.replayed, bytes.length);
    this.replayed -= old;
    if (old) this.write(bytes.subarray(0, old), true);
    if (old < bytes.length) this.write(bytes.subarray(old), false);
  }

  write(data, old, then = () => {}) {
    this.written.push(old);
    this.term.write(data, () => {
      this.written.shift();
      then();
    });
  }

  // What the terminal says by itself while it parses, and what is typed at it.
  answer(data) {
    if (this.written[0]) this.counts.unsaid += 1;
    else this.type(data);
  }

  type(text) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(new TextEncoder().encode(text));
    else this.counts.lost += 1;
  }

  // Be gone, and remember where it was; `connect` comes back.
  leave() {
    clearTimeout(this.again);
    if (this.picture) this.epoch = this.picture = null; // what it shows is void, and where it was counts no more
    this.socket?.close();
    this.socket = null;
  }
}
