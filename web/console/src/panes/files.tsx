import type { PaneProps } from "../session/pane.ts";

export const FilesPane = ({ session }: PaneProps) => <p class="pane-stub">Files of {session.id}</p>;
