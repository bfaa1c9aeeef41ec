// The page's icons: 16 px strokes in the colour of the text around them. They say nothing to a screen reader; the words beside them do.
import type { ComponentChildren } from "preact";

interface IconProps {
  size?: number;
  class?: string;
}

const icon = (children: ComponentChildren) => ({ size = 16, class: name = "" }: IconProps) => (
  <svg class={`icon ${name}`} width={size} height={size} viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
    {children}
  </svg>
);

export const PlusIcon = icon(<path d="M8 3v10M3 8h10" />);
export const CloseIcon = icon(<path d="m4 4 8 8M12 4l-8 8" />);
export const CheckIcon = icon(<path d="m3 8.5 3.2 3.2L13 5" />);
export const DoubleCheckIcon = icon(<path d="m1.2 8.6 3 3 6.4-7M7.4 11.2l.5.4 6.9-7" />);
export const ClockIcon = icon(<><circle cx="8" cy="8" r="5.8" /><path d="M8 4.8V8l2.2 1.4" /></>);
export const SendIcon = icon(<path d="M8 13V3M3.8 7.2 8 3l4.2 4.2" />);
export const SteerIcon = icon(<path d="M2.5 12.500V9A3.500 3.500 0 0 1 6 5.500h7M10 2.500l3 3-3 3" />);
export const EditIcon = icon(<path d="m10.300 3.200 2.500 2.500L6 12.500l-3.200.7.7-3.200zM9 4.500 11.500 7" />);
export const RobotIcon = icon(<><rect x="3" y="5.500" width="10" height="7.500" rx="2" /><path d="M8 5.500V3M6 9v.8M10 9v.8" /></>);
export const StopIcon = icon(<rect x="4" y="4" width="8" height="8" rx="1.5" fill="currentColor" />);
export const MoreIcon = icon(<><circle cx="3.5" cy="8" r=".9" fill="currentColor" /><circle cx="8" cy="8" r=".9" fill="currentColor" /><circle cx="12.5" cy="8" r=".9" fill="currentColor" /></>);
export const MenuIcon = icon(<path d="M2.5 4.5h11M2.5 8h11M2.5 11.5h11" />);
export const BackIcon = icon(<path d="M10 3 5 8l5 5" />);
export const ChevronRightIcon = icon(<path d="m6 3.5 4.5 4.5L6 12.5" />);
export const ChevronDownIcon = icon(<path d="M3.5 6 8 10.5 12.5 6" />);
export const DownIcon = icon(<path d="M8 3v10M3.8 8.8 8 13l4.2-4.2" />);
export const SearchIcon = icon(<><circle cx="7" cy="7" r="4.3" /><path d="m10.3 10.3 3.2 3.2" /></>);
export const CopyIcon = icon(<><rect x="5.5" y="5.5" width="8" height="8" rx="1.6" /><path d="M10.5 3.2v-.1a1.1 1.1 0 0 0-1.1-1.1H3.6A1.6 1.6 0 0 0 2 3.6v5.8a1.1 1.1 0 0 0 1.1 1.1h.1" /></>);
export const PlayIcon = icon(<path d="M5 3.3v9.4l7.5-4.7z" />);
export const PauseIcon = icon(<path d="M5.5 3.5v9M10.5 3.5v9" />);
export const MoonIcon = icon(<path d="M13.2 9.6A5.7 5.7 0 0 1 6.4 2.8a5.7 5.7 0 1 0 6.8 6.8z" />);
export const SunIcon = icon(<><circle cx="8" cy="8" r="2.7" /><path d="M8 1.5v1.2M8 13.3v1.2M1.5 8h1.2M13.3 8h1.2M3.4 3.4l.9.9M11.7 11.7l.9.9M12.6 3.4l-.9.9M4.3 11.7l-.9.9" /></>);
export const ScreenIcon = icon(<><rect x="2" y="3" width="12" height="8" rx="1.4" /><path d="M5.5 13.5h5" /></>);
export const TrashIcon = icon(<path d="M2.8 4.5h10.4M6.3 4.3V2.8h3.4v1.5M4.2 4.5l.6 8.3a1 1 0 0 0 1 .9h4.4a1 1 0 0 0 1-.9l.6-8.3M6.8 7v4M9.2 7v4" />);
export const RetryIcon = icon(<><path d="M13.2 8A5.2 5.2 0 1 1 11.5 4.15" /><path d="M13.3 2v2.8h-2.8" /></>);
export const AlertIcon = icon(<><path d="M7.1 2.8 1.7 12a1 1 0 0 0 .9 1.5h10.8a1 1 0 0 0 .9-1.5L8.9 2.8a1 1 0 0 0-1.8 0z" /><path d="M8 6.3v3M8 11.4v.05" /></>);
export const InfoIcon = icon(<><circle cx="8" cy="8" r="5.8" /><path d="M8 7.4v3.4M8 5.2v.05" /></>);
export const PeopleIcon = icon(<><circle cx="6" cy="5.5" r="2.4" /><path d="M1.8 13c.2-2.3 1.9-3.7 4.2-3.7s4 1.4 4.2 3.7M10.6 3.3a2.3 2.3 0 0 1 0 4.4M12 9.6c1.300.5 2.1 1.7 2.2 3.4" /></>);
export const ChatIcon = icon(<path d="M2.5 4.2a1.4 1.4 0 0 1 1.4-1.4h8.2a1.4 1.4 0 0 1 1.4 1.4v5.2a1.4 1.4 0 0 1-1.4 1.4H7l-3.2 2.6v-2.6a1.4 1.4 0 0 1-1.3-1.4z" />);
export const TerminalIcon = icon(<><rect x="1.8" y="2.8" width="12.4" height="10.4" rx="1.5" /><path d="m4.5 6 2 2-2 2M8.3 10.2h3" /></>);
export const FolderIcon = icon(<path d="M1.9 4.3a1.1 1.1 0 0 1 1.1-1.1h3l1.5 1.7h5.5a1.1 1.1 0 0 1 1.1 1.1v5.7a1.1 1.1 0 0 1-1.1 1.1H3a1.1 1.1 0 0 1-1.1-1.1z" />);
export const FileIcon = icon(<path d="M9 2H4.6a1.1 1.1 0 0 0-1.1 1.1v9.8A1.1 1.1 0 0 0 4.6 14h6.8a1.1 1.1 0 0 0 1.1-1.1V5.5zM9 2v3.5h3.5" />);
export const LinkIcon = icon(<path d="M6.7 9.3a2.6 2.6 0 0 0 3.7 0l2.3-2.3A2.6 2.6 0 0 0 9 3.3l-.7.7M9.3 6.7a2.6 2.6 0 0 0-3.7 0L3.3 9A2.6 2.6 0 0 0 7 12.7l.7-.7" />);
export const DownloadIcon = icon(<path d="M8 2.5v7.3M4.7 6.8 8 10l3.3-3.2M2.8 13.3h10.4" />);
export const SyncIcon = icon(<><path d="M2.7 7A5.4 5.4 0 0 1 12 4.2l1.3 1.3M13.3 9A5.4 5.4 0 0 1 4 11.8l-1.3-1.3" /><path d="M13.5 2.7v2.8h-2.8M2.5 13.3v-2.8h2.8" /></>);
export const LogsIcon = icon(<path d="M2.5 3.5h11M2.5 6.5h7.5M2.5 9.5h11M2.5 12.5h5.5" />);
export const PlugIcon = icon(<path d="M5.8 2v3M10.2 2v3M4 5.2h8v2.3a4 4 0 0 1-8 0zM8 11.6V14" />);
export const SignOutIcon = icon(<path d="M6.5 2.8H3.8A1.3 1.3 0 0 0 2.5 4.1v7.8a1.3 1.3 0 0 0 1.3 1.3h2.7M10.3 11l3-3-3-3M13 8H6.3" />);
export const ShieldIcon = icon(<path d="M8 1.8 3 3.7v3.9c0 3.2 2.1 5.5 5 6.6 2.9-1.1 5-3.4 5-6.6V3.7z" />);
export const QuestionIcon = icon(<><circle cx="8" cy="8" r="5.8" /><path d="M6.3 6.3a1.7 1.7 0 1 1 2.5 1.5c-.5.3-.8.6-.8 1.2M8 11.1v.05" /></>);
export const BoxIcon = icon(<path d="M8 1.9 13.3 4.8v6.4L8 14.1l-5.3-2.9V4.8zM2.9 4.9 8 7.7l5.100-2.800M8 7.7v6.200" />);
export const KeyIcon = icon(<><circle cx="5" cy="11" r="2.6" /><path d="m6.9 9.1 6-6M10.6 5.4l1.9 1.9" /></>);
