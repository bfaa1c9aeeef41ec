// Numbers in the words people use. Pure.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** `1536` is `1.5 KiB`. */
export function size(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return unit === 0 ? `${value} B` : `${value.toFixed(value < 10 ? 1 : 0)} ${UNITS[unit]}`;
}

/** `63500` is `1 min 4 s`, `70` is `70 ms`. */
export function duration(ms: number): string {
  const whole = Math.max(0, ms);
  if (whole < 1000) return `${Math.round(whole)} ms`;
  if (whole < 60_000) return `${(whole / 1000).toFixed(whole < 9_950 ? 1 : 0)} s`;
  const minutes = Math.floor(whole / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.floor((whole % 60_000) / 1000)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** `1` is `1 file`, `2` is `2 files`. */
export function count(number: number, what: string, several = `${what}s`): string {
  return `${number.toLocaleString("en")} ${number === 1 ? what : several}`;
}

const timeOfDay = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });

/** The time of day, to the second, of 24 hours: these stand in columns. With the day if it was another one; of what is no time, "". */
export function clock(at: string | number, now = Date.now()): string {
  const when = new Date(at);
  if (Number.isNaN(when.getTime())) return "";
  const time = timeOfDay.format(when);
  return new Date(now).toDateString() === when.toDateString() ? time : `${day.format(when)} ${time}`;
}

/** The same with milliseconds. */
export function preciseClock(at: string | number, now = Date.now()): string {
  const time = clock(at, now);
  return time && `${time}.${String(new Date(at).getMilliseconds()).padStart(3, "0")}`;
}
