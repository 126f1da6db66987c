// Where the parts of the player meet: keys, events, buttons. A file registers what it has when it is read, before
// anything is built; no part needs to know another.

const keyBindings = new Map(); // key -> { words, action }
const listeners = new Map(); // event -> actions
const figureTools = []; // figure -> a button for the corner of its card, or null
const actions = []; // what stands in the heading

/** A key of the whole page; `words` say what it does in the list of keys. Another name of it has no words. */
function bindKey(key, words, action) {
  keyBindings.set(key, { words, action });
}

/**
 * Events: "built" (everything stands), "step" (another step or lane is shown), "drawn" (and all its figures are),
 * "frames" (figures of the shown lane have come), "figure" (one figure or overview is drawn), "link" (hover or pin changed), "value" (something came from the server),
 * "resize" (the room for figures is another), "status" (the line about the run is written), "run" (another run is shown),
 * "lecture" (lecture mode has begun or ended), "stop" (a lesson is at another stop), "refused" (an addition to the run
 * was refused, with a sentence; the run is as it was).
 */
function on(event, action) {
  listeners.set(event, [...(listeners.get(event) || []), action]);
}

function tell(event, ...what) {
  for (const action of listeners.get(event) || []) action(...what);
}

/** A button in the corner of every figure's card: `make(figure)` gives it, or null. */
function addFigureTool(make) {
  figureTools.push(make);
}

/** A button in the heading; with `menu` it stands in a menu of that name. `shown()` is asked after every value. */
function addAction({ menu = null, label, title = '', press, shown = () => true }) {
  actions.push({ menu, label, title, press, shown });
}

function buildActions(box) {
  const menus = new Map();
  for (const action of actions) {
    action.button = set(button('dx-text', null, () => action.press(action.button), action.label), { title: action.title || null });
    if (!action.menu) {
      box.append(action.button);
      continue;
    }
    if (!menus.has(action.menu)) menus.set(action.menu, makeMenu(action.menu, box));
    menus.get(action.menu).append(action.button);
  }
  on('value', showActions);
}

function showActions() {
  for (const action of actions) action.button.hidden = !action.shown();
  for (const menu of parts.actions.querySelectorAll('.dx-menu')) {
    menu.hidden = [...menu.lastChild.children].every((item) => item.hidden);
  }
}

/** A button that opens a list of buttons; Escape, a choice or a click elsewhere closes it. */
function makeMenu(name, box) {
  const menu = el('div', 'dx-menu');
  const list = set(el('div', 'dx-menu-list'), { hidden: true, role: 'group', 'aria-label': name });
  const opener = set(button('dx-text', null, () => open(list.hidden), name + ' \u25be'), { 'aria-expanded': 'false' });
  const open = (shown) => {
    list.hidden = !shown;
    set(opener, { 'aria-expanded': shown ? 'true' : 'false' });
  };
  menu.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || list.hidden) return;
    event.stopPropagation();
    open(false);
    opener.focus();
  });
  list.addEventListener('click', () => open(false));
  document.addEventListener('click', (event) => { if (!menu.contains(event.target)) open(false); });
  menu.append(opener, list);
  box.append(menu);
  return list;
}
