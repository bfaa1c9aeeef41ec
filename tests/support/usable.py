"""Whether everybody can use a page: it is looked through by axe."""

from typing import Any

from tests.support.console import Console
from tests.support.node import CLIENTS

AXE = CLIENTS / "node_modules" / "axe-core" / "axe.min.js"
# xterm.js draws its screen itself; only its text for screen readers is checked.
_LOOK = """async () => {
  const found = await axe.run({exclude: ['.xterm-rows', '.xterm-helpers']}, {resultTypes: ['violations']});
  return found.violations.map(({id, impact, nodes}) => ({id, impact, where: nodes.slice(0, 3).map(node => node.html)}));
}"""


async def serious(tab: Console) -> list[dict[str, Any]]:
    """Barriers for users. Nothing may be moving: in the middle of a fade every contrast is too low."""
    await tab.page.evaluate(AXE.read_text())
    found: list[dict[str, Any]] = await tab.page.evaluate(_LOOK)
    return [each for each in found if each["impact"] in ("serious", "critical")]
