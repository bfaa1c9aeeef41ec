// What somebody has to know or do before a session can go on.
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { announce } from "../announce.tsx";
import { askEmpty, askVariables, keepDisk, resume, revive } from "../list/actions.tsx";
import type { SessionHandle } from "../house.ts";
import { fetched, type Pull, pullWords } from "../pull.ts";
import type { Tone } from "../ui/badge.tsx";
import { Button } from "../ui/button.tsx";
import { AlertIcon, DownloadIcon, InfoIcon, KeyIcon, PlayIcon, RetryIcon, SyncIcon } from "../ui/icons.tsx";
import { mayKeepDisk, queueWords } from "../words.ts";

export function Banner({ session }: { session: SessionHandle }) {
  const sandbox = session.sandbox.value;
  const because = sandbox.reason ? ` ${sentence(sandbox.reason)}` : "";
  const pull = session.pull.value;
  if (pull && sandbox.status === "starting") return <PullBar pull={pull} />;
  if (sandbox.queue) return <Bar tone={sandbox.queue.reason ? "warn" : "info"} text={queueWords(sandbox.queue)} />;
  switch (sandbox.status) {
    case "paused":
      return (
        <Bar tone="warn" text="Paused. What you send waits until it is resumed.">
          <Button small icon={<PlayIcon size={14} />} data-testid="banner-resume" onClick={() => void resume(sandbox)}>
            Resume
          </Button>
        </Bar>
      );
    case "error":
      return (
        <Bar tone="bad" text={`It could not be started.${because}`}>
          <Button small icon={<RetryIcon size={14} />} data-testid="banner-resume" onClick={() => void resume(sandbox)}>
            Try again
          </Button>
        </Bar>
      );
    case "needs_env":
      return (
        <Bar tone="warn" text="The gateway was restarted and no longer has this session's secret variables. Give them again to go on.">
          <Button small icon={<KeyIcon size={14} />} data-testid="banner-variables" onClick={() => askVariables(sandbox)}>
            Give variables
          </Button>
        </Bar>
      );
    case "unrestored":
      return (
        <Bar tone="bad" text={`Its files could not be restored.${because} They are not lost: nothing is overwritten meanwhile.`}>
          <Button small icon={<RetryIcon size={14} />} data-testid="banner-resume" onClick={() => void resume(sandbox)}>
            Try again
          </Button>
          {mayKeepDisk(sandbox) && (
            <Button small icon={<SyncIcon size={14} />} data-testid="banner-keep" onClick={() => void keepDisk(sandbox)}>
              Keep what is here
            </Button>
          )}
          <Button small kind="quiet" data-testid="banner-empty" onClick={() => askEmpty(sandbox)}>
            Begin empty
          </Button>
        </Bar>
      );
    case "archived":
      return (
        <Bar tone="plain" text="Archived: the conversation is kept, its files are not.">
          <Button small icon={<PlayIcon size={14} />} data-testid="banner-revive" onClick={() => void revive(sandbox)}>
            Revive
          </Button>
        </Bar>
      );
    default:
      return sandbox.sync?.degraded ? <Bar tone="warn" text={`Its files are older than they should be. ${sentence(sandbox.sync.degraded)}`} /> : null;
  }
}

const sentence = (text: string): string => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

function Bar({ tone, text, children }: { tone: Tone; text: string; children?: ComponentChildren }) {
  return (
    <div class={`banner tone-${tone}`} role="status" data-testid="banner">
      {tone === "plain" ? <InfoIcon /> : <AlertIcon />}
      <span>{text}</span>
      {children ? <span class="banner-actions">{children}</span> : null}
    </div>
  );
}

/** How far its image has come. It moves, so it is announced when it begins, and can be looked up then. */
function PullBar({ pull }: { pull: Pull }) {
  useEffect(() => announce(`Fetching the image ${pull.image}.`), [pull.image]);
  const share = fetched(pull);
  const known = share === undefined ? {} : { "aria-valuenow": Math.round(share * 100) };
  return (
    <div class="banner tone-info" data-testid="banner">
      <DownloadIcon />
      <span>{pullWords(pull)}</span>
      <div class="pull-bar" role="progressbar" aria-label="Fetching its image" aria-valuemin={0} aria-valuemax={100} {...known} data-testid="pull">
        <span class={share === undefined ? "unknown" : ""} style={{ inlineSize: `${(share ?? 1) * 100}%` }} />
      </div>
    </div>
  );
}
