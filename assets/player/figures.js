// Draws what Python built: Plotly figures and tables, linked by node id. Knows no view by name.

let plotly = null; // the library, once loaded
let plotlyProblem = '';
const boxes = new Map(); // view name -> its place on the page
let drawing = false;
let drawAgain = false;
let drawTimer = null;
let aheadTimer = null;
const offstage = set(el('div', 'dx-offstage'), { 'aria-hidden': 'true', inert: true });

function loadPlotly() {
  const script = set(el('script'), { src: props.plotly, async: true });
  script.addEventListener('load', () => {
    plotly = window.Plotly;
    scheduleDraw();
    setTimeout(drawOverviews, 200); // the step that one looks at comes first
  });
  script.addEventListener('error', () => {
    plotlyProblem = 'The drawing library could not be loaded; reload the page to try again.';
    scheduleDraw();
  });
  document.head.append(script);
}

/** A drawn picture with its overlay. A figure has two: the one in sight, and one that holds the next step ready. */
function makeSheet() {
  const box = el('div', 'dx-sheet');
  const plot = set(el('div', 'dx-plot'), { role: 'img' });
  const overlay = set(el('div', 'dx-overlay'), { 'aria-hidden': 'true' });
  const scaled = el('div', 'dx-scaled');
  scaled.append(plot, overlay);
  box.append(scaled);
  return { box, scaled, plot, overlay, token: null, wired: false };
}

function makeFigure(name) {
  const box = set(el('figure', 'dx-figure'), { 'data-view': name });
  const scroller = set(el('div', 'dx-scroller'), { tabindex: 0, role: 'group' });
  const sheet = makeSheet();
  const table = el('div', 'dx-table');
  const note = el('p', 'dx-note');
  const legend = el('div', 'dx-legend');
  const tools = el('div', 'dx-tools');
  const more = set(el('p', 'dx-more'), { hidden: true });
  scroller.append(sheet.box, table);
  box.append(tools, scroller, more, note, legend);
  const figure = { name, box, scroller, sheet, spare: null, table, note, legend, tools, more, drawn: null, rows: new Map() };
  scroller.addEventListener('scroll', () => showMore(figure), { passive: true });
  tools.append(...figureTools.map((make) => make(figure)).filter(Boolean));
  return figure;
}

/** What goes on beyond the right edge fades out there, and a line says so. */
function showMore(figure) {
  const { scrollWidth, clientWidth, scrollLeft, scrollHeight, clientHeight } = figure.scroller;
  const wide = scrollWidth > clientWidth + 4;
  const long = !figure.table.hidden && scrollHeight > clientHeight + 4;
  const count = figure.table.querySelectorAll('tbody tr').length;
  const below = '\u2195 ' + (count ? count.toLocaleString('en') + ' rows; ' : '') + 'scroll for the rest';
  figure.more.hidden = !wide && !long;
  write(figure.more, [long ? below : '', wide ? '\u2194 scroll sideways for the rest' : ''].filter(Boolean).join(' \u00b7 '));
  figure.box.classList.toggle('more', scrollWidth - clientWidth - scrollLeft > 4);
}

function showLegend(figure, common) {
  const entries = common.legend || [];
  const key = JSON.stringify(entries);
  if (figure.legendKey === key) return;
  figure.legendKey = key;
  figure.legend.hidden = !entries.length;
  figure.legend.replaceChildren(...entries.map(([role, words]) => {
    const item = el('span', '', words);
    item.prepend(el('i', 'r-' + role));
    return item;
  }));
}

function showNote(figure, text) {
  write(figure.note, text);
  figure.note.hidden = !text;
}

const SQUEEZE = 0.88; // a picture may be this much narrower than it likes to be

/** Python says how wide a picture needs to be; on much less room than that it scrolls inside its card. */
function sized(figure, layout, least) {
  const room = figure.scroller.clientWidth / typeScale();
  return { ...layout, width: room < SQUEEZE * (Number(least) || 0) ? Number(least) : room, autosize: false };
}

async function drawPlot(figure, sheet, common, frame, uirevision) {
  const layout = sized(figure, merged(common.layout || {}, frame.layout || {}), frame.min_width || common.min_width);
  const config = { displayModeBar: false, doubleClick: 'reset', ...(common.config || {}), responsive: false };
  set(sheet.plot, { 'aria-label': frame.alt || common.alt || common.label || common.title });
  sheet.token = null;
  sheet.mark = frame.mark;
  scaleSheet(figure, sheet, layout);
  const draw = (how) => plotly.react(sheet.plot, { data: frame.data || [], layout: { ...how, uirevision }, config });
  await draw(layout);
  const roomy = withLegendRoom(sheet.plot, layout);
  if (roomy) {
    scaleSheet(figure, sheet, roomy);
    await draw(roomy);
  }
  if (!sheet.wired) wirePlot(figure, sheet);
}

const LEGEND_PAD = 12; // what plotly.js leaves between a legend and the plot

/** A legend above the picture wraps on little room: the picture grows by its rows instead of giving them its own. */
function withLegendRoom(plot, layout) {
  const { legend } = plot._fullLayout;
  if (!layout.showlegend || !legend || legend.orientation !== 'h' || legend.yanchor !== 'bottom' || !legend._height) return null;
  const { t: top } = layout.margin;
  const missing = Math.ceil(legend._height + LEGEND_PAD - top);
  if (missing <= LEGEND_PAD || !layout.height) return null;
  return { ...layout, height: layout.height + missing, margin: { ...layout.margin, t: top + missing } };
}

function wirePlot(figure, sheet) {
  sheet.wired = true;
  sheet.plot.on('plotly_relayout', () => afterZoom(figure));
  sheet.plot.on('plotly_click', (event) => (figure.onpick ? figure.onpick(event) : pin(nodeOf(event))));
  if (figure.onpick) return;
  sheet.plot.on('plotly_hover', (event) => hover(nodeOf(event)));
  sheet.plot.on('plotly_unhover', () => hover(null));
}

function nodeOf(event) {
  const point = event.points && event.points[0];
  const first = point && (Array.isArray(point.customdata) ? point.customdata[0] : point.customdata);
  return Number.isInteger(first) || typeof first === 'string' ? String(first) : null;
}

function drawTable(figure, common, frame) {
  const table = el('table');
  const body = el('tbody');
  if (frame.caption) table.append(el('caption', '', frame.caption));
  const head = el('tr');
  const first = (frame.rows || [])[0] || [];
  (common.columns || []).forEach((column, place) => {
    const cell = first[place] || {};
    head.append(set(el('th', cell.n || typeof cell.bar === 'number' ? 'num' : '', column), { scope: 'col' }));
  });
  const thead = el('thead');
  thead.append(head);
  figure.rows = new Map();
  for (const cells of frame.rows || []) body.append(tableRow(figure, cells));
  table.append(thead, body);
  set(figure.scroller, { 'aria-label': common.title || figure.name });
  figure.table.replaceChildren(table);
}

function tableRow(figure, cells) {
  const row = el('tr');
  for (const cell of cells) {
    const box = el('td', cell.k ? String(cell.k).split(/\s+/).map((kind) => 'k-' + kind).join(' ') : '');
    box.append(el('span', 'dx-cell', cell.t));
    if (typeof cell.bar === 'number') {
      box.classList.add('num');
      const bar = el('i', 'dx-bar');
      bar.style.setProperty('--share', Math.max(0, Math.min(1, cell.bar)));
      box.append(bar);
    }
    if (cell.node !== null && cell.node !== undefined) box.dataset.node = cell.node;
    for (const id of [cell.node, ...(cell.lit || [])]) {
      if (id !== null && id !== undefined) figure.rows.set(String(id), [...(figure.rows.get(String(id)) || []), box]);
    }
    if (cell.title) box.title = cell.title;
    if (cell.m) box.classList.add('mono', ...(String(cell.t).length <= 12 ? ['short'] : []));
    if (cell.n) box.classList.add('num');
    row.append(box);
  }
  return row;
}

/** Lines of text with marked pieces: name first, then the text itself. */
function drawText(figure, common, frame) {
  const lines = el('div', 'dx-lines');
  if (frame.caption) lines.append(el('p', 'dx-caption', frame.caption));
  figure.rows = new Map();
  for (const line of frame.lines || []) {
    const text = el('p', 'dx-line');
    text.append(el('span', 'dx-line-name', line.name));
    for (const piece of line.pieces || []) text.append(textPiece(figure, piece));
    lines.append(text);
  }
  set(figure.scroller, { 'aria-label': common.title || figure.name });
  figure.table.replaceChildren(lines);
}

function textPiece(figure, piece) {
  const span = el('span', 'dx-piece' + (piece.k ? ' k-' + piece.k : ''), piece.t);
  if (piece.node !== null && piece.node !== undefined) {
    const node = String(piece.node);
    span.dataset.node = node;
    figure.rows.set(node, [...(figure.rows.get(node) || []), span]);
  }
  return span;
}

const FLAT = { table: drawTable, text: drawText }; // what needs no drawing library

function flatWay(figure) {
  return asTable(figure) ? drawAsTable : FLAT[figure.kind];
}

function tokenOf(figure, step) {
  const how = [asTable(figure), zoomOf(figure), isBrief(figure), figure.scroller.clientWidth];
  return [viewKey(state.lane, figure.name), step, ...how].join('|');
}

/** Draw one view at the current step; false where its data is still on its way. */
async function drawView(figure) {
  const key = viewKey(state.lane, figure.name);
  const frame = shownFrame(figure, frameAt(state.lane, figure.name, state.step));
  const common = commons.get(key);
  if (frame === undefined) return refused(figure, key);
  figure.kind = common ? common.kind : null;
  const token = tokenOf(figure, state.step);
  if (figure.drawn === token) return true;
  if (frame === null || !common) {
    figure.sheet.box.hidden = figure.table.hidden = true;
    showNote(figure, 'This step has nothing to show here.');
  } else if (flatWay(figure)) {
    figure.sheet.box.hidden = true;
    figure.table.hidden = false;
    figure.scroller.classList.add('tabular');
    showNote(figure, '');
    flatWay(figure)(figure, common, frame);
  } else {
    if (!plotly) return refused(figure, key);
    figure.scroller.classList.remove('tabular');
    figure.sheet.box.hidden = false;
    figure.table.hidden = true;
    showNote(figure, '');
    await showPlot(figure, common, frame, token, key);
  }
  figure.drawn = token;
  if (common) showLegend(figure, common);
  reserveHeight(figure, key);
  figure.box.classList.remove('waiting');
  linkFigure(figure);
  showMore(figure);
  tell('figure', figure);
  return true;
}

async function showPlot(figure, common, frame, token, key) {
  const ready = figure.spare;
  if (ready && ready.token === token) {
    figure.sheet.box.replaceWith(ready.box);
    offstage.append(figure.sheet.box);
    [figure.sheet, figure.spare] = [ready, figure.sheet];
    figure.sheet.box.hidden = false;
    return;
  }
  if (figure.sheet.token === token) return;
  await drawPlot(figure, figure.sheet, common, frame, key);
  figure.sheet.token = token;
}

/** While nothing else happens, draw the step that comes next out of sight: a key press then only swaps it in. */
function drawAhead() {
  clearTimeout(aheadTimer);
  aheadTimer = setTimeout(async () => {
    const step = state.step + state.direction;
    for (const name of visibleViews()) {
      if (drawing || drawAgain || isBusy() || step < 0 || step >= stepCount(state.lane)) return;
      await drawSpare(boxes.get(name), step);
      await new Promise((go) => setTimeout(go, 0));
    }
  }, 20);
}

async function drawSpare(figure, step) {
  const key = viewKey(state.lane, figure.name);
  const common = commons.get(key);
  const frame = shownFrame(figure, frames.get(key + '|' + step));
  if (!plotly || !common || !frame || FLAT[common.kind] || asTable(figure)) return;
  const token = tokenOf(figure, step);
  if (figure.spare && figure.spare.token === token) return;
  if (!figure.spare) {
    figure.spare = makeSheet();
    offstage.append(figure.spare.box);
  }
  const sheet = figure.spare;
  await drawPlot(figure, sheet, common, frame, key);
  sheet.token = token;
}

function refused(figure, key) {
  const sentence = refusals.get(key) || plotlyProblem;
  figure.drawn = null;
  figure.box.classList.toggle('waiting', !sentence);
  if (!sentence) {
    if (figure.sheet.box.hidden && figure.table.hidden) showNote(figure, 'Drawing \u2026');
    return false;
  }
  figure.sheet.box.hidden = figure.table.hidden = true;
  showNote(figure, sentence);
  return true;
}

/** Draws once the events that wait have been handled: a held-down key must not queue drawings. */
function scheduleDraw() {
  drawAgain = true;
  if (drawing || drawTimer !== null) return;
  drawTimer = setTimeout(drawNow, 0);
}

async function drawNow() {
  drawTimer = null;
  drawing = true;
  try {
    while (drawAgain) {
      drawAgain = false;
      await drawStep();
    }
  } finally {
    drawing = false;
  }
  drawAhead();
}

async function drawStep() {
  const { run, lane, step, theme } = state;
  if (!laneViews.has(lane)) return;
  let all = true;
  for (const name of visibleViews()) {
    if (!(await drawView(boxes.get(name)))) all = false;
    if (state.step !== step || state.lane !== lane) return; // overtaken: the next round draws the newer step
  }
  const same = state.run === run && state.lane === lane && state.step === step && state.theme === theme;
  if (!all || !same || !stepCount(lane)) return;
  root.dataset.drawnStep = step;
  tell('drawn');
}
