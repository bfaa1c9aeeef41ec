import type { ReadonlySignal } from "@preact/signals";
import type { SessionHandle } from "../house.ts";

/** What every pane beside the chat is given. A pane is mounted when it is first shown and then stays; `shown` says whether it is to be seen now. */
export interface PaneProps {
  session: SessionHandle;
  shown: ReadonlySignal<boolean>;
}
