// Figures of the whole run (timeline, race): drawn once; stepping only moves a cursor laid over them.

const overviews = new Map(); // name -> figure
let overviewTimer = null;
let overviewCost = 0; // ms of the last drawing: on a slow machine a live run must not wait for its pictures

function makeOverview(name) {
  const figure = makeFigure(name);
  figure.axis = null;
  figure.onpick = pickSpan;
  figure.sheet.box.hidden = true; // a picture without words until it is drawn
  overviews.set(name, figure);
  return figure;
}

function overviewKey(figure) {
  let steps = 0;
  for (const view of laneViews.values()) steps += view.ends.length;
  return [state.run, state.theme, figure.axis, steps, state.state === 'running'].join('|');
}

/** While a run decodes the pictures are renewed now and then only. */
function scheduleOverviews() {
  if (overviewTimer !== null && isBusy()) return;
  clearTimeout(overviewTimer); // one that waited for a live run must not hold up its end
  overviewTimer = setTimeout(async () => {
    overviewTimer = null;
    const start = performance.now();
    await drawOverviews();
    overviewCost = performance.now() - start;
  }, isBusy() ? Math.max(2500, 6 * overviewCost) : 0);
}

async function drawOverviews() {
  if (!plotly || !state.run || !laneViews.size) return;
  for (const figure of overviews.values()) await drawOverview(figure);
}

async function drawOverview(figure) {
  const key = overviewKey(figure);
  if (figure.asked !== key) {
    figure.asked = key;
    const answer = await ask('overview', { run: state.run, view: figure.name, theme: state.theme, axis: figure.axis });
    if (figure.asked !== key) return;
    figure.view = answer.ok ? answer.view : null;
    figure.drawn = null;
    showNote(figure, answer.ok ? '' : answer.error);
  }
  figure.kind = figure.view ? figure.view.kind : null;
  if (figure.view) figure.column.hidden = Boolean(figure.view.absent); // nothing of the sort in this run
  if (figure.column.hidden) return;
  const token = [key, asTable(figure), zoomOf(figure), figure.scroller.clientWidth].join('|');
  if (!figure.view || figure.drawn === token) return;
  const flat = flatWay(figure);
  figure.sheet.box.hidden = !!flat;
  figure.table.hidden = !flat;
  figure.scroller.classList.toggle('tabular', !!flat);
  if (flat) flat(figure, figure.view, figure.view);
  else await drawPlot(figure, figure.sheet, figure.view, figure.view, state.run + '|' + figure.axis);
  figure.drawn = token;
  showMore(figure);
  figure.cursor = figure.view.cursor || {};
  placeCursor(figure);
  tell('figure', figure);
}

function moveCursors() {
  for (const figure of overviews.values()) if (figure.cursor && figure.drawn) placeCursor(figure);
}

function placeCursor(figure) {
  const spans = figure.cursor[state.lane];
  const span = spans && spans[state.step];
  const { plot, overlay } = figure.sheet;
  const layout = plot._fullLayout;
  if (!span || !layout || !layout.xaxis) {
    overlay.replaceChildren();
    return;
  }
  const { xaxis, _size: size } = layout;
  const left = Math.max(0, Math.min(xaxis._length, xaxis.d2p(span[0])));
  const right = Math.max(0, Math.min(xaxis._length, xaxis.d2p(span[1])));
  const mark = overlay.firstChild || el('i', 'dx-cursor');
  mark.style.transform = 'translateX(' + (xaxis._offset + left) + 'px)';
  mark.style.width = Math.max(2, right - left) + 'px';
  mark.style.top = size.t + 'px';
  mark.style.height = size.h + 'px';
  if (!mark.parentNode) overlay.append(mark);
}

/** A point of such a picture carries [step or null, lane id, ...]. */
function pickSpan(event) {
  const point = event.points && event.points[0];
  const [step, lane] = point && Array.isArray(point.customdata) ? point.customdata : [];
  if (Number.isInteger(step) && laneViews.has(lane)) showStep(lane, step);
}
