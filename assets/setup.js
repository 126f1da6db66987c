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

function send() {
  props.value = {
    lanes: lanes.map((lane) => ({ method: lane.method, params: { ...lane.params } })),
    settings: { ...settings },
  };
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

/** Some fields matter only where another one has a certain value. */
function matters(field, values) {
  return Object.entries(field.when || {}).every(([name, value]) => values[name] === value);
}

function changedWords(fields, values) {
  const changed = fields.filter((field) => matters(field, values) && values[field.name] !== field.default);
  return changed.map((field) => field.title + ' ' + values[field.name]);
}

function laneWords(lane) {
  const method = byName.get(lane.method);
  if (!method) return lane.method;
  return [method.title, ...changedWords(method.parameters, lane.params)].join(', ');
}

function settingWords() {
  const words = [settings.max_new_tokens + ' tokens'];
  words.push(settings.temperature > 0 ? 'temperature ' + settings.temperature : 'greedy');
  const said = new Set(['max_new_tokens', 'temperature', 'seed', 'raw']);
  words.push(...changedWords(settingFields.filter((field) => !said.has(field.name)), settings).map((word) => word.toLowerCase()));
  words.push('seed ' + settings.seed);
  if (settings.raw) words.push('raw prompt');
  return words.join(' \u00b7 ');
}

function allowed(field) {
  if (field.type === 'choice' || field.type === 'bool') return '';
  return field.minimum + ' to ' + field.maximum;
}

function isBad(field, value) {
  if (field.type === 'choice' || field.type === 'bool') return false;
  if (typeof value !== 'number' || !Number.isFinite(value)) return true;
  if (field.type === 'int' && !Number.isInteger(value)) return true;
  return (field.minimum !== null && value < field.minimum) || (field.maximum !== null && value > field.maximum);
}

function noted(field, choice) {
  const note = (field.notes || {})[choice];
  return note ? choice + ' \u00b7 ' + note : String(choice);
}

function makeInput(field, value, id) {
  if (field.type === 'choice') {
    const select = set(el('select', 'dx-input'), { id });
    for (const choice of field.choices) {
      const option = el('option', '', noted(field, choice));
      option.value = choice;
      option.selected = choice === value;
      select.append(option);
    }
    return select;
  }
  if (field.type === 'bool') {
    const box = set(el('input', 'dx-check'), { id, type: 'checkbox' });
    box.checked = Boolean(value);
    return box;
  }
  // "any": the server says what is wrong with a value, in a sentence; the browser's own bubble would hide it.
  const input = set(el('input', 'dx-input'), { id, type: 'number', min: field.minimum, max: field.maximum, step: field.type === 'int' ? 1 : 'any', inputmode: field.type === 'int' ? 'numeric' : 'decimal' });
  input.value = value;
  return input;
}

function valueOf(field, input) {
  if (field.type === 'bool') return input.checked;
  if (field.type === 'choice') return field.choices.find((choice) => String(choice) === input.value);
  return input.value.trim() === '' ? null : Number(input.value);
}

const BUBBLE = 300; // pixels that the widest bubble may take: beyond the edge it would widen the page

/** Label and input; the description is a bubble that shows under the pointer and where the focus is. */
function makeField(field, values, onchange) {
  serial += 1;
  const id = 'dx-field-' + serial;
  const box = el('div', 'dx-field ' + field.type);
  const label = set(el('label', '', field.title), { for: id });
  const input = set(makeInput(field, values[field.name], id), { 'aria-describedby': id + '-help', name: field.name });
  const range = allowed(field);
  const help = set(el('small', '', field.description.replaceAll('`', '') + (range ? ' (' + range + ')' : '')), { id: id + '-help' });
  const check = () => set(input, { 'aria-invalid': isBad(field, values[field.name]) ? 'true' : null });
  input.addEventListener('input', () => {
    values[field.name] = valueOf(field, input);
    check();
    if (onchange) onchange();
    showSummary();
    send();
  });
  const place = () => help.classList.toggle('flip', box.getBoundingClientRect().left + BUBBLE > document.documentElement.clientWidth);
  box.addEventListener('pointerenter', place);
  box.addEventListener('focusin', place);
  check();
  box.append(label, input, help);
  return box;
}

function groupWords(name, fields, values) {
  const [first, ...others] = fields;
  return [name + ': ' + noted(first, values[first.name]), ...changedWords(others, values)].join(', ');
}

/** Fields that belong together, folded: the line says what they are set to. */
function makeGroup(name, fields, lane) {
  const group = set(el('details', 'dx-group'), { open: Boolean(lane.open) });
  const summary = el('summary', '');
  const inside = el('div', 'dx-fields');
  const boxes = fields.map((field) => [field, makeField(field, lane.params, () => show())]);
  const show = () => {
    write(summary, groupWords(name, fields, lane.params));
    for (const [field, box] of boxes) box.hidden = !matters(field, lane.params);
  };
  group.addEventListener('toggle', () => { lane.open = group.open; });
  inside.append(...boxes.map(([, box]) => box));
  group.append(summary, inside);
  show();
  return group;
}

function makeFields(parameters, lane) {
  const loose = el('div', 'dx-fields');
  const groups = new Map();
  for (const field of parameters) {
    if (field.group) groups.set(field.group, [...(groups.get(field.group) || []), field]);
    else loose.append(makeField(field, lane.params));
  }
  return [loose, ...[...groups].map(([name, fields]) => makeGroup(name, fields, lane))];
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
  card.append(head, el('p', 'dx-summary', method ? method.summary : ''), ...makeFields(method ? method.parameters : [], lane));
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

function changed() {
  showSummary();
  showEditor();
  send();
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
  for (const field of settingFields) fields.append(makeField(field, settings));
  editor.replaceChildren(cards, makeAdders(), fields);
}

element.classList.add('dx');
element.replaceChildren(summary, editor);
showSummary();
showEditor();

// Another model has other drafters: lanes that it cannot run go, the others stay as they are.
watch('methods', () => {
  const came = props.methods || [];
  if (JSON.stringify(came) === JSON.stringify(methods)) return;
  methods = came;
  byName = new Map(methods.map((method) => [method.name, method]));
  lanes = lanes.filter((lane) => byName.has(lane.method) && isUsable(byName.get(lane.method)));
  if (!lanes.length) lanes = methods.filter(isUsable).slice(0, 1).map((method) => ({ method: method.name, params: defaultsOf(method.parameters) }));
  changed();
});
