// The panel that explains one token of the step: the one that is hovered, else the pinned one, else the one that decided
// the step. Python says everything about it (explorer/figures/details.py); its height is reserved, so nothing jumps.

const tokenPanel = { fields: '', cells: new Map(), shown: '' };

/** What stands beside the views in every step; Python names them. */
function asidesOf(id) {
  const view = laneViews.get(id);
  return (view && view.lane.asides) || [];
}

function asideFrame(kind) {
  const name = asidesOf(state.lane).find((each) => each === kind);
  return name ? [frameAt(state.lane, name, state.step), commons.get(viewKey(state.lane, name))] : [null, null];
}

/** A card keeps its place while the steps of a new run are on their way; what it said of the run before is not shown. */
function showAside(card, kind, ready) {
  const here = asidesOf(state.lane).includes(kind);
  card.hidden = !here && !(isBusy() && card.dataset.run);
  if (ready) card.dataset.run = state.run;
  card.classList.toggle('blank', !ready && card.dataset.run !== state.run);
}

/** What is told of a node of the step that is shown; null while it is on its way. */
function detailsOf(node) {
  const frame = asideFrame('details')[0];
  return (frame && frame.nodes && frame.nodes[node]) || null;
}

/** A card beside the views; the first one makes the place for all. */
function makeAside(name, title) {
  if (!parts.asides) {
    parts.asides = el('div', 'dx-asides');
    parts.panels.after(parts.asides);
  }
  const card = set(el('section', 'dx-card dx-' + name), { 'data-aside': name, 'aria-label': title, hidden: true });
  const head = el('div', 'dx-aside-head');
  head.append(el('h3', '', title));
  card.append(head);
  parts.asides.append(card);
  return [card, head];
}

function buildDetails() {
  const [card, head] = makeAside('details', 'Token');
  const panel = tokenPanel;
  panel.card = card;
  panel.hint = el('span', 'dx-hint');
  head.append(panel.hint);
  const lead = el('div', 'dx-d-lead');
  panel.token = el('strong', 'dx-d-token');
  panel.status = el('span', 'dx-d-status');
  panel.part = el('span', 'dx-d-part');
  lead.append(panel.token, panel.status, panel.part);
  panel.why = set(el('p', 'dx-d-why'), { 'data-why': true });
  panel.numbers = el('dl', 'dx-d-numbers');
  panel.best = el('div', 'dx-d-best');
  panel.after = el('p', 'dx-d-after');
  panel.actions = el('div', 'dx-d-actions');
  panel.meaning = el('details', 'dx-d-meaning');
  const left = el('div', 'dx-d-left');
  left.append(lead, panel.why, panel.numbers, panel.meaning);
  const right = el('div', 'dx-d-right');
  right.append(panel.best, panel.after);
  const body = el('div', 'dx-d-body');
  body.append(left, right);
  card.append(body, panel.actions);
}

/** The numbers that this lane's nodes have, in a grid that stays; and once, what each means. */
function layOutFields(fields) {
  const panel = tokenPanel;
  const key = JSON.stringify(fields);
  if (panel.fields === key) return;
  panel.fields = key;
  panel.cells.clear();
  const meanings = el('dl');
  panel.numbers.replaceChildren(...fields.map(([name, label, meaning]) => {
    const cell = set(el('div'), { title: meaning });
    const value = el('dd', '', '\u2013');
    cell.append(el('dt', '', label), value);
    panel.cells.set(name, value);
    meanings.append(el('dt', '', label), el('dd', '', meaning));
    return cell;
  }));
  panel.meaning.replaceChildren(el('summary', '', 'What the numbers mean'), meanings);
}

function chosenNode(frame) {
  for (const node of [state.hover, state.pin]) if (node !== null && frame.nodes[node]) return node;
  return frame.key;
}

function hintFor(node) {
  if (node === state.hover && node !== state.pin) return 'click, or Enter, to pin it';
  if (node === state.pin) return 'pinned; Escape lets go';
  return 'the one that decided this step; hover another, or walk with j and k';
}

function showDetails() {
  const panel = tokenPanel;
  const [frame, common] = asideFrame('details');
  if (!panel.card) return;
  showAside(panel.card, 'details', frame);
  if (!frame || !common) return;
  layOutFields(common.fields || []);
  const node = chosenNode(frame);
  const told = frame.nodes[node];
  if (!told) return;
  write(panel.hint, hintFor(node));
  const key = [viewKey(state.lane, 'details'), state.step, node, state.pin].join('|');
  if (panel.shown === key) return;
  panel.shown = key;
  panel.card.dataset.shownNode = node;
  showTold(told);
  showActionsFor(node);
}

function showTold(told) {
  const panel = tokenPanel;
  write(panel.token, told.t);
  panel.token.className = 'dx-d-token r-' + told.k;
  panel.status.replaceChildren(el('i', 'r-' + told.k), document.createTextNode(told.s));
  write(panel.part, told.part || '');
  set(panel.part, { title: told.part || null });
  write(panel.why, told.why);
  for (const [name, cell] of panel.cells) {
    const value = told.v[name] === undefined ? '\u2013' : told.v[name];
    write(cell, value);
    set(cell, { title: value.length > 10 ? value : null });
    cell.parentNode.classList.toggle('none', value === '\u2013');
  }
  showBest(told);
}

/** The target's best tokens at this place, with the one that is looked at marked; and what it says after it. */
function showBest(told) {
  const panel = tokenPanel;
  const rows = told.here.map(([text, prob, share, own]) => {
    const row = el('li', own ? 'own' : '');
    const bar = el('i', 'dx-d-bar');
    bar.style.setProperty('--share', Math.max(0, Math.min(1, share)));
    row.append(el('span', 'dx-d-alt', text), bar, el('span', 'dx-d-prob', prob));
    if (own) row.append(el('span', 'dx-unseen', 'this token'));
    return row;
  });
  const list = el('ol');
  list.append(...rows);
  panel.best.replaceChildren(el('h4', '', rows.length ? 'The target here' : 'The target here: settled before'), list);
  panel.after.replaceChildren(...(told.after.length ? [el('b', '', told.then + ': ')] : []));
  for (const [text, prob] of told.after.slice(0, 3)) panel.after.append(el('em', 'tok', text), ' ' + prob + '  ');
}

/** Other parts may offer something to do with a pinned token. */
function showActionsFor(node) {
  const makers = typeof pinnedActions === 'undefined' ? [] : pinnedActions;
  tokenPanel.actions.replaceChildren();
  if (node === state.pin) for (const make of makers) make(node, tokenPanel.actions);
}

on('built', buildDetails);
for (const event of ['step', 'link', 'frames', 'run']) on(event, showDetails);
