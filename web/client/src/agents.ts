/**
 * The agents that a session may have at a gateway, and why others are not available: for the page that creates a
 * session.
 */
import { Access, type AccessOptions } from "./access.ts";
import { isObject, words } from "./frames.ts";
import { browser, type Platform } from "./platform.ts";
import type { Agent } from "./types.ts";

/** `default` is the agent of a session that names none. Throws HoldfastError. */
export async function agents(options: AccessOptions & { platform?: Platform } = {}): Promise<{ agents: Agent[]; default: string }> {
  const said = await new Access(options, options.platform ?? browser).ask("GET", "/api/agents");
  const listed = Array.isArray(said.agents) ? said.agents.filter((each) => isObject(each) && words(each.name)) : [];
  return { agents: listed as Agent[], default: words(said.default) ?? "" };
}
