// A long conversation in pages: one that is neither at the end nor near what is being read costs the browser nothing, and a
// change looks at one page, not at all items.
import { Component } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { SessionHandle } from "../house.ts";
import { Row } from "./items.tsx";
import type { Page } from "./paging.ts";

interface PageProps {
  page: Page;
  session: SessionHandle;
  /** The end of the conversation: it changes, and is nearly always visible. */
  tail: boolean;
}

export class PageRows extends Component<PageProps> {
  override shouldComponentUpdate(next: PageProps): boolean {
    const { page, session, tail } = this.props;
    const items = next.page.items;
    return session !== next.session || tail !== next.tail || items.length !== page.items.length || items.some((item, at) => item !== page.items[at]);
  }

  override render(props: PageProps) {
    return <Rows {...props} />;
  }
}

function Rows({ page, session, tail }: PageProps) {
  const element = useRef<HTMLDivElement>(null);
  const height = useRef(0);
  // Measured whenever it changes, so that it takes the same room when it is left out and nothing else moves. A layout effect:
  // those of children run before those of parents, and the conversation then knows how long it is.
  useLayoutEffect(() => {
    const box = element.current;
    if (!box) return;
    box.classList.remove("settled");
    if (tail) return;
    height.current = box.offsetHeight;
    box.style.containIntrinsicSize = `${height.current}px`;
    box.classList.add("settled");
  });
  useEffect(() => {
    const box = element.current;
    // It comes into view, and its height may have changed with the page's width.
    const seen = (event: Event & { skipped?: boolean }): void => {
      const frame = box?.closest(".chat-scroll");
      if (event.skipped || !box || !frame) return;
      const more = box.offsetHeight - height.current;
      if (Math.abs(more) < 1) return;
      if (box.getBoundingClientRect().top < frame.getBoundingClientRect().top) frame.scrollTop += more;
      height.current += more;
      box.style.containIntrinsicSize = `${height.current}px`;
    };
    box?.addEventListener("contentvisibilityautostatechange", seen);
    return () => box?.removeEventListener("contentvisibilityautostatechange", seen);
  }, []);
  return (
    <div class="chat-page" ref={element}>
      {page.items.map((item) => (
        <Row key={item.key} item={item} session={session} />
      ))}
    </div>
  );
}
