import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { lexer } from "marked";
import { Growing, inColumns, safeAddress, spelled } from "../src/chat/tokens.ts";

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
