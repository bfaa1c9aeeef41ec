// A terminal of xterm.js as a value that can be compared: cells, cursor, pages, modes, what was told to it.
const COLOUR = 0x3ffffff;
const UNDERLINE = 0x10000000;
const EXTENDED = 0x10000000;

// Bits that show: an indexed colour leaves bits of a true colour behind, and an underline says twice that it is there.
function colour(value) {
  const mode = value & 0x3000000;
  return mode === 0x3000000 ? value & COLOUR : mode ? mode | (value & 0xff) : 0;
}

function look(cell) {
  const line = cell.bg & EXTENDED ? cell.extended : undefined;
  const style = cell.fg & UNDERLINE ? (line && line.underlineStyle) || 1 : 0;
  const fg = (cell.fg & ~COLOUR) >>> 26;
  const bg = ((cell.bg & ~COLOUR & ~EXTENDED) >>> 26);
  return [colour(cell.fg), fg, colour(cell.bg), bg, style, style && line ? colour(line.underlineColor) : 0].join();
}

function row(line, cols) {
  const cells = [];
  let last = 0;
  let cell = line.loadCell(0, {});
  for (let x = 0; x < cols; x++) {
    const before = x ? line.getWidth(x - 1) : 0;
    cell = line.loadCell(x, cell);
    let width = line.getWidth(x);
    const chars = line.getString(x);
    if (!width && !chars && before !== 2) width = 1; // half of a wide character that is gone shows as nothing
    const shown = chars + '|' + width + '|' + look(cell);
    cells.push(shown);
    if (shown !== '|1|0,0,0,0,0,0') last = x + 1;
  }
  return (line.isWrapped ? '+' : ' ') + cells.slice(0, last).join('\u241f');
}

function charset(set) {
  return set ? JSON.stringify(set) : '';
}

function page(buffer, cols, rows, active) {
  const lines = [];
  for (let y = 0; y < buffer.lines.length; y++) lines.push(row(buffer.lines.get(y), cols));
  const saved = {...buffer.savedCurAttrData, extended: undefined};
  return {
    lines,
    base: buffer.ybase,
    region: [buffer.scrollTop, buffer.scrollBottom],
    tabs: Object.keys(buffer.tabs).map(Number).filter(x => x < cols && buffer.tabs[x]),
    // Saved below the last row, as what was thrown away makes possible, is the same as on it.
    saved: [Math.min(buffer.savedX, cols - 1), Math.min(buffer.savedY, Math.max(buffer.lines.length, rows) - 1), look(saved), charset(buffer.savedCharset)],
    cursor: active ? [buffer.x, buffer.y] : null,
  };
}

// All of a terminal that a picture has to bring back, by way of its core.
export function dump(core) {
  const {normal, alt, active} = core.buffers;
  const {cols, rows} = core;
  const input = core._inputHandler;
  const sets = core._charsetService;
  const modes = {...core.coreService.decPrivateModes, synchronizedOutput: undefined};
  const pages = {normal: page(normal, cols, rows, active === normal)};
  pages.alternate = active === alt ? page(alt, cols, rows, true) : {saved: page(alt, cols, rows, false).saved};
  return {
    cols, rows, ...pages,
    alternateIsOn: active === alt,
    pen: look({...input._curAttrData, bg: input._curAttrData.bg, extended: input._curAttrData.extended}),
    underline: colour(input._curAttrData.extended.underlineColor),
    charset: [sets.glevel, charset(sets.charset), ...[0, 1, 2, 3].map(n => charset(sets._charsets[n]))],
    join: (input._parser.precedingJoinState >> 1) & 3,
    modes, insert: core.coreService.modes.insertMode, hidden: core.coreService.isCursorHidden,
    mouse: [core.coreMouseService.activeProtocol, core.coreMouseService.activeEncoding],
    options: [core.optionsService.rawOptions.convertEol, core.optionsService.rawOptions.cursorBlink],
    title: input._windowTitle,
    state: input._parser.currentState,
  };
}
