// How large pictures are drawn: as large as the page's type, times what the viewer chose. It survives stepping.

const ZOOM_LEVELS = [0.5, 0.7, 1, 1.4, 2, 2.8];
const TYPE_SIZE = 16; // pixels of a rem where nobody has asked for larger type

let typeScaleKnown = null;

/** How much larger than usual the page's type is: the browser's setting, times what the style sheets ask for. */
function typeScale() {
  if (typeScaleKnown === null) {
    const asked = Number(getComputedStyle(root).getPropertyValue('--dx-figure-scale')) || 1;
    typeScaleKnown = asked * (parseFloat(getComputedStyle(document.documentElement).fontSize) / TYPE_SIZE || 1);
  }
  return typeScaleKnown; // kept: to ask for it in every step would cost a layout
}

on('resize', () => { typeScaleKnown = null; });

function zoomOf(figure) {
  return ZOOM_LEVELS[figure.zoomLevel ?? ZOOM_LEVELS.indexOf(1)];
}

/** Plotly draws in its own pixels; a transform, which it understands, makes them larger or smaller. */
function scaleSheet(figure, sheet, layout) {
  const scale = typeScale() * zoomOf(figure);
  sheet.scaled.style.transform = scale === 1 ? '' : 'scale(' + scale + ')';
  sheet.box.style.width = scale === 1 ? '' : layout.width * scale + 'px';
  sheet.box.style.height = scale === 1 || !layout.height ? '' : layout.height * scale + 'px';
}

/** Room for the tallest step seen so far: what stands below must not jump from step to step. */
function reserveHeight(figure, key) {
  const height = tallest.get(isBrief(figure) ? key + '|brief' : key) || 0;
  figure.scroller.style.minHeight = height * typeScale() * zoomOf(figure) + 'px';
}

function zoomBy(figure, levels) {
  const now = ZOOM_LEVELS.indexOf(zoomOf(figure));
  const wanted = levels === 0 ? ZOOM_LEVELS.indexOf(1) : Math.max(0, Math.min(ZOOM_LEVELS.length - 1, now + levels));
  if (wanted === now) return;
  figure.zoomLevel = wanted;
  redrawFigure(figure);
}

function zoomTool(figure, label, sign, levels) {
  const made = button('dx-text dx-zoom-tool', label, () => zoomBy(figure, levels), sign);
  made.hidden = true;
  made.title = label + ' (double click: as before)';
  on('figure', (drawn) => {
    if (drawn !== figure) return;
    made.hidden = figure.kind !== 'plotly' || asTable(figure);
    made.disabled = zoomOf(figure) === ZOOM_LEVELS[levels < 0 ? 0 : ZOOM_LEVELS.length - 1];
  });
  return made;
}

const DOUBLE_MS = 400;

/** Told from presses: Plotly lays a cover over the page between press and release, so no double click arrives. */
function resetOnDoubleClick(figure) {
  let last = { timeStamp: -DOUBLE_MS };
  figure.scroller.addEventListener('pointerdown', (event) => {
    const near = Math.abs(event.clientX - last.clientX) + Math.abs(event.clientY - last.clientY) < 8;
    const soon = event.timeStamp - last.timeStamp < DOUBLE_MS;
    if (near && soon && figure.kind === 'plotly' && !asTable(figure)) zoomBy(figure, 0);
    last = event;
  }, true);
}

addFigureTool((figure) => zoomTool(figure, 'Smaller picture', '\u2212', -1));
addFigureTool((figure) => {
  resetOnDoubleClick(figure);
  return zoomTool(figure, 'Larger picture', '+', 1);
});
