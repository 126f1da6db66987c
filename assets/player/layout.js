// What stands where, and the words around the pictures: headings, status line, panels, tabs.

function build() {
  const heading = el('div', 'dx-heading');
  parts.title = el('h2', '', 'Side by side');
  parts.hint = el('span', 'dx-hint');
  parts.status = el('div', 'dx-status'); // read on demand; reach.js says what changes
  parts.actions = el('div', 'dx-actions');
  buildActions(parts.actions);
  heading.append(parts.title, parts.hint, parts.actions);
  parts.lanes = el('div', 'dx-lanes');
  parts.inspect = buildInspect();
  root.classList.add('dx');
  element.replaceChildren(parts.status, heading, parts.lanes, parts.inspect, buildOverviews(), makeDeck(), offstage);
  placeSentence();
  tell('built');
}

const isWhole = () => !isBusy() && Boolean(state.value && state.value.lanes.length);

addAction({ label: 'whole text', title: 'Show all lines of each output', press: toggleWhole });
addAction({
  menu: 'save', label: 'recording (JSON)', title: 'The whole comparison as one file, to open here again',
  press: (pressed) => download(pressed, 'recording'), shown: isWhole,
});
addAction({
  menu: 'save', label: 'replay (HTML)', title: 'One file that plays this in a browser, with no server and no network',
  press: (pressed) => download(pressed, 'replay'), shown: () => Boolean(server.replay) && isWhole(),
});

/** The sentence stays in sight with the deck, however many lanes there are; on a phone it would take too much room. */
function placeSentence() {
  const wide = matchMedia('(min-width: 45.0625em)');
  const place = () => (wide.matches ? parts.deck.prepend(parts.say) : parts.panels.before(parts.say));
  wide.addEventListener('change', place);
  place();
}

function buildInspect() {
  const section = el('section', 'dx-inspect');
  const heading = el('div', 'dx-heading');
  parts.stepTitle = el('h2', '', '');
  heading.append(parts.stepTitle, el('span', 'dx-hint', 'hover a token to find it in every view, click to pin it'));
  parts.say = set(el('p', 'dx-say'), { 'data-narration': true, 'aria-live': 'polite' });
  parts.panels = el('div', 'dx-panels');
  parts.mainPanel = el('div', 'dx-card');
  parts.mainTitle = el('h3', '', '');
  parts.mainBody = el('div');
  parts.mainPanel.append(parts.mainTitle, parts.mainBody);
  parts.sidePanel = el('div', 'dx-card');
  parts.tabs = set(el('div', 'dx-tabs'), { role: 'tablist', 'aria-label': 'Views of this method' });
  parts.sideBody = el('div');
  parts.sidePanel.append(parts.tabs, parts.sideBody);
  parts.panels.append(parts.mainPanel, parts.sidePanel);
  section.append(heading, parts.panels);
  return section;
}

function buildOverviews() {
  const section = el('section', 'dx-overviews');
  const cards = [
    ['timeline', 'Where the time goes', "measured on the machine that ran it; each lane's own clock; a pass over a wide tree takes longer, so fewer passes need not be faster; click a span for its step", [['ms', 'step by step'], ['phases', 'by phase, a token']]],
    ['race', 'The race', 'tokens of output; a steeper line is ahead', [['passes', 'over target passes'], ['ms', 'over milliseconds']]],
    ['acceptance', 'Acceptance', 'counts: the same on every machine, whatever its speed', [['depth', 'by depth'], ['tested', 'by depth, where tested'], ['steps', 'step by step'], ['position', 'along the text']]],
    ['roofline', 'Cost model: other hardware', 'a model, not a measurement: filled marks were measured, open ones and lines are predictions', []],
    ['lanes', 'How the lanes differ', 'what each method needs, what was counted, and what was timed here', []],
    ['curves', 'What training bought', "each lane's drafter along its training, on text that it was not trained on", [['tokens', 'tokens per pass'], ['accuracy', 'accuracy']]],
  ];
  for (const [name, title, hint, axes] of cards) {
    const column = el('div');
    const heading = el('div', 'dx-heading');
    heading.append(el('h2', '', title), el('span', 'dx-hint', hint));
    const card = el('div', 'dx-card');
    const figure = makeOverview(name);
    figure.column = column;
    column.hidden = name === 'curves'; // until a lane has one
    if (axes.length) card.append(buildAxes(figure, axes));
    card.append(figure.box);
    column.append(heading, card);
    section.append(column);
  }
  return section;
}

function buildAxes(figure, axes) {
  const group = set(el('div', 'dx-tabs'), { role: 'group', 'aria-label': 'Horizontal axis' });
  const choices = axes.map(([axis, label]) => [axis, button('dx-tab', null, () => choose(axis), label)]);
  const choose = (axis) => {
    figure.axis = axis;
    for (const [name, made] of choices) set(made, { 'aria-pressed': name === axis ? 'true' : 'false' });
    drawOverviews();
  };
  for (const [, made] of choices) group.append(made);
  choose(axes[0][0]);
  return group;
}

function toggleWhole(pressed) {
  const on = parts.lanes.classList.toggle('whole');
  set(pressed, { 'aria-pressed': on ? 'true' : 'false' });
  scrollLanes();
}

/** What the server makes of the run, as a file; the text of the button says when it takes a while. */
async function download(pressed, what, more = {}) {
  const { textContent: label } = pressed;
  pressed.disabled = true;
  const waiting = setTimeout(() => write(pressed, 'making the file \u2026'), 400);
  const answer = await ask(what, { run: state.run, ...more });
  clearTimeout(waiting);
  write(pressed, label);
  pressed.disabled = false;
  if (!answer.ok) return showStatus(state.state, answer.error, null);
  keepFile(new Blob([answer.text], { type: FILE_TYPES[answer.name.split('.').pop()] }), answer.name);
}

const FILE_TYPES = { html: 'text/html', json: 'application/json', csv: 'text/csv' };

function keepFile(blob, name) {
  const link = set(el('a'), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** Panels and tabs of the selected lane. Boxes are kept: a figure that is drawn again keeps its zoom. */
function layOutViews() {
  const [main, ...others] = viewsOf(state.lane);
  const key = [main, ...others].join('|');
  const lane = laneViews.get(state.lane);
  parts.panels.hidden = !main;
  parts.sidePanel.hidden = !others.length;
  parts.panels.classList.toggle('single', !others.length);
  if (parts.laidOut !== key) {
    parts.laidOut = key;
    for (const name of [main, ...others]) if (name && !boxes.has(name)) boxes.set(name, makeFigure(name));
    parts.mainBody.replaceChildren(...(main ? [boxes.get(main).box] : []));
    parts.sideBody.replaceChildren(...others.map((name) => boxes.get(name).box));
    parts.tabs.replaceChildren(...others.map((name) => makeTab(name)));
    if (main) boxes.get(main).box.hidden = false;
  }
  if (main) sharePanels();
  const shown = visibleViews();
  for (const name of others) {
    const open = shown.includes(name);
    const figure = boxes.get(name);
    figure.box.hidden = !open;
    set(figure.tab, { 'aria-selected': open ? 'true' : 'false' });
  }
  for (const name of shown) set(boxes.get(name).scroller, { 'aria-label': titleOf(name) + (lane ? ', ' + lane.lane.title : '') });
  showTitles();
}

/** The wide panel is as wide as its widest picture wants, in three sizes, so that it seldom changes. */
function sharePanels() {
  const want = widest.get(viewKey(state.lane, viewsOf(state.lane)[0])) || 0;
  parts.panels.dataset.share = !want || want > 640 ? 'wide' : want > 430 ? 'even' : 'slim';
}

function titleOf(name) {
  const common = commons.get(viewKey(state.lane, name));
  return (common && common.title) || ((state.value && state.value.titles) || {})[name] || name[0].toUpperCase() + name.slice(1);
}

/** The tools of the open view stand on the last line of the tabs where both fit there. */
function placeTools() {
  const tabs = [...parts.tabs.children];
  const figure = visibleViews().slice(1).map((name) => boxes.get(name)).find((each) => each.tab);
  if (!tabs.length || !figure) return;
  const last = tabs[tabs.length - 1];
  const room = parts.tabs.getBoundingClientRect().right - last.getBoundingClientRect().right;
  const wanted = [...figure.tools.children].reduce((sum, tool) => sum + (tool.hidden ? 0 : tool.offsetWidth + 4), 0);
  parts.sidePanel.classList.toggle('roomy', wanted + 8 <= room);
}

on('drawn', placeTools);

function showTitles() {
  const [main, ...others] = viewsOf(state.lane);
  if (main) write(parts.mainTitle, titleOf(main));
  for (const name of others) if (boxes.get(name).tab) write(boxes.get(name).tab, titleOf(name));
}

function makeTab(name) {
  const figure = boxes.get(name);
  const id = 'dx-view-' + name;
  set(figure.box, { id, role: 'tabpanel' });
  figure.tab = set(button('dx-tab', null, () => openTab(name), titleOf(name)), { role: 'tab', 'aria-controls': id, 'data-tab': name });
  return figure.tab;
}

function openTab(name) {
  chosenTab.set(state.lane, name);
  delete root.dataset.drawnStep; // of the views in sight
  layOutViews();
  scheduleDraw();
  fetchAhead();
}

/** One line that is always there, so that nothing below it moves when a state ends. */
function showStatus(name, message, progress) {
  const shown = state.value;
  const words = [];
  if (message) words.push(message);
  else if (name === 'recorded' && shown && isExample(shown)) words.push('run on ' + shown.model + '; press Run for your own');
  else if (shown) words.push(...[shown.settings, shown.model].filter(Boolean));
  else words.push('No example is at hand; type a prompt and press Run.');
  set(parts.status, { 'data-kind': name });
  const items = [el('span', 'dx-state', name === 'recorded' && shown && isExample(shown) ? 'recorded example' : STATE_WORDS[name] || name)];
  if (!message && shown && !(name === 'recorded' && isExample(shown))) items.push(set(el('q', 'dx-prompt', oneLine(shown.prompt)), { title: shown.prompt.slice(0, 2000), dir: 'auto' }));
  const said = words.join(' \u00b7 ');
  items.push(set(el('span', 'dx-message', said), { title: said }));
  if (BUSY.has(name)) {
    items.push(set(el('progress', 'dx-progress'), { 'aria-label': 'Progress', max: 1, value: typeof progress === 'number' ? progress : null }));
  }
  parts.status.replaceChildren(...items);
  tell('status', name, message);
}

function isExample(value) {
  return value.run === 'example';
}

function oneLine(text) {
  return text.slice(0, 300).replace(/[\s\u0000-\u001f\u202a-\u202e\u2066-\u2069]+/g, ' ');
}

function showHeading(value) {
  const kinds = value.lanes.map((lane) => lane.badge && lane.badge.kind);
  const same = kinds.includes('baseline') && kinds.every((kind) => kind === 'baseline' || kind === 'equal');
  write(parts.title, same ? 'Same prompt, same model, same answer' : 'Same prompt, same model');
  write(parts.hint, 'one capsule is one pass of the target; accepted drafts are underlined');
}
