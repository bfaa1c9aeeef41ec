"""The extension with which pi asks, in pi's own language. pi itself asks for no permissions and has no question tool.
Pure.

Permissions and questions both use the host's choice dialog (`select`); the title says what it is about.
"""

PERMISSION, QUESTION = "holdfast:permission ", "holdfast:question "
ALLOW, DENY = "allow", "deny"
EXTENSION = (
    """\
const ASKED = new Set(["bash", "write", "edit"]);

export default function (pi: any) {
  pi.on("tool_call", async (event: any, context: any) => {
    if (!ASKED.has(event.toolName) || !context.hasUI) return undefined;
    const about = { toolName: event.toolName, toolInput: event.input, toolUseId: event.toolCallId };
    const choice = await context.ui.select("""
    f'"{PERMISSION}" + JSON.stringify(about), ["{ALLOW}", "{DENY}"]);\n'
    f'    if (choice === "{ALLOW}") return undefined;\n'
    """\
    return { block: true, reason: choice === undefined ? "Nobody answered." : "The user said no." };
  });
  pi.registerTool({
    name: "question",
    label: "Question",
    description: "Ask the user one question with a few options, and wait for the answer.",
    parameters: {
      type: "object",
      properties: {
        question: { type: "string" },
        options: {
          type: "array",
          items: {
            type: "object",
            properties: { label: { type: "string" }, description: { type: "string" } },
            required: ["label"],
          },
        },
      },
      required: ["question", "options"],
    },
    async execute(_id: string, given: any, _signal: any, _update: any, context: any) {
      const labels = given.options.map((option: any) => option.label);
      const answer = await context.ui.select("""
    f'"{QUESTION}" + JSON.stringify(given), labels);\n'
    """\
      return { content: [{ type: "text", text: `The user chose: ${answer ?? "nothing"}` }], details: {} };
    },
  });
}
"""
).encode()
