// Words for what an agent did. Pure: whatever JSON it sent comes out as a string.

/** The name of a tool as it is shown. */
export const toolName = (name: unknown): string => (typeof name === "string" && name ? name : name === undefined || name === null || name === "" ? "a tool" : JSON.stringify(name));
