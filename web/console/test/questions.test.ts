import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { answersOf, choose, NOTHING, type Question, questionsOf, write } from "../src/chat/questions.ts";
import { toolName } from "../src/chat/told.ts";

const ODD = ["constructor", "__proto__", "toString", "valueOf", "hasOwnProperty"];

test("a question is asked and answered whatever its text is", () => {
  const questions = questionsOf({ questions: ODD.map((question) => ({ question, options: ["yes", "__proto__"] })) });
  assert.equal(answersOf(questions, []), null);
  const given = questions.map((one) => choose(one, NOTHING, "__proto__", true));
  const answers = answersOf(questions, given);
  assert.deepEqual(Object.entries(answers ?? {}), ODD.map((question) => [question, "__proto__"]));
  assert.equal(JSON.stringify(answers), `{${ODD.map((question) => `"${question}":"__proto__"`).join(",")}}`);
});

test("one choice takes the place of another and of own words; several stand together", () => {
  const one: Question = { question: "?", options: [], multiSelect: false };
  const several: Question = { ...one, multiSelect: true };
  assert.deepEqual(choose(one, { chosen: ["a"], own: "mine" }, "b", true), { chosen: ["b"], own: "" });
  assert.deepEqual(write(one, { chosen: ["a"], own: "" }, "mine"), { chosen: [], own: "mine" });
  assert.deepEqual(answersOf([several], [write(several, choose(several, { chosen: ["a"], own: "" }, "b", true), " mine ")]), { "?": "a, b, mine" });
  assert.deepEqual(choose(several, { chosen: ["a", "b"], own: "" }, "a", false).chosen, ["b"]);
});

test("whatever JSON an agent sends as questions or as the name of a tool has words", () => {
  fc.assert(
    fc.property(fc.jsonValue(), (questions) => {
      for (const one of questionsOf({ questions })) assert.equal(typeof one.question, "string");
      assert.equal(typeof toolName(questions), "string");
    }),
  );
  assert.equal(toolName({ toString: 1, valueOf: 1 }), '{"toString":1,"valueOf":1}');
  assert.deepEqual([toolName("ls"), toolName(undefined)], ["ls", "a tool"]);
});
