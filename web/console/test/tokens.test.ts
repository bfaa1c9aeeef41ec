import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { lexer } from "marked";
import { AS_MARKDOWN, Growing, inColumns, safeAddress, spelled } from "../src/chat/tokens.ts";

test("only addresses that lead to the web or to mail are links", () => {
  assert.equal(safeAddress("https://example.com/a?b#c"), "https://example.com/a?b#c");
  assert.equal(safeAddress("mailto:a@example.com"), "mailto:a@example.com");
  for (const href of ["javascript:alert(1)", "JaVaScRiPt:alert(1)", " javascript:alert(1)", "java\nscript:alert(1)", "\u0001javascript:alert(1)", "data:text/html,x", "vbscript:x", "file:///etc/passwd", "blob:https://x/y", "/api/signin", "//evil.example", "", "http://"]) {
    assert.equal(safeAddress(href), undefined, href);
  }
});

test("whatever an address is, what comes out begins with a scheme that is allowed", () => {
  const parts = fc.array(fc.constantFrom("java", "script", ":", "\t", "\n", " ", "//", "http", "s", "data", "alert(1)", "\u0000", "%3a", "&colon;"), { maxLength: 8 }).map((all) => all.join(""));
  fc.assert(fc.property(fc.oneof(parts, fc.string()), (href) => /^(https?|mailto):/.test(safeAddress(href) ?? "http:")));
});

test("character references are the characters they name, and nothing else changes", () => {
  assert.equal(spelled("a &amp; b &lt;i&gt; &#65;&#x42; &hellip;"), "a & b <i> AB …");
  assert.equal(spelled("&amp;lt; &nosuch; &valueOf; & &#0; &#xd800; &#x110000;"), "&lt; &nosuch; &valueOf; & \ufffd \ufffd \ufffd");
});

test("lines set in columns are known from prose", () => {
  assert.ok(inColumns("I can:\n/ask      ask you\n/read     read a file"));
  assert.ok(!inColumns("One line    only"));
  assert.ok(!inColumns("Plain prose\nover three\nlines"));
});

const blocks = fc.array(
  fc.constantFrom("a paragraph\nof two lines", "# head", "- one\n- two", "- [ ] task", "1. x\n\n   y", "```js\nlet a\n```", "```\nopen", "> quote", "| a | b |\n|---|---|\n| 1 | 2 |", "<div>html</div>", "---", "    indented", "*em **both", "\t\ttabs", "x\u00a0y", "[a]: http://b"),
  { maxLength: 12 },
);

test("a text that grows loses no letter on the way, and is read like one that came at once", () => {
  fc.assert(
    fc.property(blocks, fc.constantFrom("\n\n", "\n"), fc.infiniteStream(fc.integer({ min: 1, max: 9 })), (all, between, steps) => {
      const text = all.join(between);
      const reader = new Growing();
      for (let end = 0; end < text.length; end += steps.next().value ?? 1) {
        const now = text.slice(0, end);
        assert.deepEqual(reader.read(now, false).map((token) => token.raw).join(""), lexer(now, { gfm: true, breaks: true }).map((token) => token.raw).join(""));
      }
      assert.deepEqual(JSON.stringify(reader.read(text, true)), JSON.stringify(lexer(text, { gfm: true, breaks: true })));
    }),
  );
});

const HARD: Record<string, string> = {
  emphasis: "_a_",
  "half of emphasis": "a_",
  strikes: "~~a~",
  blanks: " ",
  "blanks and letters": `a${" ".repeat(240)}`,
  fences: "```\n",
  stars: "*a **",
  brackets: "[",
  links: "[a](",
  ticks: "`a``",
  mail: "a.",
  quotes: ">",
  lists: "- ",
  both: "> - ",
  angles: "<a ",
  blocks: `${"_a_".repeat(200)}\n\n`,
};
/** Milliseconds of this process's own work: who else is busy does not count. */
const took = (work: () => void): number => {
  const before = process.cpuUsage();
  work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
};
/** The least of a few tries, as soon as it is below `bound`: collecting garbage is nobody's fault. */
const least = (work: () => void, bound: number): number => {
  let found = Infinity;
  for (let left = 3; left > 0 && found >= bound; left -= 1) found = Math.min(found, took(work));
  return found;
};
/** As long as a text may be, of many blocks that are no trouble: what reading costs anyway. */
const EASY = "Some *plain* words of a `paragraph`.\n\n".repeat(AS_MARKDOWN / 40);

test("no text takes much longer than an ordinary one of the longest that are read", () => {
  const read = (text: string) => () => new Growing().read(text, true);
  read(EASY)();
  const usual = Math.max(2, Math.min(took(read(EASY)), took(read(EASY)), took(read(EASY))));
  for (const [what, piece] of Object.entries(HARD)) {
    for (const length of [4000, AS_MARKDOWN - 2, 120_000]) {
      const text = `a${piece.repeat(length / piece.length)}\n`;
      const spent = least(read(text), 50 * usual);
      assert.ok(spent < 50 * usual, `${length} of ${what}: ${spent} ms, usual are ${usual}`);
    }
  }
});

test("what is not read for its marks is there as it was written", () => {
  for (const [what, piece] of Object.entries(HARD)) {
    const text = piece.repeat(20_000 / piece.length);
    const told = new Growing().read(text, true).map((token) => token.raw).join("");
    assert.equal(told.replace(/\s+/g, " "), text.replace(/\s+/g, " "), what);
  }
  const [long] = new Growing().read("_a_ ".repeat(2000), true);
  assert.deepEqual(long?.tokens?.map((token) => token.type), ["text"]);
  const [short] = new Growing().read("_a_ b", true);
  assert.deepEqual(short?.tokens?.map((token) => token.type), ["em", "text"]);
});

test("a text that grows letter by letter is read as quickly as it is when it is whole, or nearly", () => {
  for (const [what, piece] of Object.entries(HARD)) {
    const text = piece.repeat(31_000 / piece.length);
    const plain = "word ".repeat(6_200);
    const usual = Math.max(10, took(() => {
      for (let end = 500; end < plain.length; end += 500) new Growing().read(plain.slice(0, end), true);
    }));
    const all = least(() => {
      const reader = new Growing();
      for (let end = 500; end < text.length; end += 500) reader.read(text.slice(0, end), false);
    }, 100 * usual);
    assert.ok(all < 100 * usual, `${what}: ${all} ms, usual are ${usual}`);
  }
});
