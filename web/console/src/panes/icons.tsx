// Icons that only the panes need: the same strokes as the page's own.
import type { ComponentChildren } from "preact";

const icon = (children: ComponentChildren) => ({ size = 16, class: name = "" }: { size?: number; class?: string }) => (
  <svg class={`icon ${name}`} width={size} height={size} viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
    {children}
  </svg>
);

export const PasteIcon = icon(<><path d="M10.5 3h1.6c.5 0 .9.4.9.9v9.2c0 .5-.4.9-.9.9H3.9a.9.9 0 0 1-.9-.9V3.9c0-.5.4-.9.9-.9h1.6" /><path d="M5.8 2.2h4.4v2H5.8z" /></>);
export const UpIcon = icon(<path d="m4 10 4-4 4 4" />);
export const OpenFolderIcon = icon(<path d="M1.8 12.6V3.9c0-.4.3-.7.7-.7h3.4l1.5 1.7h5c.4 0 .7.3.7.7v1.2M1.8 12.6l1.9-5.2c.1-.3.4-.5.7-.5h9.3c.5 0 .8.5.7.9l-1.7 4.8z" />);
export const BranchIcon = icon(<><circle cx="4.5" cy="3.5" r="1.6" /><circle cx="4.5" cy="12.5" r="1.6" /><circle cx="11.5" cy="5" r="1.6" /><path d="M4.5 5.1v5.8M11.5 6.6c0 2.6-3.4 2.4-6 3.4" /></>);
export const DiffIcon = icon(<path d="M8 2.5v6M5 5.5h6M5 12.5h6" />);
export const WrapIcon = icon(<path d="M2.5 4h11M2.5 8h8.3a2 2 0 0 1 0 4H8m1.6-1.7L7.9 12l1.7 1.7M2.5 12h2.4" />);
export const FollowIcon = icon(<path d="M8 2.5v8m-3.2-3L8 10.7l3.2-3.2M3 13.5h10" />);
