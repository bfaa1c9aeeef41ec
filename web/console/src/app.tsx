// The frame: the user, the sessions at the left, one of them at the right.
import { effect, signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { about, AboutDialog } from "./about.tsx";
import { Announcer } from "./announce.tsx";
import { ApiError } from "./api.ts";
import { credentials, CredentialsDialog } from "./credentials.tsx";
import { arrive, leftOnPurpose, me, sandboxes, signOut } from "./house.ts";
import { kept, own } from "./kept.ts";
import { ActionDialogs } from "./list/actions.tsx";
import { CreateDialog, startOne } from "./list/create.tsx";
import { creating, openCreate } from "./list/creating.ts";
import { SessionList } from "./list/view.tsx";
import { go, openId, takeWord } from "./route.ts";
import { narrow } from "./screen.ts";
import { SessionPage } from "./session/page.tsx";
import { SignIn } from "./signin.tsx";
import { chooseTheme, theme, themeChoice, type ThemeChoice } from "./theme.ts";
import { Button } from "./ui/button.tsx";
import { CloseIcon, InfoIcon, KeyIcon, MenuIcon, MoonIcon, PlusIcon, ScreenIcon, SignOutIcon, SunIcon } from "./ui/icons.tsx";
import { Mark } from "./ui/mark.tsx";
import { Menu } from "./ui/menu.tsx";
import { attempt, Toasts } from "./ui/toast.tsx";
import { unreadOf } from "./unread.ts";
import { nameOf } from "./words.ts";

const linkOver = takeWord("signin") === "over";
const unreachable = signal<string | undefined>(undefined);
const wasHere = signal<string | undefined>(undefined);

/** Ask who is signed in until there is an answer. */
export async function begin(): Promise<void> {
  for (let pause = 500; me.value === undefined; pause = Math.min(pause * 2, 8000)) {
    try {
      await arrive();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      unreachable.value = error.message;
      await new Promise((resolve) => setTimeout(resolve, error.retryAfter ? error.retryAfter * 1000 : pause));
    }
  }
}

// A user who signs in again comes back to the same place, even by a link that leads to the start page.
effect(() => {
  if (me.value) {
    const name = own("return", (wasHere.value = me.value.userId));
    const back = kept.get(name);
    if (back && !openId.peek()) go(back);
    kept.set(name, null);
  } else if (me.value === null && wasHere.peek() !== undefined && !leftOnPurpose.peek()) {
    kept.set(own("return", wasHere.peek() ?? ""), location.hash || null);
  }
});

effect(() => {
  const all = [...(sandboxes.value?.values() ?? [])];
  const open = all.find((one) => one.id === openId.value);
  const unread = all.filter((one) => one !== open || document.hidden).reduce((sum, one) => sum + unreadOf(one), 0);
  document.title = `${unread ? `(${unread}) ` : ""}${open ? `${nameOf(open)} · ` : ""}Holdfast`;
});

export function App() {
  return (
    <>
      <a class="skip" href="#main" onClick={skip}>
        Skip to the content
      </a>
      {me.value === undefined ? <Splash /> : me.value === null ? <SignIn over={linkOver && wasHere.value === undefined} expired={wasHere.value !== undefined && !leftOnPurpose.value} /> : <Shell key={me.value.userId} />}
      <Toasts />
      <Announcer />
    </>
  );
}

/** The address says which session is open, so it cannot also say where to jump. */
function skip(event: Event): void {
  event.preventDefault();
  const main = document.getElementById("main");
  main?.setAttribute("tabindex", "-1");
  main?.focus();
}

const Splash = () => (
  <main class="splash" id="main" aria-busy={!unreachable.value}>
    <Mark size={44} />
    {unreachable.value ? (
      <p role="alert" data-testid="unreachable">
        {unreachable} Trying again.
      </p>
    ) : null}
  </main>
);

const drawer = signal(false);

function Shell() {
  const id = openId.value;
  const side = useRef<HTMLElement>(null);
  const asDrawer = narrow.value && id !== null;
  const hidden = asDrawer && !drawer.value;
  const opener = useSignal<Element | null>(null);
  useEffect(() => {
    drawer.value = false;
  }, [id]);
  useEffect(() => {
    if (!asDrawer) return;
    if (drawer.value) {
      side.current?.querySelector<HTMLElement>("[data-drawer-close]")?.focus();
    } else if (opener.value instanceof HTMLElement) {
      opener.value.focus();
      opener.value = null;
    }
  }, [drawer.value, asDrawer]);
  // Ask now who opened it: once the page behind it is inert, nothing there has the focus any more.
  const open = (event: Event): void => {
    opener.value = event.currentTarget as Element;
    drawer.value = true;
  };
  const menuButton = asDrawer ? <Button kind="quiet" icon={<MenuIcon />} aria-label="Sessions" aria-expanded={drawer.value} data-testid="drawer" onClick={open} /> : null;
  return (
    <div class={`shell${asDrawer ? " with-drawer" : ""}${drawer.value ? " drawer-open" : ""}${id === null ? " at-home" : ""}`}>
      <aside
        class="side"
        ref={side}
        inert={hidden}
        aria-label="Sessions and settings"
        onKeyDown={(event) => {
          if (event.key === "Escape" && asDrawer) drawer.value = false;
        }}
      >
        <header class="side-head">
          <a class="brand" href="#" onClick={(event) => {
            event.preventDefault();
            go("");
          }}>
            <Mark />
            <span>Holdfast</span>
          </a>
          <ThemeMenu />
          <AccountMenu />
          {asDrawer ? <Button kind="quiet" icon={<CloseIcon />} aria-label="Close" data-drawer-close onClick={() => (drawer.value = false)} /> : null}
        </header>
        <SessionList onChosen={() => (drawer.value = false)} />
      </aside>
      {asDrawer && drawer.value ? <div class="scrim" onClick={() => (drawer.value = false)} /> : null}
      <div class="content" inert={asDrawer && drawer.value}>
        {id === null ? <Home /> : <SessionPage key={id} id={id} menuButton={menuButton} />}
      </div>
      {creating.value ? <CreateDialog onClose={() => (creating.value = false)} /> : null}
      <ActionDialogs />
      {about.value ? <AboutDialog /> : null}
      {credentials.value ? <CredentialsDialog /> : null}
    </div>
  );
}

const THEMES: readonly [ThemeChoice, string, typeof SunIcon][] = [
  ["system", "As the system", ScreenIcon],
  ["light", "Light", SunIcon],
  ["dark", "Dark", MoonIcon],
];

function ThemeMenu() {
  return (
    <Menu
      button={{ kind: "quiet", icon: theme.value === "dark" ? <MoonIcon /> : <SunIcon />, "aria-label": "Colours", "data-testid": "theme" }}
      items={THEMES.map(([choice, label, Icon]) => ({ label, icon: <Icon />, checked: themeChoice.value === choice, onSelect: () => chooseTheme(choice), "data-testid": `theme-${choice}` }))}
    />
  );
}

function AccountMenu() {
  const who = me.value;
  if (!who) return null;
  return (
    <Menu
      button={{ kind: "quiet", class: "account", icon: <span class="avatar" aria-hidden="true">{(who.email || who.userId).charAt(0).toUpperCase()}</span>, "aria-label": `Signed in as ${who.email}`, "data-testid": "account" }}
      items={[
        { label: who.email, hint: `Holdfast ${who.version}`, disabled: true, onSelect: () => {} },
        "line",
        { label: "Credentials", icon: <KeyIcon />, onSelect: () => (credentials.value = true), "data-testid": "credentials" },
        { label: "About Holdfast", icon: <InfoIcon />, onSelect: () => (about.value = true), "data-testid": "about" },
        { label: "Sign out", icon: <SignOutIcon />, onSelect: () => void attempt(signOut, "You are still signed in"), "data-testid": "sign-out" },
      ]}
    />
  );
}

function Home() {
  const known = sandboxes.value;
  const busy = useSignal(false);
  if (!known) return <main class="home" id="main" tabIndex={-1} aria-busy="true" />;
  const start = async (): Promise<void> => {
    busy.value = true;
    await startOne();
    busy.value = false;
  };
  return (
    <main class={`home${known.size ? " with-sessions" : ""}`} id="main" tabIndex={-1}>
      <div class="home-card">
        <Mark size={52} />
        <h1>{known.size === 0 ? "Start your first session" : "Choose a session, or start one"}</h1>
        <p>A sandbox with an agent to talk to and terminals to type in. It outlives every connection: close the laptop, come back, go on.</p>
        <Button kind="primary" class="button-big" icon={<PlusIcon />} busy={busy.value} data-testid="start" onClick={() => void start()}>
          Start a session
        </Button>
        <Button kind="quiet" small data-testid="start-with" onClick={openCreate}>
          with a repository, a network or variables
        </Button>
      </div>
    </main>
  );
}
