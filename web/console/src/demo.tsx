import type { SessionHandle } from "./house.ts";

/** The "pull the plug" menu in a session's header; the header shows it where `me.value.demo` is true. */
export const DemoMenu = ({ session }: { session: SessionHandle }) => <span hidden>{session.id}</span>;
