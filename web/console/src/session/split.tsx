import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { kept } from "../kept.ts";

const LEAST = 25;
const MOST = 75;
const clamp = (percent: number): number => Math.min(MOST, Math.max(LEAST, percent));

/** Two things side by side with a line between them that can be moved, by pointer and by arrow keys; remembered. */
export function Split({ left, right }: { left: ComponentChildren; right: ComponentChildren }) {
  const share = useSignal(clamp(Number(kept.get("split")) || 46));
  const frame = useRef<HTMLDivElement>(null);
  const moving = useSignal(false);
  useLayoutEffect(() => {
    frame.current?.style.setProperty("--share", `${share.value}%`);
  }, [share.value]);
  const put = (percent: number): void => {
    share.value = clamp(percent);
    kept.set("split", share.value.toFixed(1));
  };
  const onMove = (event: PointerEvent): void => {
    const box = frame.current?.getBoundingClientRect();
    if (moving.value && box) put(((event.clientX - box.left) / box.width) * 100);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const to = { ArrowLeft: share.value - 2, ArrowRight: share.value + 2, Home: LEAST, End: MOST }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    put(to);
  };
  return (
    <div class={`split${moving.value ? " moving" : ""}`} ref={frame}>
      {left}
      <div
        class="split-line"
        role="separator"
        aria-orientation="vertical"
        aria-label="Width of the conversation"
        aria-valuenow={Math.round(share.value)}
        aria-valuemin={LEAST}
        aria-valuemax={MOST}
        tabIndex={0}
        data-testid="split"
        onKeyDown={onKeyDown}
        onPointerDown={(event) => {
          event.currentTarget.setPointerCapture(event.pointerId);
          moving.value = true;
        }}
        onPointerMove={onMove}
        onPointerUp={() => (moving.value = false)}
        onPointerCancel={() => (moving.value = false)}
        onDblClick={() => put(46)}
      />
      {right}
    </div>
  );
}
