// A long conversation in pages: one that is neither at the end nor near what is being read costs the browser nothing, and a
// change looks at one page, not at all items.
import type { Item } from "@holdfast/client";
import { Component, createRef } from "preact";
import type { SessionHandle } from "../house.ts";
import { Row } from "./items.tsx";

const PAGE = 40;

export interface Page {
  key: number;
  items: readonly Item[];
}

/** Items by their numbers, so that a page stays the same when others come before it; what has none is with what it follows. */
export function pagesOf(items: readonly Item[]): Page[] {
  const pages: { key: number; items: Item[] }[] = [];
  for (const item of items) {
    const last = pages.at(-1);
    const key = item.seq === undefined ? (last?.key ?? 0) : Math.floor(item.seq / PAGE);
    if (last && key <= last.key) last.items.push(item);
    else pages.push({ key, items: [item] });
  }
  return pages;
}

interface PageProps {
  page: Page;
  session: SessionHandle;
  /** The end of the conversation: what changes, and is nearly always to be seen. */
  tail: boolean;
}

export class PageRows extends Component<PageProps> {
  private element = createRef<HTMLDivElement>();

  override shouldComponentUpdate(next: PageProps): boolean {
    const { page, session, tail } = this.props;
    const items = next.page.items;
    return session !== next.session || tail !== next.tail || items.length !== page.items.length || items.some((item, at) => item !== page.items[at]);
  }

  override componentDidMount(): void {
    this.settle();
  }

  override componentDidUpdate(): void {
    this.settle();
  }

  /** Its height is known once it was laid out, so that leaving it out moves nothing. */
  private settle(): void {
    const element = this.element.current;
    if (!element || element.classList.contains("settled") === !this.props.tail) return;
    if (!this.props.tail) element.style.containIntrinsicSize = `auto ${element.offsetHeight}px`;
    element.classList.toggle("settled", !this.props.tail);
  }

  override render({ page, session }: PageProps) {
    return (
      <div class="chat-page" ref={this.element}>
        {page.items.map((item) => (
          <Row key={item.key} item={item} session={session} />
        ))}
      </div>
    );
  }
}
