/** Whether to come back after a connection ended, and when. Pure; the gateway's own clients follow the same table. */

export const FIRST_PAUSE = 250;
export const LONGEST_PAUSE = 15_000;
const HIDDEN_TIMES = 4;

/** Milliseconds before attempt number `attempt` (from 0), `random` in [0, 1): a random part of the pause, because
 * everybody else was cut off too. A hidden page may take longer. */
export function pause(attempt: number, random: number, hidden = false): number {
  const whole = Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** Math.min(attempt, 16));
  return Math.round(random * whole * (hidden && attempt > 1 ? HIDDEN_TIMES : 1));
}

// The same data would be sent again (RFC 6455), or the gateway says so itself.
const FINAL = [1000, 1002, 1003, 1007, 1009, 1010, 4400, 4403, 4404];

export function isFinal(code: number): boolean {
  return FINAL.includes(code);
}

/** The gateway's own text, if there is one. */
export function reasonOf(code: number, said?: string): string {
  return said || (code === 1006 ? "the connection was cut" : `closed with ${code}`);
}
