// The "pull the plug" menu in a session's header, for gateways that allow it. Its code is loaded only there.
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { SessionHandle } from "./house.ts";

interface DemoProps {
  session: SessionHandle;
}

/** The header shows it where `me.value.demo` is true. */
export function DemoMenu({ session }: DemoProps) {
  const [Menu, setMenu] = useState<ComponentType<DemoProps>>();
  useEffect(() => {
    void import("./panes/plugs.tsx").then(
      (module) => setMenu(() => module.Plugs),
      () => {}, // a page without it works as well
    );
  }, []);
  return Menu ? <Menu session={session} /> : null;
}
