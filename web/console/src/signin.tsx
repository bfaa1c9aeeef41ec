import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError } from "./api.ts";
import { arrive, signIn } from "./house.ts";
import { Button } from "./ui/button.tsx";
import { AlertIcon, KeyIcon } from "./ui/icons.tsx";
import { Mark } from "./ui/mark.tsx";

/** Nobody is known here. `over`: a link that was used, or too old, led here. `expired`: somebody was known until now. */
export function SignIn({ over, expired }: { over: boolean; expired: boolean }) {
  const token = useSignal("");
  const error = useSignal<string | undefined>(undefined);
  const busy = useSignal(false);

  useEffect(() => {
    // A link that was opened elsewhere signs this tab in, too.
    const look = (): void => {
      if (!document.hidden) void arrive().catch(() => undefined);
    };
    document.addEventListener("visibilitychange", look);
    return () => document.removeEventListener("visibilitychange", look);
  }, []);

  const submit = async (): Promise<void> => {
    const given = token.value.trim().replace(/^Bearer\s+/i, "");
    if (!given) {
      error.value = "Paste a token first.";
      return;
    }
    busy.value = true;
    try {
      await signIn(given);
    } catch (cause) {
      error.value = wordsFor(cause);
    } finally {
      busy.value = false;
    }
  };
  return (
    <main class="signin" id="main">
      <div class="signin-card">
        <Mark size={44} />
        <h1>Sign in to Holdfast</h1>
        {over ? (
          <p class="notice tone-warn" role="alert" data-testid="signin-over">
            <AlertIcon />
            <span>That link was used already, or has expired. Each works once, for 10 minutes.</span>
          </p>
        ) : expired ? (
          <p class="notice tone-info" role="alert" data-testid="signin-expired">
            <AlertIcon />
            <span>Your sign-in has ended. Your text is kept: sign in and go on where you were.</span>
          </p>
        ) : null}
        <p>
          Run this where the gateway runs, and open the link that it prints:
        </p>
        <pre class="command" tabIndex={0}><code>holdfast url</code></pre>
        <form
          onSubmit={(event) => {
            event.preventDefault();
            void submit();
          }}
        >
          <label for="token">Or paste a token</label>
          <input
            id="token"
            class="field"
            type="password"
            autocomplete="off"
            spellcheck={false}
            value={token}
            aria-invalid={error.value ? "true" : undefined}
            aria-describedby="token-help"
            data-testid="token"
            onInput={(event) => {
              token.value = event.currentTarget.value;
              error.value = undefined;
            }}
          />
          <p id="token-help" class={error.value ? "help bad" : "help"} role={error.value ? "alert" : undefined} data-testid="signin-help">
            {error.value ?? <>A JWT, for example from <code>holdfast token</code>. It becomes a cookie that scripts cannot read.</>}
          </p>
          <Button kind="primary" type="submit" icon={<KeyIcon />} busy={busy.value} data-testid="signin-submit">
            Sign in
          </Button>
        </form>
      </div>
    </main>
  );
}

function wordsFor(cause: unknown): string {
  if (!(cause instanceof ApiError)) throw cause;
  if (cause.status === 401) return `This token is not accepted: ${cause.message}`;
  return cause.message;
}
