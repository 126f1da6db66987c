// The dialog behind "?": every key that a part of the player has bound, and what the words on the page mean.

const helpParts = {};
const KEY_SIGNS = {
  ArrowLeft: '\u2190', ArrowRight: '\u2192', ArrowUp: '\u2191', ArrowDown: '\u2193', ' ': 'space',
  PageUp: 'page up', PageDown: 'page down', Escape: 'escape',
};
const KEY_GROUPS = [
  ['Steps', (key) => ['ArrowLeft', 'ArrowRight', 'Home', 'End', ' ', 'PageUp', 'PageDown'].includes(key)],
  ['Lanes', (key) => ['ArrowUp', 'ArrowDown'].includes(key) || /^\d$/.test(key)],
  ['Everything else', () => true],
];

/** Keys with their words; a key without words is another one for what the key before it does. */
function keyRows() {
  const rows = [];
  for (const [key, { words }] of keyBindings) {
    if (words || !rows.length) rows.push({ keys: [key], words });
    else rows[rows.length - 1].keys.push(key);
  }
  return rows;
}

function keySign(key) {
  return KEY_SIGNS[key] || key;
}

function keyCell(keys) {
  const cell = el('dt');
  cell.append(el('kbd', '', keySign(keys[0])));
  if (keys.length > 1) cell.append(keys.length > 2 ? ' \u2026 ' : ' ', el('kbd', '', keySign(keys[keys.length - 1])));
  return cell;
}

function definitions(rows) {
  const list = el('dl', 'dx-help-list');
  for (const [term, words] of rows) list.append(term, el('dd', '', words));
  return list;
}

function keyPage() {
  const page = el('div');
  const left = new Set(keyRows());
  for (const [title, belongs] of KEY_GROUPS) {
    const rows = [...left].filter(({ keys }) => belongs(keys[0]));
    for (const row of rows) left.delete(row);
    if (rows.length) page.append(el('h3', '', title), definitions(rows.map(({ keys, words }) => [keyCell(keys), words])));
  }
  return page;
}

function wordPage() {
  const page = el('div');
  for (const [title, rows] of GLOSSARY) {
    page.append(el('h3', '', title), definitions(rows.map(([term, words]) => [el('dt', '', term), words])));
  }
  return page;
}

function buildHelp() {
  const dialog = set(el('dialog', 'dx-help'), { role: 'dialog', 'aria-labelledby': 'dx-help-title' });
  const head = el('div', 'dx-help-head');
  const tabs = set(el('div', 'dx-tabs'), { role: 'tablist', 'aria-label': 'Help' });
  const close = button('dx-help-close', 'Close', closeHelp, '\u00d7');
  const tour = button('dx-text', null, () => { closeHelp(); startTour(); }, 'take the tour of the page');
  head.append(set(el('h2', '', 'Help'), { id: 'dx-help-title' }), tabs, tour, close);
  helpParts.body = set(el('div', 'dx-help-body'), { tabindex: 0, role: 'tabpanel', id: 'dx-help-body' });
  helpParts.tabs = [['keys', 'Keys', keyPage], ['words', 'What the words mean', wordPage]].map(([name, label, make]) => {
    const tab = button('dx-tab', null, () => showHelp(name), label);
    set(tab, { role: 'tab', id: 'dx-help-' + name, 'aria-controls': 'dx-help-body' });
    tabs.append(tab);
    return { name, tab, make };
  });
  tabs.addEventListener('keydown', helpTabKey);
  dialog.append(head, helpParts.body);
  dialog.addEventListener('click', (event) => { if (event.target === dialog) closeHelp(); }); // beside the dialog
  dialog.addEventListener('close', helpClosed);
  helpParts.dialog = dialog;
  element.append(dialog);
}

function helpTabKey(event) {
  if (event.key !== 'ArrowLeft' && event.key !== 'ArrowRight') return;
  const other = helpParts.tabs.find(({ tab }) => tab.getAttribute('aria-selected') !== 'true');
  showHelp(other.name);
  other.tab.focus();
}

function showHelp(wanted) {
  for (const { name, tab, make } of helpParts.tabs) {
    const open = name === wanted;
    set(tab, { 'aria-selected': open ? 'true' : 'false', tabindex: open ? null : -1 });
    if (!open) continue;
    helpParts.body.replaceChildren(make());
    set(helpParts.body, { 'aria-labelledby': tab.id });
  }
  helpParts.body.scrollTop = 0;
}

function openHelp() {
  if (helpParts.dialog.open) return;
  helpParts.from = document.activeElement;
  if (playTimer !== null) stopPlay();
  showHelp('keys');
  helpParts.dialog.showModal();
  helpParts.tabs[0].tab.focus();
}

function closeHelp() {
  helpParts.dialog.close();
}

/** Escape closes a dialog by itself: this is the one place that hears of every way out. */
function helpClosed() {
  const { from } = helpParts;
  if (from && from.isConnected && from !== document.body) from.focus();
}

on('built', () => {
  buildHelp();
  const opener = button('dx-help-open', 'Keys and words (?)', openHelp, '?');
  opener.title = 'Keys and words (?)';
  parts.at.append(opener);
});

bindKey('?', 'this list, and what the words mean', openHelp);
