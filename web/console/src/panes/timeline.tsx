import type { PaneProps } from "../session/pane.ts";

export const TimelinePane = ({ session }: PaneProps) => <p class="pane-stub">Timeline of {session.id}</p>;
