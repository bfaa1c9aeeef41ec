/** A terminal's bytes across connections that end at any frame, programs that are replaced and rings that are overrun. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { MOST_TYPED, TerminalView, type ViewEvent } from "../src/viewing.ts";

const RUNS = Number(process.env.HOLDFAST_TEST_RUNS ?? 300) * 10;
const bytes = (text: string) => new TextEncoder().encode(text);
const text = (data: Uint8Array) => new TextDecoder().decode(data);
const ready = (epoch: string, offset: number, replayed = 0) => JSON.stringify({ type: "ready", epoch, offset, cols: 80, rows: 24, replayed });

/** A gateway's end of one terminal: programs, what they print, and what of it is still there. */
class Model {
  epoch = "p1";
  output = "";
  private base = 0;
  typed: Record<string, string> = { p1: "" };
  queue: Array<string | ArrayBuffer> = [];
  connected = false;

  connect(query: Record<string, string | number>): void {
    this.connected = true;
    this.queue = [];
    const offset = Number(query.offset);
    const meets = query.epoch === this.epoch && offset >= this.base && offset <= this.output.length;
    const from = meets ? offset : this.output.length;
    this.queue.push(ready(this.epoch, from, meets ? this.output.length - from : 0));
    if (meets) this.bytes(this.output.slice(from));
    else if (this.output) this.paint();
  }

  private bytes(data: string): void {
    for (let at = 0; at < data.length; at += 3) this.queue.push(bytes(data.slice(at, at + 3)).buffer as ArrayBuffer);
  }

  private paint(): void {
    this.queue.push(JSON.stringify({ type: "reset", epoch: this.epoch, offset: this.output.length }));
    this.queue.push(bytes(`[${this.output}]`).buffer as ArrayBuffer); // a picture: all there is to see, and not counted
  }

  print(data: string): void {
    this.output += data;
    if (this.connected) this.bytes(data);
  }

  overrun(): void {
    this.base = this.output.length;
  }

  replace(): void {
    this.epoch = `p${Number(this.epoch.slice(1)) + 1}`;
    this.output = "";
    this.base = 0;
    this.typed[this.epoch] = "";
    if (this.connected) this.paint();
  }
}

type Step = { do: "print" | "type"; text: string } | { do: "overrun" | "replace" | "connect" | "cut" } | { do: "arrive"; times: number };
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ do: fc.constantFrom("print" as const, "type" as const), text: fc.string({ minLength: 1, maxLength: 8, unit: "grapheme-ascii" }) }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant("arrive" as const), times: fc.integer({ min: 1, max: 5 }) }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constantFrom("connect" as const, "cut" as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constantFrom("overrun" as const, "replace" as const) }) },
);

test("the screen is what the program printed, exactly, and typing reaches the process it was for", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (plan) => {
      const view = new TerminalView("main", true, { cols: 80, rows: 24 });
      const model = new Model();
      let screen = "";
      const meant: Record<string, string> = {}; // typed while this process was the one the viewer knew
      let known = "";
      const hear = (frame: string | ArrayBuffer) => {
        if (typeof frame === "string") known = (JSON.parse(frame) as { epoch?: string }).epoch ?? known;
        show(view.hear(frame));
      };
      const show = (events: ViewEvent[]) => {
        for (const { type, event } of events as Array<{ type: string; event: never }>) {
          if (type === "ready" && !(event as { goesOn: boolean }).goesOn) screen = "";
          if (type === "reset") screen = text((event as { data: Uint8Array }).data).slice(1, -1);
          if (type === "data") screen += text((event as { data: Uint8Array }).data);
          assert.notEqual(type, "error");
        }
      };
      const flush = () => {
        for (let frame; model.connected && (frame = view.next()); )
          if (typeof frame !== "string") model.typed[model.epoch] += text(frame);
      };
      const connect = () => {
        if (!model.connected) model.connect(view.connecting());
      };
      for (const each of plan) {
        if (each.do === "print") model.print(each.text);
        else if (each.do === "type") {
          meant[known] = (meant[known] ?? "") + each.text;
          assert.ok(view.type(bytes(each.text), false));
        } else if (each.do === "connect") connect();
        else if (each.do === "cut") model.connected = false;
        else if (each.do === "arrive") for (let n = 0; n < each.times && model.connected && model.queue.length; n++) hear(model.queue.shift()!);
        else model[each.do]();
        const at = view.position;
        if (at?.epoch === model.epoch) assert.equal(screen, model.output.slice(0, at.offset), "the position is worth what is on the screen");
        if (model.connected && !model.queue.length) flush(); // only when both know the same process
      }
      connect();
      while (model.queue.length) hear(model.queue.shift()!);
      flush();
      assert.equal(screen, model.output);
      if (model.output) assert.deepEqual(view.position, { epoch: model.epoch, offset: model.output.length });
      for (const [epoch, typed] of Object.entries(model.typed)) {
        // In order, and nothing of another process; before any greeting it is for whoever is there.
        const all = [meant[""] ?? "", meant[epoch] ?? ""];
        assert.ok([all.join(""), all[1]].some((each) => each!.startsWith(typed)), `${typed} was typed for ${epoch}`);
      }
    }),
    { numRuns: RUNS },
  );
});

test("what was typed for a process that is gone is typed into no other", () => {
  const view = new TerminalView("main", true, undefined);
  const sent = () => {
    const said = [];
    for (let frame = view.next(); frame !== undefined; frame = view.next()) said.push(typeof frame === "string" ? frame : text(frame));
    return said;
  };
  const absent = (epoch: string) => JSON.stringify({ ...JSON.parse(ready(epoch, 0)), absent: true });
  view.connecting();
  view.type(bytes("for whoever is there"), false);
  view.hear(absent(""));
  assert.deepEqual(sent(), ["for whoever is there"]);
  view.hear(ready("e", 0));
  view.connecting();
  view.type(bytes("rm -rf"), false);
  view.hear(absent("e"));
  assert.deepEqual([sent(), view.unsent], [[], 0]);
  view.type(bytes("ls"), true);
  assert.deepEqual(sent(), ["ls"]); // for the next: the gateway keeps it
});

test("old bytes are told apart from new ones to the byte", () => {
  const view = new TerminalView("main", true, undefined);
  view.connecting();
  view.hear(ready("e", 10, 4));
  assert.deepEqual(
    view.hear(bytes("oldnew").buffer as ArrayBuffer).map((each) => each.type === "data" && [text(each.event.data), each.event.old]),
    [["oldn", true], ["ew", false]],
  );
  assert.deepEqual(view.position, { epoch: "e", offset: 16 });
});

test("a screen that was not painted is no position", () => {
  const view = new TerminalView("main", true, undefined);
  view.connecting();
  view.hear(ready("e", 10));
  assert.equal(view.position, undefined);
  view.hear(JSON.stringify({ type: "reset", epoch: "e", offset: 10 }));
  assert.deepEqual(view.connecting(), { name: "main" });
});

test("only the newest size and the newest pause are said, and again on the next connection", () => {
  const view = new TerminalView("main", true, { cols: 80, rows: 24 });
  view.connecting();
  view.resize({ cols: 90, rows: 30 });
  view.flow(true);
  view.resize({ cols: 100, rows: 40 });
  assert.equal(view.next(), undefined, "not before the greeting");
  view.hear(ready("e", 0));
  assert.deepEqual([view.next(), view.next(), view.next()], ['{"type":"resize","cols":100,"rows":40}', '{"type":"pause"}', undefined]);
  view.flow(false);
  assert.equal(view.next(), '{"type":"resume"}');
});

test("typing has a bound, and a viewer who looks types nothing", () => {
  const view = new TerminalView("main", true, undefined);
  assert.ok(view.type(new Uint8Array(MOST_TYPED), false));
  assert.equal(view.type(new Uint8Array(1), false), false);
  assert.equal(new TerminalView("main", false, undefined).type(bytes("x"), true), false);
  assert.equal(new TerminalView("main", false, undefined).connecting().role, "view");
});

test("what is not what it should be is an error and nothing else", () => {
  fc.assert(
    fc.property(fc.array(fc.oneof(fc.string(), fc.json(), fc.constantFrom(ready("e", 1), '{"type":"reset"}', '{"type":"ready","epoch":1}', '{"type":"resize","cols":0,"rows":5}'), fc.uint8Array().map((data) => data.slice().buffer as ArrayBuffer)), { maxLength: 20 }), (frames) => {
      const view = new TerminalView("main", true, undefined);
      view.connecting();
      for (const frame of frames) for (const { type } of view.hear(frame)) assert.ok(typeof type === "string");
    }),
    { numRuns: RUNS / 5 },
  );
});
