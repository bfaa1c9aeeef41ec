import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { Button } from "./button.tsx";
import { CloseIcon } from "./icons.tsx";

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  /** Buttons of the last row. */
  actions?: ComponentChildren;
  /** With it the whole is a form: Enter submits. */
  onSubmit?: () => void;
  "data-testid"?: string;
}

/** A modal dialog for as long as it is rendered: the browser keeps the focus inside and gives it back; Escape and a press beside it close. */
export function Dialog({ title, onClose, children, actions, onSubmit, ...rest }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  const pressed = useRef<EventTarget | null>(null);
  const id = useId();
  useEffect(() => {
    const dialog = element.current;
    const before = document.activeElement;
    if (dialog && !dialog.open) {
      dialog.showModal();
      dialog.querySelector<HTMLElement>("[data-autofocus]")?.focus();
    }
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  const body = (
    <>
      <header class="dialog-head">
        <h2 id={id}>{title}</h2>
        <Button kind="quiet" icon={<CloseIcon />} aria-label="Close" onClick={onClose} />
      </header>
      <div class="dialog-body">{children}</div>
      {actions ? <footer class="dialog-foot">{actions}</footer> : null}
    </>
  );
  return (
    <dialog
      ref={element}
      class="dialog"
      aria-labelledby={id}
      {...rest}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onPointerDown={(event) => (pressed.current = event.target)}
      onClick={(event) => {
        if (event.target === element.current && pressed.current === element.current) onClose();
      }}
    >
      {onSubmit ? (
        <form
          class="dialog-frame"
          onSubmit={(event) => {
            event.preventDefault();
            onSubmit();
          }}
        >
          {body}
        </form>
      ) : (
        <div class="dialog-frame">{body}</div>
      )}
    </dialog>
  );
}
