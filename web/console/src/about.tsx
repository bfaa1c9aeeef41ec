import { signal } from "@preact/signals";
import { me } from "./house.ts";
import { Dialog } from "./ui/dialog.tsx";

/** Whether it is shown. */
export const about = signal(false);

export function AboutDialog() {
  return (
    <Dialog title="About Holdfast" data-testid="about-dialog" onClose={() => (about.value = false)}>
      <p>Version {me.value?.version}</p>
      <p>Copyright 2026 the Holdfast authors, under the MIT licence.</p>
      <p>
        <a href="/licences.txt" target="_blank" rel="noreferrer" data-testid="about-licences">
          Licences of what others wrote and this page contains
        </a>
      </p>
    </Dialog>
  );
}
