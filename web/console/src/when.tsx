// Times, in words that fit in a row.
import { signal } from "@preact/signals";

const now = signal(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 15_000);
document.addEventListener("visibilitychange", () => (now.value = Date.now()));

const absolute = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

export function agoInWords(at: number, from: number): string {
  const seconds = Math.max(0, (from - at) / 1000);
  if (seconds < 45) return "now";
  if (seconds < 3600) return `${Math.max(1, Math.round(seconds / 60))} min`;
  if (seconds < 86_400) return `${Math.round(seconds / 3600)} h`;
  if (seconds < 7 * 86_400) return `${Math.round(seconds / 86_400)} d`;
  return day.format(at);
}

/** How long ago, kept true. */
export function Ago({ at }: { at: string }) {
  const time = Date.parse(at);
  return Number.isNaN(time) ? null : (
    <time class="ago" dateTime={at} title={absolute.format(time)}>
      {agoInWords(time, now.value)}
    </time>
  );
}

/** The time of day; with the date where it was another day. */
export function At({ at }: { at: string }) {
  const time = Date.parse(at);
  if (Number.isNaN(time)) return null;
  const today = new Date(time).toDateString() === new Date().toDateString();
  return (
    <time class="ago" dateTime={at} title={absolute.format(time)}>
      {today ? clock.format(time) : `${day.format(time)}, ${clock.format(time)}`}
    </time>
  );
}
