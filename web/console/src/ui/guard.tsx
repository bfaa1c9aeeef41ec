// What cannot be drawn is said to be so, in its own place: the rest of the page goes on.
import { Component, type ComponentChildren } from "preact";
import { Button } from "./button.tsx";

export const UNSHOWN = "This could not be shown.";

export class Guard extends Component<{ children: ComponentChildren }, { failed: boolean }> {
  override state = { failed: false };

  override componentDidCatch(error: unknown): void {
    console.error(error);
    this.setState({ failed: true });
  }

  override render() {
    if (!this.state.failed) return this.props.children;
    return (
      <div class="pane-failed" role="alert" data-testid="unshown">
        <p>{UNSHOWN}</p>
        <Button onClick={() => this.setState({ failed: false })}>Try again</Button>
      </div>
    );
  }
}
