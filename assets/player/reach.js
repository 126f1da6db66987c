// What a pointer reaches, keys reach too: the nodes of a step, the views, and what scrolls inside its own frame.
// And what is seen is said: states and nodes in a live region of their own, apart from the narration.

let saidState = '';

/** Speaks politely; the narration has its own region and is spoken there. */
function speak(text) {
  write(parts.spoken, text);
}

on('built', () => {
  parts.spoken = set(el('p', 'dx-unseen'), { role: 'status', 'aria-live': 'polite', 'data-spoken': true });
  element.append(parts.spoken);
});

/** A state is said when it changes, not with every token; a place in line and a refusal whenever they change. */
on('status', (name, message) => {
  const words = STATE_WORDS[name] + (message ? ': ' + message : '');
  const key = name === 'running' || name === 'preparing' ? name : words;
  const first = saidState === '';
  if (key === saidState) return;
  saidState = key;
  if (!first) speak(words);
});

/** Nodes of the step that is shown, in reading order, each with what its hover label says. */
function nodesInSight() {
  const found = new Map();
  for (const name of visibleViews()) {
    const figure = boxes.get(name);
    const common = commons.get(viewKey(state.lane, name));
    const frame = shownFrame(figure, frameAt(state.lane, name, state.step));
    if (!frame || !common) continue;
    if (common.kind !== 'plotly') {
      for (const [node, cells] of figure.rows) if (!found.has(node)) found.set(node, cells[0].textContent);
      continue;
    }
    for (const point of pointsOfAll(frame.data || [], merged(common.layout || {}, frame.layout || {}))) {
      const node = point.node === null || point.node === undefined ? null : String(point.node);
      if (node !== null && !found.has(node)) found.set(node, plainLabel(point.label).filter(Boolean).join(': '));
    }
  }
  return found;
}

function walkNodes(by) {
  const found = nodesInSight();
  const ids = [...found.keys()];
  if (!ids.length) return speak('This step has no nodes to walk through.');
  const at = ids.indexOf(state.hover === null ? state.pin : state.hover);
  const node = ids[at < 0 ? (by > 0 ? 0 : ids.length - 1) : (at + by + ids.length) % ids.length];
  hover(node);
  for (const name of visibleViews()) showNode(boxes.get(name), node);
  speak(found.get(node));
}

/** Scroll a figure inside its frame, never the page, until the node can be seen. */
function showNode(figure, node) {
  const mark = asTable(figure) || figure.sheet.box.hidden ? (figure.rows.get(node) || [])[0] : figure.sheet.overlay.firstChild;
  if (!mark) return;
  const frame = figure.scroller.getBoundingClientRect();
  const place = mark.getBoundingClientRect();
  const room = 40;
  if (place.left < frame.left + room) figure.scroller.scrollLeft -= frame.left + room - place.left;
  else if (place.right > frame.right - room) figure.scroller.scrollLeft += place.right - frame.right + room;
  if (place.top < frame.top + room) figure.scroller.scrollTop -= frame.top + room - place.top;
  else if (place.bottom > frame.bottom) figure.scroller.scrollTop += place.bottom - frame.bottom + room;
}

function pinHovered() {
  if (state.hover !== null && state.hover !== state.pin) {
    pin(state.hover);
    speak('Pinned.');
  } else if (state.pin !== null) {
    pin(null);
    speak('Let go.');
  }
}

function nextView(by) {
  const others = viewsOf(state.lane).slice(1);
  if (!others.length) return;
  const open = visibleViews()[1];
  openTab(others[(others.indexOf(open) + by + others.length) % others.length]);
  speak(titleOf(visibleViews()[1]));
}

bindKey('j', 'the next node of the step, in every view', () => walkNodes(1));
bindKey('k', 'the node before', () => walkNodes(-1));
bindKey('Enter', 'pin the node, or let it go', pinHovered);
bindKey('v', 'the next view', () => nextView(1));
bindKey('V', 'the view before', () => nextView(-1));

const SCROLL_STEP = 60;
const SCROLL_KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** Plain arrows step; with Shift they scroll the frame that has the focus. */
function scrollByKey(event) {
  const frame = event.shiftKey && event.target.closest && event.target.closest('.dx-scroller, .dx-stream');
  const way = SCROLL_KEYS[event.key];
  if (!frame || !way || isTyping(event.target)) return;
  frame.scrollBy(way[0] * SCROLL_STEP, way[1] * SCROLL_STEP);
  event.preventDefault();
}

on('built', () => root.addEventListener('keydown', scrollByKey));
