/**
 * Somebody at a page, for tests against a real gateway: a session, its transcript and perhaps a terminal, in Node. Told what
 * to do by lines of JSON, and tells in lines of JSON what it sees.
 */
import { createInterface } from "node:readline";
import { connect, memoryOutbox, type TerminalChannel } from "../../src/index.ts";
import { watch } from "../../src/watch.ts";
import { transcript } from "../../src/transcript.ts";

interface Order {
  do: "send" | "terminal" | "type" | "report" | "allow" | "abort" | "watch";
  text?: string;
  name?: string;
}

const { url, session: id, token, tickets } = JSON.parse(process.argv[2]!) as Record<"url" | "session" | "token", string> & { tickets?: boolean };
const tell = (line: object) => process.stdout.write(`${JSON.stringify(line)}\n`);
const counts = { connections: 0, resets: 0, repeated: 0, errors: [] as string[] };

const session = connect({ url, session: id, tickets, getToken: () => token, outbox: memoryOutbox() });
const shown = transcript(session);
let heard: { epoch: string; offset: number } = { epoch: "", offset: 0 };
session.on("state", ({ phase, code, reason }) => tell({ state: phase, code, reason }));
session.on("welcome", ({ first, epoch, recovered, offset }) => {
  if (first) counts.connections += 1;
  if (epoch !== heard.epoch || recovered !== true) heard = { epoch, offset };
  tell({ welcome: epoch, recovered: recovered ?? null });
});
session.on("frame", ({ _offset }) => {
  if (_offset !== heard.offset + 1) counts.repeated += 1;
  heard.offset = _offset;
});
session.on("error", ({ code, error }) => counts.errors.push(`${code}: ${error}`));
shown.on("error", ({ code, error }) => tell({ history: code, error }));

let channel: TerminalChannel | undefined;
let output: Uint8Array[] = []; // since the screen was last painted whole,
let from = 0; // after this byte

function painted(): void {
  output = [];
  from = channel?.position?.offset ?? 0;
}

function open(name: string): void {
  channel = session.terminal(name, { cols: 80, rows: 24 });
  channel.on("state", ({ phase }) => tell({ terminal: phase }));
  channel.on("ready", ({ goesOn }) => {
    if (!goesOn) painted();
    tell({ ready: goesOn });
  });
  channel.on("reset", () => {
    counts.resets += 1;
    painted();
  });
  channel.on("data", ({ data }) => {
    output.push(data.slice());
    tell({ bytes: Buffer.from(data).toString("base64") });
  });
}

const orders: Record<Order["do"], (order: Order) => void> = {
  send({ text = "" }) {
    const sent = session.send(text);
    const failed = ({ code }: { code: string }) => tell({ failed: sent.cid, code });
    tell({ sent: sent.cid, text });
    sent.stored.then(({ seq }) => tell({ stored: sent.cid, seq }), failed);
    sent.delivered.then(({ seq }) => tell({ delivered: sent.cid, seq }), () => {});
  },
  terminal: ({ name = "main" }) => open(name),
  type: ({ text = "" }) => void channel?.write(text),
  abort: () => void session.abort(),
  watch: () => {
    const watching = watch({ url, getToken: () => token });
    watching.on("sandboxes", ({ sandboxes }) => tell({ sandboxes: sandboxes.map(({ id }) => id) }));
    watching.on("sandbox", ({ sandbox }) => tell({ sandbox: sandbox.id }));
  },
  allow: () => {
    for (const item of shown.items)
      if (item.kind === "permission" && item.status === "open") session.answerPermission(item.requestId, { allow: true });
  },
  report: () => {
    const { items, loaded } = shown;
    tell({
      report: { items, loaded, counts, state: session.state, outbox: session.outbox, position: channel?.position ?? null, from, output: Buffer.concat(output).toString("base64") },
    });
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line) as Order;
  orders[order.do](order);
}
session.leave();
