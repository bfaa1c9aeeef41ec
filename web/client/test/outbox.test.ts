/** One suite for every outbox, and what holds one together when it fails. */
import "fake-indexeddb/auto";
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { IDBFactory } from "fake-indexeddb";
import { Keeper, LOAD_WITHIN } from "../src/keeper.ts";
import { indexedDBOutbox, memoryOutbox, type Outbox } from "../src/outbox.ts";
import type { OutboxItem } from "../src/types.ts";
import { FakePlatform, turn } from "./world.ts";

const item = (cid: string, order: number, stage: OutboxItem["stage"] = "queued"): OutboxItem => ({ cid, order, stage, frame: { type: "message", content: cid } });
const cids = (items: OutboxItem[]) => items.map(({ cid }) => cid);

/** `again` is the same outbox as the next visit finds it. */
function contract(name: string, make: () => { outbox: Outbox; again: () => Outbox }): void {
  describe(name, () => {
    test("what was put is there, oldest first, until it is removed", async () => {
      const { outbox } = make();
      for (const [cid, order] of [["b", 2], ["c", 3], ["a", 1]] as const) await outbox.put("s", item(cid, order));
      assert.deepEqual(cids(await outbox.load("s")), ["a", "b", "c"]);
      await outbox.remove("s", "b");
      await outbox.remove("s", "never there");
      assert.deepEqual(cids(await outbox.load("s")), ["a", "c"]);
    });

    test("the same cid again replaces, in its place", async () => {
      const { outbox } = make();
      await outbox.put("s", item("a", 1));
      await outbox.put("s", item("b", 2));
      await outbox.put("s", { ...item("a", 1, "refused"), reason: "buffer_full" });
      assert.deepEqual(await outbox.load("s"), [{ ...item("a", 1, "refused"), reason: "buffer_full" }, item("b", 2)]);
    });

    test("sessions do not see each other's", async () => {
      const { outbox } = make();
      for (const session of ["s", "s2", "s\uffff", ""]) await outbox.put(session, item(`of ${session}`, 1));
      for (const session of ["s", "s2", "s\uffff", ""]) assert.deepEqual(cids(await outbox.load(session)), [`of ${session}`]);
    });

    test("what was taken out is a copy", async () => {
      const { outbox } = make();
      const mine = item("a", 1);
      await outbox.put("s", mine);
      mine.stage = "refused";
      assert.equal((await outbox.load("s"))[0]!.stage, "queued");
    });

    test("another tab, or the next visit, finds it", async () => {
      const { outbox, again } = make();
      await outbox.put("s", item("a", 1));
      assert.deepEqual(cids(await again().load("s")), ["a"]);
    });
  });
}

contract("memory, while the page is open", () => {
  const outbox = memoryOutbox();
  return { outbox, again: () => outbox };
});
contract("IndexedDB", () => {
  const factory = new IDBFactory();
  return { outbox: indexedDBOutbox("test", factory), again: () => indexedDBOutbox("test", factory) };
});

test("an outbox that fails is told of once, and its items live on in memory", async () => {
  const failures: unknown[] = [];
  const broken = () => Promise.reject(new Error("private window"));
  const keeper = new Keeper({ load: broken, put: broken, remove: broken }, "s", new FakePlatform(), (error) => failures.push(error));
  assert.deepEqual(await keeper.load(), []);
  keeper.keep({ items: new Map([["a", item("a", 1)], ["b", item("b", 2)]]), fates: [] });
  keeper.keep({ items: new Map([["a", undefined]]), fates: [] });
  assert.deepEqual(cids(await keeper.load()), ["b"]);
  assert.equal(failures.length, 1);
});

test("an outbox that never answers is given a while, told of once, and done without", async () => {
  const failures: unknown[] = [];
  const silent = () => new Promise<never>(() => {});
  const platform = new FakePlatform();
  const keeper = new Keeper({ load: silent, put: silent, remove: silent }, "s", platform, (error) => failures.push(error));
  const loads = [keeper.load()];
  keeper.keep({ items: new Map([["a", item("a", 1)]]), fates: [] });
  loads.push(keeper.load());
  await turn();
  await platform.pass(LOAD_WITHIN);
  assert.equal(failures.length, 1);
  assert.deepEqual((await Promise.all(loads)).map(cids), [[], ["a"]]);
  assert.equal(platform.timersSet, 0);
});

test("without IndexedDB there is an error, not a wait for ever", async () => {
  await assert.rejects(indexedDBOutbox("test", null as unknown as IDBFactory).load("s"), /no IndexedDB/);
});
