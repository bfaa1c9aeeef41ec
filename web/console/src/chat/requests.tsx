// The agent's requests to people: a permission, or questions. The first answer wins, wherever it was given.
import type { Json, RequestItem } from "@holdfast/client";
import type { ComponentChildren } from "preact";
import { useId, useState } from "preact/hooks";
import type { SessionHandle } from "../house.ts";
import { At } from "../when.tsx";
import { Badge, type Tone } from "../ui/badge.tsx";
import { Button } from "../ui/button.tsx";
import { CheckIcon, CloseIcon, QuestionIcon, ShieldIcon } from "../ui/icons.tsx";
import { briefOf } from "./told.ts";
import { answersOf, choose, type Given as Answer, isObject, NOTHING, type Question, questionsOf, write } from "./questions.ts";

interface CardProps {
  item: RequestItem;
  session: SessionHandle;
}

function Card({ item, title, icon, badge, children }: { item: RequestItem; title: string; icon: ComponentChildren; badge: ComponentChildren; children: ComponentChildren }) {
  const id = useId();
  return (
    <section class={`row card${isOpen(item) ? " open" : ""}`} aria-labelledby={id} data-testid={item.kind} data-status={item.status} data-seq={item.seq} data-request={item.requestId}>
      <header>
        {icon}
        <h3 id={id}>{title}</h3>
        {badge}
        {item.createdAt && !isOpen(item) ? <At at={item.createdAt} /> : null}
      </header>
      {children}
    </section>
  );
}

const isOpen = (item: RequestItem): boolean => item.status === "open" && !item.answer;

function stateBadge(item: RequestItem, answered: [string, Tone]): ComponentChildren {
  if (item.status === "expired") return <Badge>over</Badge>;
  if (item.sending) return <Badge tone="info">sending</Badge>;
  return isOpen(item) ? <Badge tone="warn" dot moving>waits for you</Badge> : <Badge tone={answered[1]}>{answered[0]}</Badge>;
}

const OVER = <p class="card-over">The agent ended before anybody answered. No answer is needed any more.</p>;

export function PermissionCard({ item, session }: CardProps) {
  const tool = typeof item.content.toolName === "string" ? item.content.toolName : "a tool";
  const allowed = item.answer?.allow === true || item.answer?.behavior === "allow";
  const mayBeAlways = Array.isArray(item.content.suggestions) && item.content.suggestions.length > 0;
  const answer = (allow: boolean, how: Json = {}) => session.client.answerPermission(item.requestId, { allow, behavior: allow ? "allow" : "deny", ...how });
  const { reason } = item.content;
  const brief = briefOf(item.content.toolInput); // once it is answered, the tool itself shows the rest
  return (
    <Card item={item} icon={<ShieldIcon />} title={`May the agent use ${tool}?`} badge={stateBadge(item, allowed ? [item.answer?.always === true ? "always allowed" : "allowed", "good"] : ["denied", "bad"])}>
      {isOpen(item) && typeof reason === "string" && reason ? <p class="card-reason">{reason}</p> : null}
      {brief && !isOpen(item) ? <code class="card-brief">{brief}</code> : <Given value={item.content.toolInput} />}
      {isOpen(item) ? (
        <div class="card-actions">
          <Button kind="primary" icon={<CheckIcon />} data-testid="permission-allow" onClick={() => answer(true)}>
            Allow
          </Button>
          {mayBeAlways ? (
            <Button data-testid="permission-always" title="The agent will not ask again for actions of this kind" onClick={() => answer(true, { always: true })}>
              Always allow
            </Button>
          ) : null}
          <Button icon={<CloseIcon />} data-testid="permission-deny" onClick={() => answer(false)}>
            Deny
          </Button>
        </div>
      ) : item.status === "expired" ? (
        OVER
      ) : null}
    </Card>
  );
}

/** A tool's input: its members one by one; long or nested ones as JSON. */
export function Given({ value }: { value: unknown }) {
  if (value === undefined || value === null) return null;
  if (typeof value !== "object" || Array.isArray(value)) return <pre class="given" tabIndex={0}>{written(value)}</pre>;
  return (
    <dl class="given-list">
      {Object.entries(value).map(([name, part]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{typeof part === "string" ? part : <code>{written(part)}</code>}</dd>
        </div>
      ))}
    </dl>
  );
}

const written = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

export function QuestionCard({ item, session }: CardProps) {
  const questions = questionsOf(item.content);
  const [given, setGiven] = useState<readonly (Answer | undefined)[]>([]);
  const answers = answersOf(questions, given);
  const send = (): void => {
    if (answers) session.client.answerQuestion(item.requestId, { answers });
  };
  const change = (at: number, how: (before: Answer) => Answer): void => setGiven(questions.map((_, each) => (each === at ? how(given[at] ?? NOTHING) : given[each])));
  const title = questions.length === 1 ? (questions[0] as Question).question : "The agent has questions";
  return (
    <Card item={item} icon={<QuestionIcon />} title={title} badge={stateBadge(item, ["answered", "good"])}>
      {isOpen(item) ? (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            send();
          }}
        >
          {questions.map((one, at) => (
            <Choices
              key={at}
              question={one}
              alone={questions.length === 1}
              given={given[at] ?? NOTHING}
              onChoose={(label, on) => change(at, (before) => choose(one, before, label, on))}
              onOwn={(words) => change(at, (before) => write(one, before, words))}
            />
          ))}
          <div class="card-actions">
            <Button kind="primary" type="submit" icon={<CheckIcon />} aria-disabled={!answers} data-testid="question-answer">
              Answer
            </Button>
          </div>
        </form>
      ) : item.status === "expired" ? (
        OVER
      ) : (
        <Answered answer={item.answer} questions={questions} />
      )}
    </Card>
  );
}

interface ChoicesProps {
  question: Question;
  alone: boolean;
  given: Answer;
  onChoose: (label: string, on: boolean) => void;
  onOwn: (words: string) => void;
}

function Choices({ question, alone, given: { chosen, own }, onChoose, onOwn }: ChoicesProps) {
  const id = useId();
  return (
    <fieldset class="choices">
      <legend class={alone ? "sr-only" : undefined}>{question.question}</legend>
      {question.options.map((option, at) => (
        <label key={at} class="choice">
          <input
            type={question.multiSelect ? "checkbox" : "radio"}
            name={id}
            checked={chosen.includes(option.label)}
            data-testid="question-option"
            value={option.label}
            onChange={(event) => onChoose(option.label, event.currentTarget.checked)}
          />
          <span>
            {option.label}
            {option.description ? <small>{option.description}</small> : null}
          </span>
        </label>
      ))}
      <label class="choice-own">
        <span class="sr-only">Your own answer to: {question.question}</span>
        <input type="text" class="field" placeholder={question.options.length ? "or in your own words" : "your answer"} value={own} data-testid="question-text" onInput={(event) => onOwn(event.currentTarget.value)} />
      </label>
    </fieldset>
  );
}

function Answered({ answer, questions }: { answer: Json | undefined; questions: readonly Question[] }) {
  const given = answer?.answers ?? answer?.answer;
  if (given === undefined) return null;
  if (!isObject(given)) return <p class="card-answer">{written(given)}</p>;
  const entries = Object.entries(given);
  return (
    <dl class="given-list">
      {entries.map(([question, words]) => (
        <div key={question}>
          {questions.length > 1 || question !== questions[0]?.question ? <dt>{question}</dt> : null}
          <dd>{written(words)}</dd>
        </div>
      ))}
    </dl>
  );
}
