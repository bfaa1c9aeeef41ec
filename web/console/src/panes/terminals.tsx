import type { PaneProps } from "../session/pane.ts";

export const TerminalsPane = ({ session }: PaneProps) => <p class="pane-stub">Terminals of {session.id}</p>;
