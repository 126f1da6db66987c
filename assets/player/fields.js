// Parameters as fields, drawn from their descriptions (explorer/params.py): for the lane editor and for a lane that is
// run again. The server checks every value again.

let fieldSerial = 0;

/** Some fields matter only where another one has a certain value. */
function matters(field, values) {
  return Object.entries(field.when || {}).every(([name, value]) => values[name] === value);
}

function changedWords(fields, values) {
  const changed = fields.filter((field) => matters(field, values) && values[field.name] !== field.default);
  return changed.map((field) => field.title + ' ' + values[field.name]);
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
  do fieldSerial += 1; while (document.getElementById('dx-field-' + fieldSerial)); // two parts of a page make fields
  const id = 'dx-field-' + fieldSerial;
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
function makeGroup(name, fields, lane, onchange) {
  const group = set(el('details', 'dx-group'), { open: Boolean(lane.open) });
  const summary = el('summary', '');
  const inside = el('div', 'dx-fields');
  const boxes = fields.map((field) => [field, makeField(field, lane.params, () => { show(); onchange(); })]);
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

function makeFields(parameters, lane, onchange) {
  const loose = el('div', 'dx-fields');
  const groups = new Map();
  for (const field of parameters) {
    if (field.group) groups.set(field.group, [...(groups.get(field.group) || []), field]);
    else loose.append(makeField(field, lane.params, onchange));
  }
  return [loose, ...[...groups].map(([name, fields]) => makeGroup(name, fields, lane, onchange))];
}
