// The lane editor: which methods race, with which parameters, and the settings of the whole run.
// Drawn from descriptions (explorer/params.py); it knows no method by name. The server checks everything again.

let methods = props.methods || [];
const settingFields = props.fields || [];
const maxLanes = props.limit || 6;
let byName = new Map(methods.map((method) => [method.name, method]));
let lanes = ((props.value && props.value.lanes) || []).map((lane) => ({ method: lane.method, params: { ...lane.params } }));
let settings = { ...((props.value && props.value.settings) || {}) };
let open = false;
let serial = 0;
const first = props.value; // what a first visitor gets, and who resets

function valueNow() {
  return {
    lanes: lanes.map((lane) => ({ method: lane.method, params: { ...lane.params } })),
    settings: { ...settings },
  };
}

function send() {
  props.value = valueNow();
}

function takeValue(value) {
  lanes = ((value && value.lanes) || []).map((lane) => ({ method: lane.method, params: { ...lane.params } }));
  settings = { ...((value && value.settings) || {}) };
}

function reset() {
  restoring = false;
  takeValue(first);
  dropUnusable();
  forget();
  refresh();
  send();
  editor.querySelector('.dx-reset').focus();
}

function defaultsOf(fields) {
  return Object.fromEntries((fields || []).map((field) => [field.name, field.default]));
}

function isUsable(method) {
  return method.available !== false;
}

function whyNot(method) {
  return method.reason || 'not available';
}

function laneWords(lane) {
  const method = byName.get(lane.method);
  if (!method) return lane.method;
  return [method.title, ...changedWords(method.parameters, lane.params)].join(', ');
}

function settingWords() {
  const words = [(settings.max_new_tokens ?? '\u2026') + ' tokens'];
  words.push(settings.temperature > 0 ? 'temperature ' + settings.temperature : 'greedy');
  const said = new Set(['max_new_tokens', 'temperature', 'seed', 'raw']);
  words.push(...changedWords(settingFields.filter((field) => !said.has(field.name)), settings).map((word) => word.toLowerCase()));
  words.push('seed ' + settings.seed);
  if (settings.raw) words.push('raw prompt');
  return words.join(' \u00b7 ');
}

function makeChoice(lane, index, id) {
  const select = set(el('select', 'dx-input'), { id, 'data-method-choice': true });
  for (const method of methods) {
    const option = el('option', '', isUsable(method) ? method.title : method.title + ' (' + whyNot(method) + ')');
    option.value = method.name;
    option.disabled = !isUsable(method);
    option.selected = method.name === lane.method;
    select.append(option);
  }
  select.addEventListener('change', () => {
    lanes[index] = { method: select.value, params: defaultsOf(byName.get(select.value).parameters) };
    changed();
    focusLane(index);
  });
  return select;
}

function makeLaneCard(lane, index) {
  const card = set(el('div', 'dx-lane-card'), { role: 'group', 'aria-label': 'Lane ' + (index + 1) });
  const head = el('div', 'dx-lane-head');
  serial += 1;
  const id = 'dx-method-' + serial;
  const label = set(el('label', '', 'Lane ' + (index + 1)), { for: id });
  const remove = button('dx-text', 'Remove lane ' + (index + 1), () => {
    lanes.splice(index, 1);
    changed();
    focusLane(Math.min(index, lanes.length - 1));
  }, 'remove');
  remove.disabled = lanes.length < 2;
  head.append(label, makeChoice(lane, index, id), remove);
  const method = byName.get(lane.method);
  card.append(head, el('p', 'dx-summary', method ? method.summary : ''), ...makeFields(method ? method.parameters : [], lane, edited));
  return card;
}

function focusLane(index) {
  const select = element.querySelectorAll('[data-method-choice]')[index];
  if (select) select.focus();
}

function addLanes(chosen) {
  for (const method of chosen.slice(0, maxLanes - lanes.length)) {
    lanes.push({ method: method.name, params: defaultsOf(method.parameters) });
  }
  changed();
  focusLane(lanes.length - 1);
}

/** A button a method: what there is to add is in sight, and why something cannot be added. */
function makeAdders() {
  const row = set(el('div', 'dx-adders'), { role: 'group', 'aria-label': 'Add a lane' });
  const full = lanes.length >= maxLanes;
  row.append(el('span', 'dx-adders-title', full ? maxLanes + ' lanes are the most' : 'Add a lane'));
  for (const method of methods) {
    const made = set(button('dx-add', 'Add ' + method.title, () => addLanes([method]), '+ ' + method.title), { title: isUsable(method) ? method.summary : whyNot(method) });
    made.disabled = full || !isUsable(method);
    row.append(made);
  }
  const unused = methods.filter((method) => isUsable(method) && !lanes.some((lane) => lane.method === method.name));
  if (unused.length > 1 && !full) row.append(button('dx-text', null, () => addLanes(unused), 'add all ' + unused.length + ' that are missing'));
  const missing = methods.filter((method) => !isUsable(method));
  if (missing.length) row.append(el('p', 'dx-why', missing.map((method) => method.title + ': ' + whyNot(method)).join(' ')));
  return row;
}

/** A value in a field: the fields themselves stay as they are. */
function edited() {
  showSummary();
  send();
  remember();
}

function changed() {
  refresh();
  send();
  remember();
}

function refresh() {
  showSummary();
  showEditor();
}

const summary = el('div', 'dx-setup-line');
const chips = set(el('div', 'dx-chips'), { role: 'list', 'aria-label': 'Lanes' });
const line = el('span', 'dx-settings-words');
const toggle = set(button('dx-text', null, () => { open = !open; showEditor(); }), { 'aria-controls': 'dx-editor', id: 'edit-lanes' });
const editor = set(el('div', 'dx-editor'), { id: 'dx-editor', role: 'group', 'aria-label': 'Lanes and settings' });
summary.append(chips, line, toggle);

function showSummary() {
  chips.replaceChildren(...lanes.map((lane) => set(el('span', 'dx-chip', laneWords(lane)), { role: 'listitem' })));
  line.textContent = settingWords();
}

function showEditor() {
  editor.hidden = !open;
  set(toggle, { 'aria-expanded': open ? 'true' : 'false' });
  toggle.textContent = open ? 'close' : 'edit';
  set(toggle, { 'aria-label': open ? 'close the lanes and settings' : 'edit lanes and settings' });
  if (!open) return editor.replaceChildren();
  const cards = el('div', 'dx-lane-cards');
  lanes.forEach((lane, index) => cards.append(makeLaneCard(lane, index)));
  const fields = set(el('div', 'dx-fields dx-settings'), { role: 'group', 'aria-label': 'Settings of the run' });
  for (const field of settingFields) fields.append(makeField(field, settings, edited));
  const back = set(button('dx-text dx-reset', null, reset, 'reset to the defaults'), { title: 'Lanes and settings as on the first visit; the browser forgets the ones that it remembered' });
  editor.replaceChildren(cards, makeAdders(), fields, back);
}

function dropUnusable() {
  lanes = lanes.filter((lane) => byName.has(lane.method) && isUsable(byName.get(lane.method)));
  if (!lanes.length) lanes = methods.filter(isUsable).slice(0, 1).map((method) => ({ method: method.name, params: defaultsOf(method.parameters) }));
}

element.classList.add('dx');
element.replaceChildren(summary, editor);
takeRemembered();
refresh();
let restoring = !isSame(valueNow(), first);
if (restoring) send();

function isSame(one, other) {
  return JSON.stringify(one) === JSON.stringify(other);
}

// A link that was opened fills the editor; what it asks for is not remembered, the viewer did not choose it.
watch('value', () => {
  if (isSame(props.value, valueNow())) return;
  if (restoring && isSame(props.value, first)) return void setTimeout(send, 0); // the page was made after this
  takeValue(props.value);
  refresh();
});

// Another model has other drafters: lanes that it cannot run go, the others stay as they are.
watch('methods', () => {
  const came = props.methods || [];
  if (JSON.stringify(came) === JSON.stringify(methods)) return;
  methods = came;
  byName = new Map(methods.map((method) => [method.name, method]));
  dropUnusable();
  refresh();
  send();
});
