import type { ReadonlySignal } from "@preact/signals";
import type { SessionHandle } from "../house.ts";

/** The props of every pane beside the chat. A pane is mounted when it is first shown and then stays; `shown` says
 * whether it is visible now. */
export interface PaneProps {
  session: SessionHandle;
  shown: ReadonlySignal<boolean>;
}
