// What if: a lane that goes on from a token of the viewer's choice, or that runs once more with other parameters.
// The server decodes it and adds it to the run; where there is no server, as in a replay, none of this is shown.

const pinnedActions = []; // node, box -> puts something to do with a pinned token into the box; details.js asks
const whatIf = { box: null, asked: '', rerun: null, opener: null, lanes: 0, waiting: false, inStatus: false };
whatIf.why = set(el('p', 'dx-what-why'), { role: 'alert' }); // why a lane was refused: it stands where the lane was asked for

function canAsk() {
  return Boolean(trigger && server.choices && server.parameters);
}

function askForLane(request, words) {
  if (isBusy()) return;
  whatIf.waiting = true;
  whatIf.lanes = laneViews.size;
  write(whatIf.why, '');
  awaitAnswer(words, (sentence) => {
    showState(settled.state, settled.message, null);
    showRefusal(sentence);
    showAdded();
  });
  trigger('whatif', { run: state.run, lane: state.lane, ...request });
}

/** The viewer reads why in the form or beside the token; where neither is open any more, the status line says it. */
function showRefusal(sentence) {
  const form = whatIf.rerun && !whatIf.rerun.hidden && whatIf.rerun.querySelector('form');
  const place = form || (whatIf.box && whatIf.box.offsetParent && whatIf.box);
  whatIf.inStatus = !place;
  if (!place) return showStatus(state.state, sentence, null);
  place.append(whatIf.why);
  write(whatIf.why, sentence);
  bringIntoSight(form ? whatIf.rerun : whatIf.why);
}

/** A sentence in the status line goes with the viewer's next step. */
function forgetRefusal() {
  if (!whatIf.inStatus) return;
  whatIf.inStatus = false;
  showStatus(state.state, settled.message, null);
}

// A token

function forceToken(node, more) {
  const id = node === 'next' ? node : Number(node);
  closeRerun();
  askForLane({ force: { step: state.step, node: id, ...more } }, 'Asking for a branch.');
}

/** A button that goes on with one token: what it is, and what speaks for it. */
function tokenChoice(place, token, note, action) {
  const made = button('dx-what-token', token.text + (note ? ' ' + note : '') + ': go on with it as token ' + place, action);
  made.append(el('span', 'tok', token.text));
  if (note) made.append(el('small', '', note));
  return made;
}

function inPercent(probability) {
  return probability < 0.001 ? '<0.1 %' : (probability * 100).toFixed(probability < 0.0995 ? 1 : 0) + ' %';
}

function ownText(node, place) {
  const form = el('form', 'dx-what-own');
  const field = set(el('input', 'dx-input'), {
    type: 'text', maxlength: 200, size: 12, placeholder: 'any text', 'aria-label': 'Any text as token ' + place, autocomplete: 'off', spellcheck: 'false',
  });
  const go = set(el('button', 'dx-what-go', 'go on'), { type: 'submit' });
  form.append(field, go);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    if (field.value) forceToken(node, { text: field.value });
    else field.focus();
  });
  return form;
}

function fillChoices(box, node, answer) {
  if (!answer.ok) return box.replaceChildren(el('p', 'dx-what-why', answer.error));
  const { position, token, taken, instead } = answer;
  const title = el('b', '', 'What if token ' + position + ' were');
  const own = tokenChoice(position, token, taken ? 'as it was' : 'this draft', () => forceToken(node, {}));
  const others = instead.filter(({ id }) => id !== token.id)
    .map((each) => tokenChoice(position, each, inPercent(each.prob), () => forceToken(node, { token_id: each.id })));
  const hint = el('p', 'dx-what-hint', 'A new lane goes on from there, with a prefill and a clock of its own; percentages are the target\u2019s.');
  box.replaceChildren(title, own, ...others, ownText(node, position), hint, whatIf.why);
}

async function showChoices(node, place) {
  const box = whatIf.box || (whatIf.box = set(el('div', 'dx-whatif'), { role: 'group', 'aria-label': 'What if another token stood here' }));
  place.append(box);
  box.hidden = isBusy();
  const id = node === 'next' ? node : Number(node);
  const key = [state.run, state.lane, state.step, node, laneViews.size].join('|');
  if (whatIf.asked === key || !(id === 'next' || Number.isInteger(id))) return;
  whatIf.asked = key;
  box.replaceChildren();
  if (!whatIf.waiting) write(whatIf.why, '');
  const answer = await ask('choices', { run: state.run, lane: state.lane, step: state.step, node: id });
  if (whatIf.asked === key) fillChoices(box, node, answer);
}

if (canAsk()) pinnedActions.push((node, box) => { showChoices(node, box); });

// A lane with other parameters

async function openRerun() {
  if (!canAsk() || isBusy() || !laneViews.has(state.lane)) return;
  if (!whatIf.rerun.hidden) return closeRerun();
  const lane = state.lane;
  const answer = await ask('parameters', { run: state.run, lane });
  if (lane !== state.lane || isBusy()) return;
  write(whatIf.why, '');
  fillRerun(answer);
  whatIf.rerun.hidden = false;
  set(whatIf.opener, { 'aria-expanded': 'true' });
  whatIf.rerun.scrollIntoView({ block: 'center' }); // the deck may lie over where it opens
  const field = whatIf.rerun.querySelector('input, select, button');
  if (field) field.focus({ preventScroll: true });
}

const RERUN_NOTE = 'Only this lane decodes; prompt and settings stay.';

function fillRerun(answer) {
  const close = button('dx-text', null, () => { closeRerun(); whatIf.opener.focus(); }, 'close');
  if (!answer.ok) return whatIf.rerun.replaceChildren(set(el('p', 'dx-what-why', answer.error), { role: 'alert' }), close);
  const values = { params: { ...answer.values } };
  const go = set(el('button', 'dx-what-go', 'Run this lane'), { type: 'submit' });
  const foot = el('div', 'dx-rerun-foot');
  const note = set(el('span', 'dx-hint', RERUN_NOTE), { 'aria-live': 'polite' });
  whatIf.note = note;
  foot.append(go, close, note);
  const form = el('form');
  form.append(el('h3', '', answer.title + ' again, with'), ...makeFields(answer.fields, values, () => {}), foot, whatIf.why);
  form.noValidate = true; // the server says what is wrong with a value, in a sentence
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    askForLane({ params: values.params }, 'Asking for the lane.'); // the form stays until the lane has begun
  });
  whatIf.rerun.replaceChildren(form);
}

function closeRerun() {
  whatIf.rerun.hidden = true;
  set(whatIf.opener, { 'aria-expanded': 'false' });
}

function buildRerun() {
  if (!canAsk()) return;
  const heading = parts.stepTitle.parentNode;
  whatIf.opener = set(button('dx-text dx-rerun-open', null, openRerun, 'run again with changes'), {
    'aria-expanded': 'false', 'aria-controls': 'dx-rerun', title: 'The selected lane once more, with other parameters (r)',
  });
  whatIf.rerun = set(el('div', 'dx-card dx-rerun'), { id: 'dx-rerun', hidden: true });
  whatIf.rerun.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape') return;
    event.stopPropagation();
    closeRerun();
    whatIf.opener.focus();
  });
  heading.append(whatIf.opener);
  heading.after(whatIf.rerun);
}

/** While a lane is asked for, the form says what it waits for; it cannot be sent twice. */
function showWaiting(name, message) {
  const go = whatIf.rerun && whatIf.rerun.querySelector('.dx-what-go');
  if (!go) return;
  set(go, { 'aria-disabled': isBusy() ? 'true' : null });
  write(whatIf.note, whatIf.waiting && isBusy() && message ? message : RERUN_NOTE);
}

/** The lane that was asked for is brought into sight once; the viewer stays at the lane and step that are open. */
function showAdded() {
  const busy = isBusy();
  if (whatIf.box) whatIf.box.hidden = busy;
  if (whatIf.opener) whatIf.opener.hidden = busy || !laneViews.size;
  const views = [...laneViews.values()];
  const came = views.length > whatIf.lanes;
  if (whatIf.rerun && (whatIf.waiting ? came : busy)) closeRerun();
  if (!whatIf.waiting) return;
  if (came) views.pop().row.scrollIntoView({ block: 'nearest' });
  if (came || !busy) whatIf.waiting = false;
}

on('built', buildRerun);
on('value', showAdded);
on('refused', showRefusal);
on('status', showWaiting);
on('step', () => {
  forgetRefusal();
  if (whatIf.rerun && whatIf.shownLane !== state.lane) closeRerun();
  whatIf.shownLane = state.lane;
});
if (canAsk()) bindKey('r', 'run the selected lane again, with other parameters', openRerun);
