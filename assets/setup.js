// The lane editor: which methods race, with which parameters, and the settings of the whole run.
// Drawn from descriptions (explorer/params.py); it knows no method by name. The server checks everything again.

const methods = props.methods || [];
const settingFields = props.fields || [];
const maxLanes = props.limit || 6;
const byName = new Map(methods.map((method) => [method.name, method]));
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

function laneWords(lane) {
  const method = byName.get(lane.method);
  if (!method) return lane.method;
  const changed = method.parameters.filter((field) => lane.params[field.name] !== field.default);
  return [method.title, ...changed.map((field) => field.title + ' ' + lane.params[field.name])].join(', ');
}

function settingWords() {
  const words = [settings.max_new_tokens + ' tokens'];
  words.push(settings.temperature > 0 ? 'temperature ' + settings.temperature : 'greedy', 'seed ' + settings.seed);
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

function makeInput(field, value, id) {
  if (field.type === 'choice') {
    const select = set(el('select', 'dx-input'), { id });
    for (const choice of field.choices) {
      const option = el('option', '', choice);
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

function makeField(field, values) {
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
    showSummary();
    send();
  });
  check();
  box.append(label, input, help);
  return box;
}

function makeLaneCard(lane, index) {
  const card = set(el('div', 'dx-lane-card'), { role: 'group', 'aria-label': 'Lane ' + (index + 1) });
  const head = el('div', 'dx-lane-head');
  serial += 1;
  const id = 'dx-method-' + serial;
  const label = set(el('label', '', 'Lane ' + (index + 1)), { for: id });
  const select = set(el('select', 'dx-input'), { id, 'data-method-choice': true });
  for (const method of methods) {
    const usable = method.available !== false;
    const option = el('option', '', usable ? method.title : method.title + ' (' + (method.reason || 'not available') + ')');
    option.value = method.name;
    option.disabled = !usable;
    option.selected = method.name === lane.method;
    select.append(option);
  }
  select.addEventListener('change', () => {
    lanes[index] = { method: select.value, params: defaultsOf(byName.get(select.value).parameters) };
    changed();
    focusLane(index);
  });
  const remove = button('dx-text', 'Remove lane ' + (index + 1), () => {
    lanes.splice(index, 1);
    changed();
    focusLane(Math.min(index, lanes.length - 1));
  }, 'remove');
  remove.disabled = lanes.length < 2;
  head.append(label, select, remove);
  const method = byName.get(lane.method);
  const fields = el('div', 'dx-fields');
  for (const field of method ? method.parameters : []) fields.append(makeField(field, lane.params));
  card.append(head, el('p', 'dx-summary', method ? method.summary : ''), fields);
  return card;
}

function focusLane(index) {
  const select = element.querySelectorAll('[data-method-choice]')[index];
  if (select) select.focus();
}

function addLane() {
  const usable = methods.filter((method) => method.available !== false);
  const unused = usable.find((method) => !lanes.some((lane) => lane.method === method.name));
  const method = unused || usable[usable.length - 1];
  if (!method || lanes.length >= maxLanes) return;
  lanes.push({ method: method.name, params: defaultsOf(method.parameters) });
  changed();
  focusLane(lanes.length - 1);
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
  if (lanes.length < maxLanes) cards.append(button('dx-add', null, addLane, '+ add a lane'));
  const fields = set(el('div', 'dx-fields dx-settings'), { role: 'group', 'aria-label': 'Settings of the run' });
  for (const field of settingFields) fields.append(makeField(field, settings));
  editor.replaceChildren(cards, fields);
}

element.classList.add('dx');
element.replaceChildren(summary, editor);
showSummary();
showEditor();
