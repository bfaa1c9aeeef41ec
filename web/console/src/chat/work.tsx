// An agent's work besides its text: its thoughts, plans, usage, changes and cost. All of it is text of the agent.
import { type AnswerItem, type AnswerPart, type FileChange, type Step, type Work } from "@holdfast/client";
import { stepsOf } from "@holdfast/client/transcript";
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { AlertIcon, CheckIcon, ClockIcon, FileIcon } from "../ui/icons.tsx";
import { Given } from "./requests.tsx";
import { briefOf, inFull, toolName, usageWords } from "./told.ts";

const SHOWN = 32 * 1024; // characters of a tool's output

/** Folded; its content is made when somebody opens it. */
function Fold({ summary, testid, class: name, children }: { summary: ComponentChildren; testid: string; class?: string; children: () => ComponentChildren }) {
  const [open, setOpen] = useState(false);
  return (
    <details class={name} data-testid={testid} open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{summary}</summary>
      {open ? children() : null}
    </details>
  );
}

export function Thinking({ item }: { item: AnswerItem }) {
  const { thinking } = item.work;
  if (!thinking) return null;
  const now = item.streaming && !item.text && !item.blocks.length;
  return (
    <Fold testid="thinking" class={`thinking${now ? " now" : ""}`} summary={now ? "Thinking" : "Its thinking"}>
      {() => <p class="thoughts">{thinking}</p>}
    </Fold>
  );
}

/** A tool the agent used, with its result. */
export function ToolUse({ part: { use, result }, running }: { part: AnswerPart & { kind: "tool" }; running: boolean }) {
  const failed = result?.is_error === true;
  const brief = briefOf(use?.input);
  const state = failed ? "failed" : result ? "done" : running ? "running" : "open";
  return (
    <Fold
      testid="tool"
      class={`tool tool-${state}`}
      summary={
        <span class="tool-line">
          <span class="tool-mark" aria-hidden="true">
            {failed ? <AlertIcon size={13} /> : result ? <CheckIcon size={13} /> : <ClockIcon size={13} />}
          </span>
          <strong>{use ? toolName(use.name) : "Result"}</strong>
          {brief ? <code>{brief}</code> : null}
          <span class="sr-only">{STATES[state]}</span>
        </span>
      }
    >
      {() => (
        <div class="tool-body">
          {use ? <Given value={use.input} /> : null}
          {result ? <Part name={failed ? "It failed" : "Result"} text={inFull(result.content)} /> : null}
        </div>
      )}
    </Fold>
  );
}

const STATES = { failed: ", failed", done: ", done", running: ", running", open: ", without a result" };

function Part({ name, text }: { name: string; text: string }) {
  return (
    <figure>
      <figcaption>{name}</figcaption>
      <pre tabIndex={0}>{text ? text.slice(0, SHOWN) : "nothing"}</pre>
      {text.length > SHOWN ? <p class="help">The rest of {text.length.toLocaleString("en")} characters is not shown.</p> : null}
    </figure>
  );
}

/** The agent's plan and its progress. */
export function Plans({ work }: { work: Work }) {
  const said = work.plan?.explanation;
  return (
    <>
      <Steps name="Plan" testid="plan" about={typeof said === "string" ? said : ""} steps={stepsOf(work.plan)} />
      <Steps name="To do" testid="todo" about="" steps={stepsOf(work.todo)} />
    </>
  );
}

const MOST_STEPS = 100;
const STEP = { open: "to do", active: "now", done: "done" };

function Steps({ name, testid, about, steps }: { name: string; testid: string; about: string; steps: readonly Step[] }) {
  if (!steps.length) return null;
  const done = steps.filter(({ state }) => state === "done").length;
  return (
    <details class="steps" data-testid={testid} open>
      <summary>
        {name} <span>{done} of {steps.length}</span>
      </summary>
      {about ? <p>{about}</p> : null}
      <ul>
        {steps.slice(0, MOST_STEPS).map(({ text, state }, at) => (
          <li key={at} class={`step step-${state}`}>
            <span class="step-mark" aria-hidden="true">
              {state === "done" ? <CheckIcon size={12} /> : null}
            </span>
            <span>{text}</span>
            <span class="sr-only"> ({STEP[state]})</span>
          </li>
        ))}
      </ul>
    </details>
  );
}

export function Changes({ changes }: { changes: readonly FileChange[] }) {
  if (!changes.length) return null;
  return (
    <Fold testid="changes" class="changes" summary={`${changes.length === 1 ? "1 file" : `${changes.length} files`} changed`}>
      {() => (
        <ul>
          {changes.map(({ path, action }) => (
            <li key={path}>
              <FileIcon size={13} />
              <code>{path}</code> {action}
            </li>
          ))}
        </ul>
      )}
    </Fold>
  );
}

export function Usage({ work }: { work: Work }) {
  const words = usageWords(work.usage);
  return words ? <p class="usage" data-testid="usage">{words}</p> : null;
}
