import type { PaneProps } from "../session/pane.ts";

export const LogsPane = ({ session }: PaneProps) => <p class="pane-stub">Logs of {session.id}</p>;
