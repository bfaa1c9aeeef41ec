// Small things that every pane says the same way.
import type { ComponentChildren } from "preact";
import { ApiError } from "../api.ts";
import { Button } from "../ui/button.tsx";
import { AlertIcon } from "../ui/icons.tsx";

/** What went wrong, as a sentence. */
export function reasonIn(error: unknown): string {
  const words = error instanceof ApiError || error instanceof Error ? error.message : String(error);
  const sentence = words.charAt(0).toUpperCase() + words.slice(1);
  return /[.!?]$/.test(sentence) ? sentence : `${sentence}.`;
}

/** There is nothing, and that is all right. */
export function Empty({ icon, title, children, ...rest }: { icon?: ComponentChildren; title: string; children?: ComponentChildren; "data-testid"?: string }) {
  return (
    <div class="pane-empty" {...rest}>
      {icon ? <span class="pane-empty-icon">{icon}</span> : null}
      <strong>{title}</strong>
      {children ? <div class="pane-empty-words">{children}</div> : null}
    </div>
  );
}

/** Something failed, and what one can do. */
export function Trouble({ children, onRetry, actions, ...rest }: { children: ComponentChildren; onRetry?: () => void; actions?: ComponentChildren; "data-testid"?: string }) {
  return (
    <div class="pane-trouble" role="alert" {...rest}>
      <AlertIcon />
      <span class="pane-trouble-words">{children}</span>
      {actions}
      {onRetry ? (
        <Button small onClick={onRetry}>
          Try again
        </Button>
      ) : null}
    </div>
  );
}
