import assert from "node:assert/strict";
import { test } from "node:test";
import { userOf } from "../src/token.ts";

test("a token says whom it names, in any letters, and nothing where it is none", () => {
  const token = (claims: unknown): string => `x.${Buffer.from(JSON.stringify(claims)).toString("base64url")}.y`;
  for (const user of ["ada", "Ævar ÿ?>", "日本"]) assert.equal(userOf(token({ userId: user })), user);
  for (const other of [token({}), token(null), token({ userId: 5 }), "", "a.b.c", "opaque"]) assert.equal(userOf(other), undefined);
});
