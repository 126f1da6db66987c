// Every picture as a table: what a pointer would be told, point by point in reading order. It is read from what Python
// built, so a view needs no second description, and a replay file holds nothing more.

const TABLES_KEPT = 'decoding-explorer.tables';
const FIRST_ROWS = 400;
const tableNames = new Set(keptHere(TABLES_KEPT, []).filter((name) => typeof name === 'string'));

/** What this browser kept under a name; `otherwise` where it keeps nothing, or something else than a list. */
function keptHere(key, otherwise) {
  try {
    const kept = JSON.parse(window.localStorage.getItem(key));
    return Array.isArray(kept) === Array.isArray(otherwise) && kept !== null ? kept : otherwise;
  } catch (error) {
    return otherwise;
  }
}

function keepHere(key, value) {
  try {
    window.localStorage.setItem(key, JSON.stringify(value));
  } catch (error) { /* a private window, or a file: the choice lasts as long as the page */ }
}

function asTable(figure) {
  return figure.kind === 'plotly' && tableNames.has(figure.name);
}

const ENTITIES = { amp: '&', lt: '<', gt: '>', quot: '"' };

/** A hover label as plain text: [what stands in bold at its start, the rest]. Only our own few tags are in it. */
function plainLabel(label) {
  const bare = (html) => html
    .replace(/<extra>.*?<\/extra>/g, '').replace(/<br>/g, '; ').replace(/<\/?[bi]>/g, '')
    .replace(/&(amp|lt|gt|quot);|&#(\d+);/g, (whole, name, code) => (name ? ENTITIES[name] : String.fromCodePoint(Number(code))))
    .replace(/%\u200b\{/g, '%{');
  const [, head, rest] = /^<b>(.*?)<\/b>([^]*)$/.exec(label) || [null, '', label];
  return [bare(head), bare(rest.replace(/^(<br>|[\s,:·]+)+/, ''))];
}

/** `%{x}`, `%{y}` and `%{customdata[2]}` in a hover template. */
function filledTemplate(template, trace, place) {
  return template.replace(/%\{(x|y|text|customdata)(?:\[(\d+)\])?(?::[^}]*)?\}/g, (whole, name, index) => {
    const found = (trace[name] || [])[place];
    const value = index === undefined ? found : (found || [])[Number(index)];
    return typeof value === 'number' ? value.toLocaleString('en', { maximumFractionDigits: 3 }) : String(value ?? '');
  });
}

function tickName(axis, value) {
  const at = axis && axis.ticktext ? (axis.tickvals || []).indexOf(value) : -1;
  return at < 0 ? null : plainLabel(String(axis.ticktext[at]))[1];
}

function firstOf(entry) {
  return Array.isArray(entry) ? entry[0] : entry;
}

/** Points that a pointer can find, as {label, node, row, column, order}. */
function* pointsOf(trace, layout) {
  const own = trace.customdata || [];
  if (trace.type === 'heatmap') {
    for (const [i, labels] of (trace.hovertext || []).entries()) {
      for (const [j, label] of labels.entries()) {
        const cell = { label, node: firstOf((own[i] || [])[j]), order: [i, j] };
        if (label) yield { ...cell, row: tickName(layout.yaxis, i), column: tickName(layout.xaxis, j) };
      }
    }
    return;
  }
  const bar = trace.type === 'bar';
  for (let i = 0; i < (trace.x || []).length; i += 1) {
    const label = trace.hovertemplate ? filledTemplate(trace.hovertemplate, trace, i) : (trace.hovertext || [])[i];
    const order = bar ? [trace.y[i], (trace.base || [])[i] || 0] : [i, 0];
    if (label) yield { label, node: firstOf(own[i]), row: bar ? tickName(layout.yaxis, trace.y[i]) : null, column: null, order };
  }
}

/** All points of a picture. Where some traces are of nodes, the others only repeat or decorate them. */
function pointsOfAll(data, layout) {
  const told = data.filter((trace) => trace.hoverinfo !== 'skip' && (trace.hovertext || trace.hovertemplate));
  const nodes = told.filter((trace) => trace.meta === 'nodes');
  const chosen = nodes.length ? nodes : told;
  const points = chosen.flatMap((trace) => [...pointsOf(trace, layout)].map((point, place) => ({
    ...point, order: nodes.length > 1 ? [Math.round(trace.x[place] - 0.3), -trace.y[place]] : point.order,
  })));
  const mixed = nodes.length > 1 || chosen.some((trace) => trace.type === 'bar');
  return mixed ? points.sort((one, other) => one.order[0] - other.order[0] || one.order[1] - other.order[1]) : points;
}

function isNode(figure, node) {
  return !figure.onpick && (Number.isInteger(node) || typeof node === 'string');
}

/** {columns, caption, rows}, as a view of kind "table" has them. */
function tableOfPlot(figure, common, frame) {
  const points = pointsOfAll(frame.data || [], merged(common.layout || {}, frame.layout || {}));
  const hasRow = points.some((point) => point.row !== null);
  const hasColumn = points.some((point) => point.column !== null);
  const rows = points.map((point) => {
    const [head, rest] = plainLabel(point.label);
    const node = isNode(figure, point.node) ? point.node : null;
    const cells = [{ t: head || rest, node, m: !figure.onpick && Boolean(head) }, { t: head ? rest : '' }];
    return [...(hasRow ? [{ t: point.row || '' }] : []), ...(hasColumn ? [{ t: point.column || '' }] : []), ...cells];
  });
  const columns = [...(hasRow ? [figure.onpick ? 'lane' : 'row'] : []), ...(hasColumn ? ['place'] : []), figure.onpick ? 'what' : 'token', 'in words'];
  return { columns, caption: frame.alt || common.alt || common.label, rows };
}

function drawAsTable(figure, common, frame) {
  const { columns, caption, rows } = tableOfPlot(figure, common, frame);
  const shown = figure.allRows ? rows : rows.slice(0, FIRST_ROWS);
  drawTable(figure, { ...common, columns }, { caption, rows: shown });
  if (shown.length === rows.length) return;
  const all = () => {
    figure.allRows = true;
    drawAsTable(figure, common, frame);
  };
  figure.table.append(button('dx-text', null, all, 'the first ' + shown.length.toLocaleString('en') + '; show all ' + rows.length.toLocaleString('en') + ' rows'));
}

function toggleTable(figure) {
  if (tableNames.has(figure.name)) tableNames.delete(figure.name);
  else tableNames.add(figure.name);
  keepHere(TABLES_KEPT, [...tableNames]);
  redrawFigure(figure);
}

/** Draw again what is shown, since how it is shown has changed. */
function redrawFigure(figure) {
  figure.drawn = null;
  if (figure.onpick) drawOverviews();
  else scheduleDraw();
}

addFigureTool((figure) => {
  const made = button('dx-text dx-table-tool', null, () => toggleTable(figure), 'as table');
  made.hidden = true;
  on('figure', (drawn) => {
    if (drawn !== figure) return;
    made.hidden = figure.kind !== 'plotly';
    set(made, { 'aria-pressed': tableNames.has(figure.name) ? 'true' : 'false' });
  });
  return made;
});
