/** When to be connected: the rules one by one, and any history of events at all. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Connection, OFFLINE_FOR, PONG_WITHIN, QUIET_FOR, STUCK_AFTER, TOKEN_WITHIN, type Effect, type Happening } from "../src/connection.ts";
import { FIRST_PAUSE, isFinal, LONGEST_PAUSE, pause } from "../src/returning.ts";

const RUNS = Number(process.env.HOLDFAST_TEST_RUNS ?? 300) * 10;
const closed = (code: number, opened = true): Happening => ({ type: "closed", code, opened });
const refused = (status: number, retryAfter?: number): Happening => ({ type: "refused", status, retryAfter });

function begun(...events: Happening[]): Connection {
  const connection = new Connection();
  for (const event of [{ type: "start" } as Happening, ...events]) connection.on(event, 0, 0.5);
  return connection;
}

test("a pause is anything up to the whole, which doubles up to a bound; hidden pages take longer", () => {
  assert.equal(pause(0, 1), FIRST_PAUSE);
  assert.equal(pause(3, 1), 8 * FIRST_PAUSE);
  assert.equal(pause(5000, 1), LONGEST_PAUSE);
  assert.equal(pause(9, 0), 0);
  assert.ok(pause(9, 1, true) > pause(9, 1));
});

for (const code of [1000, 1009, 4400, 4403, 4404])
  test(`${code} is the end`, () => {
    const connection = begun({ type: "greeted" });
    connection.on(closed(code), 1, 0.5);
    assert.deepEqual([connection.state.phase, connection.state.code], ["ended", code]);
    assert.deepEqual(connection.on({ type: "network", online: true }, 2, 0.5), []);
  });

for (const code of [1001, 1006, 1011, 1012, 4408, 4409, 4429])
  test(`${code} is come back to after a pause`, () => {
    const connection = begun({ type: "greeted" });
    assert.deepEqual(connection.on(closed(code), 1000, 0.5), []);
    assert.equal(connection.state.phase, "waiting");
    assert.deepEqual(connection.on({ type: "due" }, connection.deadline!, 0.5), [{ do: "open", why: "connect" }]);
  });

test("a gateway that goes away is given the time it asked for, and some more", () => {
  const connection = begun({ type: "greeted" }, { type: "going_away", retryAfter: 3000 });
  connection.on(closed(1012), 100, 0.5);
  assert.ok(connection.state.retryAt! > 3000);
  assert.deepEqual(connection.on({ type: "page", hidden: false }, 200, 0.5), [], "also by those who look");
});

test("a token that is refused is asked for once more, and then no more", () => {
  const connection = begun({ type: "greeted" });
  assert.deepEqual(connection.on(closed(4401), 100, 0.5), [{ do: "open", why: "refused" }]);
  assert.deepEqual(connection.on(closed(1006, false), 200, 0.5), [{ do: "probe" }]);
  connection.on(refused(401), 300, 0.5);
  assert.deepEqual([connection.state.phase, connection.state.code], ["ended", 401]);
});

test("a token that has served for a while may be refused again", () => {
  const connection = begun({ type: "greeted" });
  connection.on(closed(4401), 100, 0.5);
  connection.on({ type: "greeted" }, 200, 0.5);
  assert.deepEqual(connection.on(closed(4401), 60_000, 0.5), [{ do: "open", why: "refused" }]);
});

for (const [status, phase] of [[400, "ended"], [403, "ended"], [404, "ended"], [426, "ended"], [429, "waiting"], [500, "waiting"], [503, "waiting"], [0, "waiting"], [200, "waiting"]] as const)
  test(`a socket that never opened, and ${status} over HTTP: ${phase}`, () => {
    const connection = begun();
    assert.deepEqual(connection.on(closed(1006, false), 1, 0.5), [{ do: "probe" }]);
    connection.on(refused(status), 2, 0.5);
    assert.equal(connection.state.phase, phase);
    assert.equal(connection.state.code, status || undefined);
  });

test("429 is waited out as long as it says", () => {
  const connection = begun(closed(1006, false));
  connection.on(refused(429, 7000), 10, 0);
  assert.equal(connection.deadline, 7010);
});

test("without a network it waits for one, and comes back at once", () => {
  const connection = begun({ type: "greeted" }, { type: "network", online: false });
  connection.on(closed(1006), 10, 0.5);
  assert.equal(connection.state.phase, "offline");
  assert.equal(connection.deadline, 10 + OFFLINE_FOR);
  assert.deepEqual(connection.on({ type: "network", online: true }, 20, 0.5), [{ do: "open", why: "connect" }]);
});

test("a page that is looked at again does not wait", () => {
  const connection = begun({ type: "greeted" }, { type: "page", hidden: true }, closed(1006));
  assert.deepEqual(connection.on({ type: "page", hidden: false }, 1, 0.5), [{ do: "open", why: "connect" }]);
});

test("silence is asked about, and no answer ends it", () => {
  const connection = begun({ type: "greeted" });
  assert.deepEqual(connection.on({ type: "due" }, QUIET_FOR, 0.5), [{ do: "ping" }]);
  connection.heard(QUIET_FOR + 1);
  assert.deepEqual(connection.on({ type: "due" }, QUIET_FOR + PONG_WITHIN, 0.5), [], "there was an answer");
  assert.deepEqual(connection.on({ type: "page", hidden: false }, 40_000, 0.5), [{ do: "ping" }]);
  assert.deepEqual(connection.on({ type: "due" }, 40_000 + PONG_WITHIN, 0.5), [{ do: "drop" }]);
  assert.equal(connection.state.phase, "waiting");
});

test("a token that never comes is asked for again, and sooner if somebody looks", () => {
  const connection = begun();
  assert.deepEqual(connection.on({ type: "due" }, TOKEN_WITHIN, 0.5), [{ do: "drop" }]);
  assert.equal(connection.state.phase, "waiting");
  const now = connection.deadline!;
  assert.deepEqual(connection.on({ type: "due" }, now, 0.5), [{ do: "open", why: "connect" }]);
  assert.deepEqual(connection.on({ type: "page", hidden: false }, now + STUCK_AFTER, 0.5), [], "it may yet come");
  for (const wake of [{ type: "page", hidden: false }, { type: "network", online: true }] as Happening[]) {
    const later = connection.deadline! - TOKEN_WITHIN + STUCK_AFTER + 1;
    assert.deepEqual(connection.on(wake, later, 0.5), [{ do: "drop" }, { do: "open", why: "connect" }]);
    assert.equal(connection.deadline, later + TOKEN_WITHIN);
  }
  connection.opening(60_000);
  assert.deepEqual(connection.on({ type: "page", hidden: false }, 75_000, 0.5), [], "a gateway that restarts is given its time");
});

test("another token that was asked for and never came does not use up the asking", () => {
  const connection = begun(closed(4401));
  connection.on({ type: "due" }, TOKEN_WITHIN, 0.5);
  connection.on({ type: "due" }, connection.deadline!, 0.5);
  assert.deepEqual(connection.on(closed(4401), 50_000, 0.5), [{ do: "open", why: "refused" }]);
});

const happening: fc.Arbitrary<Happening> = fc.oneof(
  fc.constantFrom<Happening>({ type: "greeted" }, { type: "due" }, { type: "network", online: true }, { type: "network", online: false }, { type: "page", hidden: true }, { type: "page", hidden: false }),
  fc.record({ type: fc.constant("closed" as const), code: fc.constantFrom(1000, 1001, 1006, 1009, 1011, 1012, 4400, 4401, 4404, 4408, 4409, 4429), opened: fc.boolean() }),
  fc.record({ type: fc.constant("refused" as const), status: fc.constantFrom(0, 200, 401, 403, 404, 429, 500, 503), retryAfter: fc.option(fc.integer({ min: 0, max: 60_000 }), { nil: undefined }) }),
  fc.record({ type: fc.constant("going_away" as const), retryAfter: fc.integer({ min: 0, max: 60_000 }) }),
);

test("whatever happens: one socket at a time, no wait without an end, and nothing after the end", () => {
  const history = fc.array(fc.tuple(happening, fc.integer({ min: 0, max: 40_000 }), fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true })), { maxLength: 60 });
  fc.assert(
    fc.property(history, fc.boolean(), (events, hangs) => {
      const connection = new Connection();
      let now = 0;
      let sockets = 0;
      let asked = 0;
      const settle = (effects: Effect[]) => {
        for (const effect of effects) {
          if (effect.do === "open") {
            assert.equal(sockets, 0, "one at a time");
            sockets = 1;
            asked += Number(effect.why === "refused");
            if (!hangs) connection.opening(now); // or no token comes
          } else if (effect.do === "drop") sockets = 0;
          if (effect.do === "ping") assert.equal(connection.state.phase, "online");
        }
      };
      settle(connection.on({ type: "start" }, now, 0));
      for (const [event, later, random] of events) {
        now += later;
        if (event.type === "closed" && !sockets) continue; // whoever has none hears of none
        if (event.type === "closed") sockets = 0;
        if (event.type === "refused" && !connection.live) sockets = 0; // a ticket was refused: there was none yet
        const before = connection.state.phase;
        settle(connection.on(event, now, random));
        const { phase, retryAt } = connection.state;
        if (before === "ended") assert.equal(phase, "ended");
        if (phase === "waiting" || phase === "offline") {
          assert.equal(connection.deadline, retryAt);
          assert.ok(retryAt! - now <= 60_000 + 4 * LONGEST_PAUSE, "it comes back");
        }
        if (phase === "ended") assert.equal(connection.deadline, undefined);
        else assert.ok(connection.deadline !== undefined, "something will happen");
        if (event.type === "closed" && isFinal(event.code) && before !== "waiting") assert.equal(phase, "ended");
        if (event.type === "greeted" && now > 0) asked = connection.live ? 0 : asked;
        assert.ok(asked <= 2 || hangs);
      }
      if (connection.state.phase !== "ended") settle(connection.on({ type: "leave" }, now, 0));
      assert.equal(connection.state.phase, "ended");
      assert.equal(sockets, 0);
    }),
    { numRuns: RUNS },
  );
});
