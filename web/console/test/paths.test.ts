import assert from "node:assert/strict";
import { test } from "node:test";
import { address, asText, encoded, imageType, readable, unreadable, visible } from "../src/panes/paths.ts";

test("a name is one part of an address, whatever is in it", () => {
  for (const name of ["a b", "a?b#c", "100%", "ä/ö".replace("/", ""), "日本", "..x", "a&b=c"]) {
    assert.equal(decodeURIComponent(encoded({ name })), name);
    assert.match(encoded({ name }), /^[^/?#]*$/);
  }
});

test("a name that is not UTF-8 is sent as the bytes it is", () => {
  const nameBase64 = Buffer.from([0x62, 0xff, 0x2e, 0x74]).toString("base64");
  assert.equal(encoded({ name: "b\ufffd.t", nameBase64 }), "%62%FF%2E%74");
  assert.equal(readable(["src", "%62%FF%2E%74"]), "src/b\ufffd.t");
});

test("a name with a backslash is known to be beyond reach before it is asked for", () => {
  assert.notEqual(unreadable({ name: "a\\b" }), null);
  assert.equal(unreadable({ name: "a/b" }), null);
});

test("an address says which root, and which moment", () => {
  assert.equal(address("s", ["a", "b%20c"], { root: "workspace", source: "live" }), "/files/s/a/b%20c?source=live");
  assert.equal(address("s", ["a"], { root: "agent", source: 7 }, true), "/files/s/a/?root=agent&generation=7");
  assert.equal(address("s", [], { root: "workspace", source: "synced" }, true), "/files/s/?source=synced");
});

test("an image is what its bytes say, and a drawing that could run a script is none", () => {
  assert.equal(imageType(Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0)), "image/png");
  assert.equal(imageType(Uint8Array.of(0xff, 0xd8, 0xff, 0xe0)), "image/jpeg");
  assert.equal(imageType(new TextEncoder().encode("GIF89a...")), "image/gif");
  assert.equal(imageType(new TextEncoder().encode("RIFF1234WEBPVP8 ")), "image/webp");
  assert.equal(imageType(new TextEncoder().encode("RIFF1234WAVEfmt ")), null);
  assert.equal(imageType(new TextEncoder().encode("<svg onload=alert(1)>")), null);
  assert.equal(imageType(new Uint8Array()), null);
});

test("text that was cut inside a character is text; bytes that are none are not", () => {
  const bytes = new TextEncoder().encode("größe");
  assert.equal(asText(bytes.subarray(0, 3), true), "gr");
  assert.equal(asText(bytes.subarray(0, 3), false), null);
  assert.equal(asText(Uint8Array.of(97, 0, 98), false), null);
  assert.equal(asText(Uint8Array.of(0xff, 0xfe, 0x41), false), null);
});

test("a name hides nothing, and turns nothing around", () => {
  assert.equal(visible("gpj.\u202eexe"), "gpj.\ufffdexe");
  assert.equal(visible("a\nb\u0000\u001b[31m\u007f\u0085"), "a␊b␀␛[31m␡\ufffd");
  assert.equal(visible("größe 日本 👩‍🚀"), "größe 日本 👩‍🚀");
  assert.equal(readable(["a%0A", "%E2%80%AEb"]), "a␊/\ufffdb");
});
