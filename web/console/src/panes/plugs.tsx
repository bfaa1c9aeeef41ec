// "Pull the plug": cut something on purpose and watch that nothing is lost. Only where the gateway allows it.
import { type Signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { SessionHandle } from "../house.ts";
import { duration } from "./figures.ts";
import { PAUSE_SECONDS, type Plug, pull, type Run, type Terminal } from "./plug.ts";
import "./demo.css";
import { Button } from "../ui/button.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { CheckIcon, CloseIcon, PlugIcon } from "../ui/icons.tsx";
import { Menu } from "../ui/menu.tsx";

const PLUGS: Record<Plug, { title: string; hint: string; about: string }> = {
  cut: {
    title: "Cut the sockets",
    hint: "As if the Wi-Fi were gone",
    about: "The gateway drops every connection of this session, chat and terminals, without a word. The page comes back by itself and goes on at the very byte.",
  },
  "kill-agent": {
    title: "Kill the agent",
    hint: "SIGKILL, in the middle of whatever it does",
    about: "The agent's process is killed. Its unfinished answer is marked as interrupted; waiting messages go to the next process.",
  },
  "kill-bridge": {
    title: "Kill the bridge",
    hint: "The sandbox's end of the connection, with its terminals",
    about: "The program that connects the sandbox is killed, and the terminals' programs with it. The sandbox is started anew, the conversation and the files stay.",
  },
  "pause-store": {
    title: "Pause the store",
    hint: `For ${PAUSE_SECONDS} seconds`,
    about: `This session's writes wait ${PAUSE_SECONDS} seconds. Its messages stay on their way for that time, and none is shown as stored before it is.`,
  },
};

export function Plugs({ session }: { session: SessionHandle }) {
  const asked = useSignal<Plug | null>(null);
  const withMessages = useSignal(true);
  const pulled = useSignal<{ run: Signal<Run>; stop: () => void } | null>(null);
  useEffect(() => () => pulled.peek()?.stop(), []);

  const go = (): void => {
    const plug = asked.value;
    if (!plug) return;
    asked.value = null;
    pulled.value?.stop();
    pulled.value = pull(session, plug, withMessages.value);
  };
  return (
    <>
      <Menu
        button={{ kind: "quiet", icon: <PlugIcon />, children: <span class="demo-label">Pull the plug</span>, "aria-label": "Pull the plug", ...{ "data-testid": "demo-menu" } }}
        items={(Object.keys(PLUGS) as Plug[]).map((plug) => ({ label: PLUGS[plug].title, hint: PLUGS[plug].hint, onSelect: () => (asked.value = plug), "data-testid": `demo-${plug}` }))}
      />
      {asked.value ? (
        <Dialog
          title={PLUGS[asked.value].title}
          data-testid="demo-dialog"
          onClose={() => (asked.value = null)}
          onSubmit={go}
          actions={
            <>
              <Button onClick={() => (asked.value = null)}>Leave it in</Button>
              <Button kind="danger" type="submit" data-testid="demo-pull" data-autofocus>
                Pull it
              </Button>
            </>
          }
        >
          <p>{PLUGS[asked.value].about}</p>
          <label class="demo-choice">
            <input type="checkbox" checked={withMessages.value} data-testid="demo-messages" onChange={(event) => (withMessages.value = event.currentTarget.checked)} />
            <span>Send three messages meanwhile, and count what happens to them</span>
          </label>
        </Dialog>
      ) : null}
      {pulled.value ? (
        <Strip
          run={pulled.value.run}
          onClose={() => {
            pulled.value?.stop();
            pulled.value = null;
          }}
        />
      ) : null}
    </>
  );
}

function Strip({ run: { value: run }, onClose }: { run: Signal<Run>; onClose: () => void }) {
  const element = useRef<HTMLElement>(null);
  const now = useSignal(Date.now());
  useEffect(() => element.current?.showPopover(), []);
  useEffect(() => {
    if (run.over) return;
    const ticks = setInterval(() => (now.value = Date.now()), 100);
    return () => clearInterval(ticks);
  }, [run.over]);
  const last = run.steps.at(-1)?.at ?? 0;
  return (
    <section ref={element} popover="manual" class="demo-strip" aria-label="The result" data-testid="demo-strip" data-over={run.over} data-plug={run.plug}>
      <header class="demo-head">
        <PlugIcon />
        <strong>{PLUGS[run.plug].title}</strong>
        <span class="demo-time">{duration(run.over ? last : now.value - run.at)}</span>
        <Button kind="quiet" small icon={<CloseIcon />} aria-label="Close" data-testid="demo-close" onClick={onClose} />
      </header>
      <ol class="demo-steps" aria-live="polite">
        {run.steps.map((step, index) => (
          <li key={index} class={`tone-${step.tone}`}>
            <span class="demo-at">{(step.at / 1000).toFixed(1)} s</span> {step.words}
          </li>
        ))}
        {run.over ? null : (
          <li class="demo-waits">
            <span class="badge-dot moving" aria-hidden="true" /> {run.sent ? `${run.stored} of ${run.sent} messages stored` : "waiting for it to come back"}
          </li>
        )}
      </ol>
      {run.account ? <Verdict run={run} /> : null}
    </section>
  );
}

function Verdict({ run }: { run: Run }) {
  const found = run.account;
  if (!found) return null;
  const { sent, stored, lost, twice, waiting, refused, records, missing, surplus } = found;
  const clean = lost + twice + missing + surplus === 0;
  return (
    <div class={`demo-verdict ${clean ? "clean" : "broken"}`} data-testid="demo-verdict" data-clean={clean} role="status">
      {clean ? <CheckIcon /> : null}
      <ul>
        <li>{sent === 0 ? "No message was sent meanwhile." : counted([["sent", sent], ["stored", stored], ["lost", lost]], [["twice", twice], ["still waiting", waiting], ["refused", refused]])}</li>
        <li>
          {missing + surplus === 0
            ? `The page shows exactly what is stored: ${records.toLocaleString("en")} records.`
            : `The page and the ${records.toLocaleString("en")} stored records differ: ${missing} not shown, ${surplus} not stored.`}
        </li>
        {run.terminals.map((each) => (
          <li key={each.name}>{inWords(each)}</li>
        ))}
      </ul>
    </div>
  );
}

/** `Messages sent 3, stored 3, lost 0.`, and the others where there are any. */
function counted(always: [string, number][], perhaps: [string, number][]): string {
  return `Messages ${[...always, ...perhaps.filter(([, number]) => number > 0)].map(([word, number]) => `${word} ${number}`).join(", ")}.`;
}

function inWords({ name, how, before }: Terminal): string {
  const byte = (offset: number): string => `byte ${offset.toLocaleString("en")}`;
  if (how === null) return `Terminal ${name} was never away (${byte(before.offset)}).`;
  switch (how.how) {
    case "exactly":
      return `Terminal ${name} resumed exactly at ${byte(how.offset)}.`;
    case "redrawn":
      return `Terminal ${name} was at ${byte(before.offset)} and was redrawn: the rest was no longer there to replay.`;
    case "another":
      return `Terminal ${name} was at ${byte(before.offset)}; its program ended with the sandbox, and another one runs.`;
    default:
      return `Terminal ${name} was at ${byte(before.offset)} and is not back.`;
  }
}
