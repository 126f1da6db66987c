// Which model answers, and the choice of another one: for everybody who has this page open.
// Drawn from descriptions (explorer/offers.py); the server checks the choice again.

let chosen = null;

const box = el('details', 'dx-models');
const line = set(el('summary', 'chip'), { id: 'model-line' });
const panel = el('div', 'dx-models-panel');
const label = set(el('label', '', 'Model'), { for: 'model-choice' });
const select = set(el('select', 'dx-input'), { id: 'model-choice' });
const facts = set(el('p', 'dx-models-facts'), { id: 'model-facts' });
const load = button('dx-models-load', null, () => {
  if (!chosen) return;
  trigger('pick', { model: chosen });
  line.focus(); // the button is disabled while it loads, and would lose the focus to nothing
}, 'Load for everybody');
const said = set(el('p', 'dx-models-said'), { role: 'status' });
const bar = set(el('progress', 'dx-models-bar'), { max: 1, 'aria-label': 'Loading the model' });
set(select, { 'aria-describedby': 'model-facts' });
panel.append(label, select, facts, load, bar, said);
box.append(line, panel);

function rows() {
  return (props.value && props.value.models) || [];
}

function optionWords(row) {
  if (row.current) return row.title + ' (answers now)';
  return row.available ? row.title : row.title + ': ' + (row.reason || 'not available');
}

function factWords(row) {
  const words = [];
  if (row.licence) words.push('Licence: ' + row.licence);
  if (row.needs) words.push(row.needs);
  words.push(row.kinds.length ? 'Trained drafters: ' + row.kinds.join(', ') : 'No trained drafters; lanes that need none can run');
  if (!row.pinned) words.push('Not pinned yet: the first download decides which revision is kept');
  return words.join('. ') + '.';
}

function showOptions() {
  const current = rows().find((row) => row.current);
  if (!rows().some((row) => row.id === chosen && (row.available || row.current))) chosen = current ? current.id : null;
  select.replaceChildren(...rows().map((row) => {
    const option = el('option', '', optionWords(row));
    option.value = row.id;
    option.disabled = !row.available;
    option.selected = row.id === chosen;
    return option;
  }));
}

function showChoice() {
  const value = props.value || {};
  const row = rows().find((each) => each.id === chosen);
  write(facts, row ? factWords(row) : '');
  load.disabled = Boolean(value.busy) || !row || row.current || !row.available;
}

function show() {
  const value = props.value || {};
  write(line, value.line || '');
  set(box, { 'data-fixed': value.switching ? null : 'yes', 'data-busy': value.busy ? 'yes' : null, 'data-failed': value.failed ? 'yes' : null });
  if (!value.switching) box.open = false;
  select.disabled = Boolean(value.busy);
  write(said, value.message || '');
  bar.hidden = !value.busy;
  if (typeof value.share === 'number') bar.value = value.share;
  else bar.removeAttribute('value');
  showOptions();
  showChoice();
}

line.addEventListener('click', (event) => { if (!(props.value && props.value.switching)) event.preventDefault(); });
select.addEventListener('change', () => {
  chosen = select.value;
  showChoice();
});
box.addEventListener('keydown', (event) => {
  if (event.key !== 'Escape' || !box.open) return;
  box.open = false;
  line.focus();
});

document.addEventListener('pointerdown', (event) => { if (!box.contains(event.target)) box.open = false; });

element.classList.add('dx');
element.replaceChildren(box);
show();
watch('value', show);
