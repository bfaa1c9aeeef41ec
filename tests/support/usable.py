"""Whether everybody can use a page: it is looked through by axe."""

from typing import Any

from tests.support.console import Console
from tests.support.node import CLIENTS

AXE = CLIENTS / "node_modules" / "axe-core" / "axe.min.js"
# What xterm.js draws, it draws for itself; what it offers to screen readers is looked at.
_LOOK = """async () => {
  const found = await axe.run({exclude: ['.xterm-rows', '.xterm-helpers']}, {resultTypes: ['violations']});
  return found.violations.map(({id, impact, nodes}) => ({id, impact, where: nodes.slice(0, 3).map(node => node.html)}));
}"""


async def serious(tab: Console) -> list[dict[str, Any]]:
    """What somebody could not use. Nothing may be moving: in the middle of a fade every contrast is too low."""
    await tab.page.evaluate(AXE.read_text())
    found: list[dict[str, Any]] = await tab.page.evaluate(_LOOK)
    return [each for each in found if each["impact"] in ("serious", "critical")]
