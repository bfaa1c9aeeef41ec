/** The sign of the house, as in the browser's tab. */
export const Mark = ({ size = 24 }: { size?: number }) => (
  <svg class="mark" width={size} height={size} viewBox="0 0 32 32" aria-hidden="true">
    <rect width="32" height="32" rx="8" fill="#0b6e6e" />
    <path d="M9 6v20M23 6v20M9 16h14" stroke="#fff" stroke-width="4" stroke-linecap="round" fill="none" />
    <circle cx="16" cy="16" r="3.4" fill="#ffd479" />
  </svg>
);
