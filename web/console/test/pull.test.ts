import assert from "node:assert/strict";
import { test } from "node:test";
import { fetched, pullIn, pullWords } from "../src/pull.ts";

const HALF = { image: "debian:13", layers: 1, ofLayers: 4, bytes: 30 * 1024 ** 2, ofBytes: 120 * 1024 ** 2 };

test("a pull is what was said of it last, and over with any other word", () => {
  const began = pullIn({ status: "pulling", image: "debian:13" }, undefined);
  assert.deepEqual(began, { image: "debian:13", layers: 0, ofLayers: 0, bytes: 0, ofBytes: 0 });
  assert.deepEqual(pullIn({ status: "pulling", ...HALF }, began), HALF);
  assert.equal(pullIn({}, HALF), HALF, "where its sandbox is says nothing of it");
  for (const status of ["pulled", "queued", "running", "error"]) assert.equal(pullIn({ status, image: "debian:13" }, HALF), undefined);
});

test("its share is of the bytes, or of the layers while nobody knows how many bytes there are", () => {
  assert.equal(fetched(HALF), 0.25);
  assert.equal(fetched({ ...HALF, bytes: 999 * 1024 ** 2 }), 1);
  assert.equal(fetched({ ...HALF, layers: 2, bytes: 0, ofBytes: 0 }), 0.5);
  assert.equal(fetched({ ...HALF, ofLayers: 0, ofBytes: 0 }), undefined);
});

test("it is told in words", () => {
  assert.equal(pullWords(HALF), "Fetching the image debian:13: 1 of 4 layers, 30 MiB of 120 MiB.");
  assert.match(pullWords({ ...HALF, layers: 0, ofLayers: 1 }), /0 of 1 layer,/);
  assert.equal(pullWords({ ...HALF, ofLayers: 0, ofBytes: 0 }), "Fetching the image debian:13.");
});
