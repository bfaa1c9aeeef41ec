// The choice of a new session's provider and image: only what the gateway offers, and nothing if there is no choice.
import type { Signal } from "@preact/signals";
import { useId } from "preact/hooks";
import type { Provider } from "../api.ts";
import { providers } from "../house.ts";
import { imageWords, LEVEL, namedImages } from "../words.ts";

/** The chosen provider, or the default one; undefined: not known. */
export function providerOf(chosen: string | undefined): Provider | undefined {
  const known = providers.value;
  return known?.providers.find(({ name }) => name === chosen) ?? known?.providers.find(({ name }) => name === known.default);
}

export function Where({ chosen, image }: { chosen: Signal<string | undefined>; image: Signal<string> }) {
  const known = providers.value?.providers ?? [];
  const one = providerOf(chosen.value);
  const list = useId();
  if (!one) return null;
  return (
    <>
      {known.length > 1 ? (
        <fieldset class="labelled">
          <legend>Runs on</legend>
          <div class="segments">
            {known.map(({ name }) => (
              <label key={name} class="segment">
                <input type="radio" name="provider" value={name} checked={one.name === name} data-testid={`create-provider-${name}`} onChange={() => (chosen.value = name)} />
                <span>{name}</span>
              </label>
            ))}
          </div>
          <p class="help" data-testid="create-provider-help">
            {LEVEL[one.level] ?? one.level}
          </p>
        </fieldset>
      ) : null}
      {one.healthy ? null : (
        <p class="help bad" role="status" data-testid="create-provider-problem">
          {one.name} can start nothing right now: {one.problem}. A session there waits until it can.
        </p>
      )}
      {one.images.length ? (
        <label class="labelled">
          <span>
            Image <em>optional</em>
          </span>
          <input class="field mono" list={list} placeholder={one.image ?? ""} autocapitalize="off" spellcheck={false} value={image} data-testid="create-image" onInput={(event) => (image.value = event.currentTarget.value)} />
          <datalist id={list}>
            {namedImages(one).map((name) => (
              <option key={name} value={name} />
            ))}
          </datalist>
          <small class="help" data-testid="create-image-help">
            {imageWords(one)}
          </small>
        </label>
      ) : null}
    </>
  );
}
