// The cost model for numbers that a viewer chooses. The formula comes from Python as expressions (explorer/roofline.py);
// here they are only evaluated, so that a replay file answers without a server.

const COST_FIELDS = [
  { name: 'bandwidth', label: 'Memory bandwidth', unit: 'GB/s', least: 0.1, most: 1e5, slide: true },
  { name: 'rate', label: 'Arithmetic rate', unit: 'TFLOP/s', least: 0.001, most: 1e5, slide: true },
  { name: 'overhead', label: 'Overhead of a layer', unit: 'µs', least: 0, most: 1e6 },
  { name: 'batch', label: 'Sequences at once', unit: '', least: 1, most: 4096 },
  { name: 'parameters', label: 'Parameters read', unit: 'billion', least: 1e-6, most: 1e5, scale: 1e9, model: true },
  { name: 'width', label: 'Bytes of a weight', unit: '', least: 0.1, most: 8, model: true },
  { name: 'layers', label: 'Layers', unit: '', least: 0, most: 1000, model: true },
  { name: 'attention', label: 'Attention width', unit: '', least: 0, most: 1e6, model: true },
  { name: 'cache', label: 'Cache of a position', unit: 'kB', least: 0, most: 1e5, scale: 1e3, model: true },
];
const OWN_NUMBERS = 'own';
const costChosen = { hardware: '', size: '', typed: null }; // names of presets; typed: the numbers that were changed
const costParts = {};
const costWrong = new Map(); // field -> what is wrong with what was typed there; it stays until it is corrected

function costSpread(operation, values) {
  return values.reduce((left, right) => {
    if (typeof left === 'number' && typeof right === 'number') return operation(left, right);
    const count = typeof left === 'number' ? right.length : left.length;
    const at = (value, i) => (typeof value === 'number' ? value : value[i]);
    return Float64Array.from({ length: count }, (none, i) => operation(at(left, i), at(right, i)));
  });
}

const COST_OPERATIONS = {
  '+': (a, b) => a + b,
  '*': (a, b) => a * b,
  '/': (a, b) => a / b,
  max: Math.max,
};

/** The value of an expression: a number, or one for each pass. */
function costValue(expression, names) {
  if (typeof expression === 'number') return expression;
  if (typeof expression === 'string') return names[expression];
  const [operation, ...rest] = expression;
  const values = rest.map((each) => costValue(each, names));
  if (operation === 'sum') return values[0].reduce((total, value) => total + value, 0);
  return costSpread(COST_OPERATIONS[operation === 'join' ? (names.overlap ? 'max' : '+') : operation], values);
}

/** All names of the formula, for a lane's passes on chosen hardware. */
function costWorked(cost, chosen, passes) {
  const names = { ...chosen, ...passes };
  for (const [unit, factor] of Object.entries(cost.units)) names[unit] = chosen[unit] * factor;
  for (const [name, expression] of cost.formula) names[name] = costValue(expression, names);
  return names;
}

function lanePasses(lane, chosen) {
  return {
    rows: Float64Array.from(lane.rows), cached: Float64Array.from(lane.cached), draft_passes: lane.draft_passes,
    draft_rows: lane.draft_rows, draft_layers: lane.draft_layers, draft_parameters: lane.draft_share * chosen.parameters,
  };
}

/** Plain decoding of the lane's tokens: a pass of one row each, from the same position on. */
function plainPasses(lane) {
  const cached = Float64Array.from({ length: lane.tokens }, (none, i) => (lane.cached[0] || 0) + i);
  return { rows: cached.map(() => 1), cached, draft_passes: 0, draft_rows: 0, draft_layers: 0, draft_parameters: 0 };
}

/** What the model says of a lane: its speed-up, and where its time goes. */
function costOf(cost, chosen, lane) {
  const own = costWorked(cost, chosen, lanePasses(lane, chosen));
  const plain = costWorked(cost, chosen, plainPasses(lane));
  const middle = lane.tokens >> 1;
  return {
    lane, speedup: plain.time_ms / own.time_ms, targetMs: costValue(['sum', 'target_ms'], own) / lane.rows.length,
    plainMs: plain.time_ms / lane.tokens, drafting: (lane.draft_passes * own.draft_ms) / own.time_ms,
    rows: costValue(['sum', 'rows'], own) / lane.rows.length, perPass: lane.tokens / lane.rows.length,
    evenRows: plain.even_rows[middle], bytes: plain.target_bytes[middle],
    movingMs: plain.target_bytes[middle] / own.bandwidth, draftsAStep: lane.draft_passes / lane.rows.length,
  };
}

// What was chosen

function hardwareNumbers(hardware, width) {
  const wide = hardware.wide_tflop_s !== null && width > 2;
  return {
    bandwidth: hardware.bandwidth_gb_s, rate: wide ? hardware.wide_tflop_s : hardware.arithmetic_tflop_s,
    overhead: hardware.overhead_us, overlap: hardware.overlap,
  };
}

function presetOf(list, name) {
  return list.find((each) => each.name === name) || list[0];
}

/** The numbers of both presets, and over them what was typed. */
function numbersNow(cost) {
  const { name, ...size } = presetOf(cost.sizes, costChosen.size);
  const width = (costChosen.typed && costChosen.typed.width) || size.width;
  return { batch: 1, ...size, ...hardwareNumbers(presetOf(cost.hardware, costChosen.hardware), width), ...costChosen.typed };
}

function isTyped(names) {
  return Boolean(costChosen.typed) && names.some((name) => name in costChosen.typed);
}

const HARDWARE_NAMES = ['bandwidth', 'rate', 'overhead', 'overlap'];
const MODEL_NAMES = COST_FIELDS.filter((field) => field.model).map((field) => field.name);

// The form

function buildCost(figure) {
  const panel = el('div', 'dx-cost');
  const hardware = costGroup('Hardware', 'hardware');
  const model = costGroup('Model', 'size');
  costParts.fields = new Map();
  for (const field of COST_FIELDS) (field.model ? model : hardware).fields.append(costField(field));
  hardware.fields.append(overlapField());
  costParts.problem = set(el('p', 'dx-cost-problem'), { role: 'alert', hidden: true });
  costParts.words = set(el('div', 'dx-cost-words'), { 'aria-live': 'polite' });
  costParts.result = costTable('What the model says');
  panel.append(hardware.box, model.box, costParts.problem, costParts.words, costParts.result.box);
  costParts.formula = el('details', 'dx-cost-formula');
  costParts.check = costTable('The model against this recording');
  figure.box.before(panel);
  figure.box.after(costParts.formula, costParts.check.box);
}

function costGroup(words, kind) {
  const box = el('fieldset', 'dx-cost-group');
  const select = set(el('select'), { 'aria-label': words + ': start from' });
  select.addEventListener('change', () => choosePreset(kind, select.value));
  const fields = el('div', 'dx-cost-fields');
  box.append(el('legend', '', words), select, fields);
  costParts[kind] = select;
  return { box, fields };
}

function costField(field) {
  const box = el('label', 'dx-cost-field');
  const input = set(el('input'), { type: 'number', step: 'any', min: field.least, max: field.most, inputmode: 'decimal', 'data-cost': field.name });
  input.addEventListener('input', () => typeCost(field, input.value));
  box.append(el('span', '', field.label + (field.unit ? ' (' + field.unit + ')' : '')), input);
  costParts.fields.set(field.name, { field, input, slider: field.slide ? costSlider(field, box) : null });
  return box;
}

/** A slider over powers of ten beside the number. */
function costSlider(field, box) {
  const slider = set(el('input'), { type: 'range', min: Math.log10(field.least), max: Math.log10(field.most), step: 0.01, 'aria-label': field.label + ', slider' });
  slider.addEventListener('input', () => {
    const value = Number((10 ** Number(slider.value)).toPrecision(3));
    set(slider, { 'aria-valuetext': value + ' ' + field.unit });
    typeCost(field, value);
    costParts.fields.get(field.name).input.value = value;
  });
  box.append(slider);
  return slider;
}

function overlapField() {
  const box = el('label', 'dx-cost-field');
  const select = set(el('select'), { 'data-cost': 'overlap' });
  for (const [value, words] of [['max', 'overlap (longer)'], ['sum', 'in turn (sum)']]) {
    select.append(set(el('option', '', words), { value }));
  }
  select.addEventListener('change', () => {
    costChosen.typed = { ...costChosen.typed, overlap: select.value === 'max' };
    recost();
  });
  costParts.overlap = select;
  box.append(el('span', '', 'Bytes and operations'), select);
  return box;
}

function costTable(title) {
  const box = set(el('div', 'dx-cost-table'), { hidden: true });
  const scroller = set(el('div', 'dx-scroller tabular'), { tabindex: 0, role: 'group' });
  const table = el('div', 'dx-table');
  scroller.append(table);
  const words = el('p', 'dx-caption');
  box.append(el('h3', '', title), words, scroller);
  return { box, words, name: title, scroller, table, rows: new Map() };
}

function choosePreset(kind, name) {
  if (name === OWN_NUMBERS) return;
  const fresh = kind === 'size' ? MODEL_NAMES : HARDWARE_NAMES;
  costChosen[kind] = name;
  for (const each of fresh) costWrong.delete(each);
  showWrong();
  costChosen.typed = Object.fromEntries(Object.entries(costChosen.typed || {}).filter(([key]) => !fresh.includes(key)));
  recost();
}

function typeCost(field, text) {
  const value = Number(text);
  const good = String(text).trim() !== '' && Number.isFinite(value) && value >= field.least && value <= field.most;
  if (good) costWrong.delete(field.name);
  else costWrong.set(field.name, field.label + ' must be a number from ' + field.least + ' to ' + field.most.toLocaleString('en') + '.');
  showWrong();
  if (!good) return;
  costChosen.typed = { ...costChosen.typed, [field.name]: value * (field.scale || 1) };
  recost(field.name);
}

function showWrong() {
  for (const [name, { input }] of costParts.fields) set(input, { 'aria-invalid': costWrong.has(name) ? 'true' : null });
  costParts.problem.hidden = !costWrong.size;
  write(costParts.problem, [...costWrong.values()].join(' '));
}

function fillForm(cost, chosen, typing) {
  fillSelect(costParts.hardware, cost.hardware, isTyped(HARDWARE_NAMES), costChosen.hardware);
  fillSelect(costParts.size, cost.sizes, isTyped(MODEL_NAMES), costChosen.size);
  costParts.overlap.value = chosen.overlap ? 'max' : 'sum';
  for (const [name, { field, input, slider }] of costParts.fields) {
    const value = chosen[name] / (field.scale || 1);
    if (name !== typing && !costWrong.has(name)) input.value = Number(value.toPrecision(4));
    if (slider) slider.value = Math.log10(value);
  }
}

function fillSelect(select, presets, typed, name) {
  const entries = presets.map((each) => [each.name, each.name]);
  if (typed) entries.push([OWN_NUMBERS, 'your own numbers']);
  select.replaceChildren(...entries.map(([value, words]) => set(el('option', '', words), { value })));
  select.value = typed ? OWN_NUMBERS : presetOf(presets, name).name;
}

// What comes out

function recost(typing) {
  const figure = costParts.figure;
  if (!figure || !figure.view || !figure.view.cost) return;
  const { cost } = figure.view;
  const chosen = numbersNow(cost);
  fillForm(cost, chosen, typing);
  const results = cost.lanes.map((lane) => costOf(cost, chosen, lane));
  showCostTable(cost, results);
  const places = costPlaces(cost, chosen);
  costParts.words.replaceChildren(...costWords(cost, chosen, results, places).map((words) => el('p', '', words)));
  showFormula(cost, chosen);
  redrawCost(figure, cost, chosen, places);
}

/** The hardware along the picture: the presets, then the viewer's own where numbers were typed. */
function costPlaces(cost, chosen) {
  const places = cost.hardware.map((each) => ({ name: each.name, folded: each.folded, chosen: { ...chosen, ...hardwareNumbers(each, chosen.width) } }));
  if (isTyped(HARDWARE_NAMES)) places.push({ name: cost.yours.name, folded: cost.yours.folded, chosen });
  return places;
}

function redrawCost(figure, cost, chosen, places) {
  const asRan = !isTyped(MODEL_NAMES) && !isTyped(['batch']) && presetOf(cost.sizes, costChosen.size) === cost.sizes[0];
  const lanes = new Map(cost.lanes.map((lane) => [lane.lane, lane]));
  const said = [];
  for (const trace of figure.view.data) {
    const lane = lanes.get(trace.customdata[0][1]);
    if (trace.meta === 'measured') {
      trace.visible = asRan;
      continue;
    }
    const found = places.map((place) => costOf(cost, place.chosen, lane));
    trace.x = places.map((place) => place.name);
    trace.y = found.map((result) => Number(result.speedup.toFixed(4)));
    trace.hovertext = places.map((place, i) => costLabel(trace.name, place.folded, found[i]));
    trace.customdata = places.map(() => [null, lane.lane]);
    said.push(lane.title + ' ' + places.map((place, i) => number(trace.y[i], 2) + ' on ' + place.name).join(', '));
  }
  const { xaxis } = figure.view.layout;
  xaxis.range = [-0.5, places.length - 0.5];
  xaxis.tickvals = places.map((place) => place.name);
  xaxis.ticktext = places.map((place) => place.folded);
  figure.view.alt = 'A model, not a measurement. Speed-up by the model: ' + said.join('; ') + '.';
  figure.drawn = null;
  drawOverview(figure);
}

/** Both names come from Python, escaped for pictures. */
function costLabel(name, folded, result) {
  return '<b>' + name + '</b> on ' + folded.replace('<br>', ' ') + ': ' + number(result.speedup, 2) + '\u00d7 by the model<br>break-even ' + rowsInWords(result.evenRows);
}

function showCostTable(cost, results) {
  const top = Math.max(...results.map((result) => result.speedup), 1);
  const cell = (value, digits, unit = '') => ({ t: number(value, digits) + unit, n: true });
  costParts.result.box.hidden = false;
  drawTable(costParts.result, {
    title: 'What the model says',
    columns: ['lane', 'rows a pass', 'tokens a pass', 'target pass, mean ms', 'over a plain pass', 'drafting, share of time', 'speed-up by the model'],
  }, {
    rows: results.map((result) => [
      { t: result.lane.title }, cell(result.rows, 1), cell(result.perPass, 2), cell(result.targetMs, result.targetMs < 1 ? 3 : 2),
      cell(result.targetMs / result.plainMs, 2, '\u00d7'), cell(100 * result.drafting, 0, ' %'),
      { ...cell(result.speedup, 2, '\u00d7'), bar: result.speedup / top },
    ]),
  });
}

function showFormula(cost, chosen) {
  const open = costParts.formula.open;
  const list = el('dl', 'dx-cost-symbols');
  for (const [name, meaning] of cost.symbols) list.append(el('dt', '', name), el('dd', '', meaning));
  const lines = cost.written[chosen.overlap ? 'max' : 'sum'];
  const sources = cost.hardware.map((each) => each.name + ': ' + each.source).join('. ');
  costParts.formula.replaceChildren(
    el('summary', '', 'The formula, its words, and where the figures come from'), el('pre', '', lines.join('\n')), list, el('p', '', sources + '.'),
  );
  costParts.formula.open = open;
}

/** Why it comes out so, in sentences from the numbers. */
function costWords(cost, chosen, results, places) {
  const drafting = results.filter((result) => result.lane.drafts);
  if (!drafting.length) return ['No lane that drafts has ended yet.'];
  const here = places.find((place) => place.name === presetOf(cost.hardware, costChosen.hardware).name);
  const name = isTyped(HARDWARE_NAMES) ? 'The hardware of your numbers' : here.name[0].toUpperCase() + here.name.slice(1);
  const widest = drafting.reduce((most, result) => (result.rows > most.rows ? result : most));
  return [boundWords(name, chosen, widest), contrastWords(cost, chosen, drafting, places), draftWords(drafting)].filter(Boolean);
}

function boundWords(name, chosen, widest) {
  const { evenRows, rows } = widest;
  const start = name + ' moves the ' + bytesInWords(widest.bytes) + ' of a pass in ' + briefMs(widest.movingMs) + '; in that time it computes ' + rowsInWords(evenRows) + ' of a sequence (break-even). ';
  const cost = widest.lane.title + '\u2019s passes of ' + rows.toFixed(1) + ' rows cost ' + number(widest.targetMs / widest.plainMs, 2) + ' plain ones: ';
  if (!chosen.overlap) return start + cost + 'bytes and operations follow one another here, so each row costs time from the first on.';
  if (rows <= evenRows) return start + cost + 'they wait for memory (memory-bound), so more rows are nearly free.';
  return start + cost + 'beyond the break-even arithmetic decides (compute-bound), and a tree must earn its rows.';
}

function contrastWords(cost, chosen, drafting, places) {
  const best = drafting.reduce((most, result) => (result.perPass > most.perPass ? result : most)).lane;
  const all = places.map((place) => ({ ...costOf(cost, place.chosen, best), name: place.name })).sort((a, b) => a.speedup - b.speedup);
  const low = all[0];
  const high = all[all.length - 1];
  const at = (result) => number(result.speedup, 2) + '\u00d7 on ' + result.name + ' (break-even ' + rowsInWords(result.evenRows) + ')';
  const busy = chosen.batch > 1 ? '' : ' A server decodes many sequences at once and their rows share the break-even: raise the number of sequences to see when drafting stops to pay there.';
  if (high.speedup < 1.1 * low.speedup) return best.title + ' would gain about as much on all of these: ' + at(low) + ', ' + at(high) + '.' + busy;
  return 'The same trees and acceptances of ' + best.title + ' give ' + at(low) + ' and ' + at(high) + ': what differs is how much arithmetic comes free with a byte, not the text.' + busy;
}

function draftWords(drafting) {
  const most = drafting.reduce((top, result) => (result.drafting > top.drafting ? result : top));
  if (most.drafting < 0.05) return '';
  return 'Drafting takes ' + Math.round(100 * most.drafting) + ' % of ' + most.lane.title + '\u2019s time: ' + most.draftsAStep.toFixed(1) + ' passes of the drafter a step, one after another, each over ' + Math.round(100 * most.lane.draft_share) + ' % of the target\u2019s weights.';
}

function rowsInWords(rows) {
  return (rows < 9.95 ? rows.toFixed(1) : Math.round(rows).toLocaleString('en')) + ' rows';
}

function briefMs(ms) {
  return (ms < 0.1 ? ms.toPrecision(2) : ms.toFixed(ms < 10 ? 2 : 0)) + ' ms';
}

function bytesInWords(bytes) {
  return bytes < 1e9 ? Math.round(bytes / 1e6) + ' MB' : (bytes / 1e9).toFixed(1) + ' GB';
}

on('figure', (figure) => {
  const cost = figure.view && figure.view.cost;
  if (!cost || figure.costView === figure.view) return;
  figure.costView = figure.view;
  if (!costParts.figure) buildCost(figure);
  costParts.figure = figure;
  costParts.check.box.hidden = !cost.check;
  if (cost.check) {
    write(costParts.check.words, cost.check.caption);
    drawTable(costParts.check, cost.check, { rows: cost.check.rows });
  }
  recost();
});
