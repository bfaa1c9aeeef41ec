// The questions of an agent, and the answers it gets. Pure. An agent may have written anything, `__proto__` too: what it wrote is
// never looked up in an object, and answers are known by the place of their question.
import type { Json } from "@holdfast/client";

export interface Question {
  question: string;
  header?: string | undefined;
  options: { label: string; description?: string | undefined }[];
  multiSelect: boolean;
}

/** The answers so far, in the order of the questions. */
export interface Given {
  chosen: readonly string[];
  own: string;
}

export const NOTHING: Given = { chosen: [], own: "" };

export const isObject = (value: unknown): value is Json => typeof value === "object" && value !== null && !Array.isArray(value);
const text = (value: unknown): string | undefined => (typeof value === "string" && value !== "" ? value : undefined);

/** The questions of a request. */
export function questionsOf(content: Json): Question[] {
  const all = Array.isArray(content.questions) ? content.questions : [];
  return all.filter(isObject).map((one, at) => ({
    question: text(one.question) ?? `Question ${at + 1}`,
    header: text(one.header),
    multiSelect: one.multiSelect === true,
    options: (Array.isArray(one.options) ? one.options : []).flatMap((option: unknown) => {
      const label = isObject(option) ? text(option.label) : text(option);
      return label === undefined ? [] : [{ label, description: isObject(option) ? text(option.description) : undefined }];
    }),
  }));
}

/** An option of the question is chosen, or no longer. */
export function choose({ multiSelect }: Question, given: Given, label: string, on: boolean): Given {
  const kept = multiSelect ? given.chosen.filter((each) => each !== label) : [];
  return { chosen: on ? [...kept, label] : kept, own: !multiSelect && on ? "" : given.own };
}

/** The question gets an answer in the user's own words. */
export function write({ multiSelect }: Question, given: Given, own: string): Given {
  return { chosen: !multiSelect && own ? [] : given.chosen, own };
}

export const inWords = ({ chosen, own }: Given): string => [...chosen, ...(own.trim() ? [own.trim()] : [])].join(", ");

/** The answers as the agent gets them, by the text of the question; null while one is missing. */
export function answersOf(questions: readonly Question[], given: readonly (Given | undefined)[]): Record<string, string> | null {
  const answers = questions.map((one, at): [string, string] => [one.question, inWords(given[at] ?? NOTHING)]);
  return answers.every(([, words]) => words !== "") ? Object.fromEntries(answers) : null;
}
