// Hover links and pins: a node's id is the same in the stream, the figures and the tables, so one token lights up
// everywhere. Nothing is redrawn for it: marks are laid over the pictures.

const pinsKept = new Map(); // lane|step -> the node that is pinned there: a step that one comes back to still has it

function hover(node) {
  if (state.hover === node) return;
  state.hover = node;
  showLinks();
}

function pin(node) {
  state.pin = node === null || state.pin === node ? null : node;
  const key = state.lane + '|' + state.step;
  if (state.pin === null) pinsKept.delete(key);
  else pinsKept.set(key, state.pin);
  showLinks();
}

on('run', () => pinsKept.clear());

/** Another step has other nodes; its own pin, if it has one, is found again. */
function recallPin() {
  state.pin = pinsKept.get(state.lane + '|' + state.step) ?? null;
}

function linkedNode() {
  return state.hover === null ? state.pin : state.hover;
}

/** The linked node, and those that hold the other bytes of its character, each with its class. */
function linkedNodes() {
  const node = linkedNode();
  if (node === null) return [];
  const told = detailsOf(node);
  return [...((told && told.kin) || []).map((each) => [each, 'kin']), [node, 'linked']];
}

function showLinks() {
  const node = linkedNode();
  const told = node === null ? null : detailsOf(node);
  const nodes = linkedNodes();
  for (const marked of root.querySelectorAll('.linked, .kin, .same')) marked.classList.remove('linked', 'kin', 'same');
  if (told) lightPlace(told.d);
  const view = laneViews.get(state.lane);
  const capsule = view && view.capsules.get(state.step);
  for (const [id, name] of nodes) {
    if (capsule) for (const token of capsule.children) if (token.dataset.node === id) token.classList.add(name);
  }
  for (const figure of boxes.values()) linkFigure(figure, nodes);
  tell('link');
}

/** One view: its cells, and what is laid over its picture. */
function linkFigure(figure, nodes = linkedNodes()) {
  for (const [id, name] of nodes) for (const cell of figure.rows.get(id) || []) cell.classList.add(name);
  ring(figure, nodes);
}

/** The same place of the output in every lane: so many positions behind the root of the step that is shown. */
function lightPlace(depth) {
  const here = laneViews.get(state.lane);
  if (!here || !here.ends.length) return;
  const position = startOf(here, state.step) - 1 + depth;
  for (const view of laneViews.values()) {
    const token = tokenAt(view, position);
    if (token) token.classList.add('same');
  }
}

function tokenAt(view, position) {
  const { ends, lane, capsules } = view;
  if (position < 0 || !ends.length || position >= ends[ends.length - 1]) return null;
  if (position < headOf(lane)) return view.stream.querySelectorAll('.given .dx-t, .prefill .dx-t')[position];
  const step = stepAt(view, position);
  return capsules.get(step).children[position - startOf(view, step)] || null;
}

/** A ring around the linked node and, fainter, around those that share its character. */
function ring(figure, nodes = linkedNodes()) {
  const node = linkedNode();
  const { box, plot, overlay, mark: way } = figure.sheet;
  overlay.replaceChildren();
  if (node === null || box.hidden || !plot._fullLayout) return;
  const { xaxis, yaxis } = plot._fullLayout;
  if (!xaxis || !yaxis) return;
  if (way === 'cross') return overlay.append(...bandsOf(plot.data || [], node, xaxis, yaxis));
  for (const [id, name] of nodes) {
    for (const [x, y, entry] of placesOf(plot.data || [], id)) {
      const mark = el('i', 'dx-ring ' + (name === 'kin' ? 'kin' : id === state.pin ? 'pinned' : ''));
      mark.style.left = xaxis._offset + xaxis.d2p(x) + 'px';
      mark.style.top = yaxis._offset + yaxis.d2p(y) + 'px';
      if (way === 'box') frameBox(mark, entry, Math.abs(xaxis.d2p(1) - xaxis.d2p(0)));
      overlay.append(mark);
    }
  }
}

/** Where nodes are boxes a frame around the box: half its width and height stand behind the node's id. */
function frameBox(mark, [, halfWidth, halfHeight], unit) {
  const [wide, high] = [halfWidth, halfHeight].map((half) => half * unit + 4);
  mark.classList.add('box');
  Object.assign(mark.style, { width: 2 * wide + 'px', height: 2 * high + 'px', margin: -high + 'px ' + -wide + 'px' });
}

function* placesOf(traces, node, which = 0) {
  const id = (entry) => String(Array.isArray(entry) ? entry[which] : which ? null : entry);
  for (const trace of traces) {
    const custom = trace.customdata;
    if (!Array.isArray(custom)) continue;
    for (let i = 0; i < custom.length; i += 1) {
      if (trace.type !== 'heatmap') {
        if (id(custom[i]) === node) yield [trace.x[i], trace.y[i], custom[i]];
        continue;
      }
      for (let j = 0; j < custom[i].length; j += 1) {
        if (id(custom[i][j]) === node) yield [trace.x ? trace.x[j] : j, trace.y ? trace.y[i] : i];
      }
    }
  }
}

/** Where points stand for pairs of nodes: a band along the row of the one, and along the column of the other. */
function bandsOf(traces, node, xaxis, yaxis) {
  const bands = [];
  const band = (axis, at) => {
    const [from, to] = [axis.d2p(at - 0.5), axis.d2p(at + 0.5)].sort((a, b) => a - b);
    const mark = el('i', 'dx-band' + (node === state.pin ? ' pinned' : ''));
    const across = axis === yaxis;
    const [start, length] = across ? ['top', 'height'] : ['left', 'width'];
    const [side, long] = across ? ['left', 'width'] : ['top', 'height'];
    const other = across ? xaxis : yaxis;
    mark.style[start] = axis._offset + from + 'px';
    mark.style[length] = to - from + 'px';
    mark.style[side] = other._offset + 'px';
    mark.style[long] = other._length + 'px';
    bands.push(mark);
  };
  const row = placesOf(traces, node, 0).next().value;
  const column = placesOf(traces, node, 1).next().value;
  if (row) band(yaxis, row[1]);
  if (column) band(xaxis, column[0]);
  return bands;
}

function afterZoom(figure) {
  ring(figure);
  if (figure.cursor) placeCursor(figure);
}
