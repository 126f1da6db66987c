// Predict, then reveal: before each step is shown the viewer says how many of its drafts will be accepted. Until then
// nothing on the page tells: the text ends before the step, in every lane; figures and numbers are out of sight.

const prediction = { on: false, seen: new Map(), guesses: new Map(), drafts: new Map(), cut: 0, button: null, asked: '' };

function stepNow() {
  const view = laneViews.get(state.lane);
  return view ? view.lane.steps[state.step] : undefined;
}

/** Output tokens that the viewer of this lane has seen. */
function cutOf(view, seen) {
  return seen >= 0 && view.ends.length ? view.ends[Math.min(seen, view.ends.length - 1)] : headOf(view.lane);
}

/** The last step that is open; a lane that one comes to is open as far as the text of the lane that one comes from. */
function seenOf(id) {
  if (!prediction.seen.has(id)) prediction.seen.set(id, laneViews.get(id).ends.filter((end) => end <= prediction.cut).length - 1);
  return prediction.seen.get(id);
}

/** Is the step that is shown one to be guessed? Steps that were jumped over count as seen; so do those without drafts. */
function isVeiled() {
  const step = stepNow();
  if (!prediction.on || !step) return false;
  if (state.step > seenOf(state.lane) + 1) prediction.seen.set(state.lane, state.step - 1);
  if (state.step > seenOf(state.lane) && !step.d) prediction.seen.set(state.lane, state.step);
  prediction.cut = cutOf(laneViews.get(state.lane), seenOf(state.lane));
  return state.step > seenOf(state.lane);
}

/** What stands in place of the sentence while a guess is awaited; null otherwise. */
function veilWords() {
  if (!isVeiled()) return null;
  const { d: drafted } = stepNow();
  return [
    ['', (drafted === 1 ? 'One token is' : drafted + ' tokens are') + ' drafted. '],
    ['strong', 'How many will the target accept?'],
    ['', ' Press the number; Escape ends the guessing.'],
  ];
}

// Out of sight

function veilText(view, cut, last) {
  for (const [step, capsule] of view.capsules) {
    const hidden = last === null ? view.ends[step] > cut : step > last;
    if (capsule.classList.contains('dx-veil') !== hidden) capsule.classList.toggle('dx-veil', hidden);
  }
  // a branch was given a text that may be the very one to be guessed
  view.stream.querySelectorAll('.given .dx-t, .prefill .dx-t').forEach((token, place) => {
    token.classList.toggle('dx-veil', last === null && place >= cut);
  });
}

function veilAll() {
  const { on, cut } = prediction;
  const veiled = isVeiled();
  root.classList.toggle('predicting', on);
  parts.inspect.classList.toggle('veiled', veiled);
  const seen = on && laneViews.has(state.lane) ? seenOf(state.lane) : Infinity;
  for (const view of laneViews.values()) {
    if (!on) veilText(view, Infinity, Infinity);
    else if (view.id === state.lane) veilText(view, cut, seen);
    else veilText(view, prediction.cut, null);
  }
  bars.forEach((bar, step) => bar.classList.toggle('dx-veil', step > seen));
  if (veiled && playTimer !== null) stopPlay();
  return veiled;
}

// The question

function draftsKey(step) {
  return [state.run, state.lane, step].join('|');
}

async function fetchDrafts(step) {
  const key = draftsKey(step);
  const { run, lane, theme } = state;
  if (!prediction.drafts.has(key)) {
    const answer = await ask('frames', { run, lane, lo: step, hi: step + 1, views: ['drafts'], theme });
    const found = answer.ok && answer.views && answer.views.drafts && answer.views.drafts.steps[0];
    if (!found) return null; // asked again the next time
    if (prediction.drafts.size > 500) prediction.drafts.clear();
    prediction.drafts.set(key, found);
  }
  return prediction.drafts.get(key);
}

/** The candidate tree as the drafter made it: each token, and beside it what may follow. */
function draftTree(drafts) {
  const places = new Map();
  const place = (text, kind) => {
    const box = el('div', 'dx-guess-branch');
    const children = el('div', 'dx-guess-children');
    box.append(el('span', 'dx-guess-token' + kind, text), children);
    return [box, children];
  };
  const [top, first] = place(drafts.root, ' root');
  places.set(0, first);
  for (const [id, parent, text] of drafts.nodes) {
    const [box, children] = place(text, '');
    places.set(id, children);
    (places.get(parent) || first).append(box);
  }
  return top;
}

async function askGuess() {
  const key = draftsKey(state.step);
  if (prediction.asked === key) return;
  prediction.asked = key;
  const { title } = laneViews.get(state.lane).lane;
  const drafted = stepNow().d;
  guessParts.title.textContent = 'How many drafts of ' + title + ' will be accepted in step ' + (state.step + 1) + '?';
  guessParts.numbers.replaceChildren();
  guessParts.tree.replaceChildren();
  const drafts = await fetchDrafts(state.step);
  if (prediction.asked !== key || !isVeiled()) return;
  const most = drafts ? drafts.deepest : Math.min(drafted, 16);
  for (let count = 0; count <= most; count += 1) {
    guessParts.numbers.append(button('dx-guess-number', count + (count === 1 ? ' draft' : ' drafts'), () => guess(count), String(count)));
  }
  if (drafts) guessParts.tree.append(draftTree(drafts));
  bringIntoSight(guessParts.card);
}

function guess(count) {
  if (!isVeiled() || count >= guessParts.numbers.children.length) return;
  prediction.guesses.set(draftsKey(state.step), { said: count, were: stepNow().a });
  prediction.seen.set(state.lane, state.step);
  const inside = guessParts.card.contains(document.activeElement);
  showCurrent();
  if (inside) guessParts.next.focus({ preventScroll: true });
  if (state.step + 1 < stepCount(state.lane)) fetchDrafts(state.step + 1);
}

// The answer

function scoreWords() {
  const all = [...prediction.guesses.values()];
  if (!all.length) return '';
  const right = all.filter(({ said, were }) => said === were).length;
  const off = all.reduce((sum, { said, were }) => sum + Math.abs(said - were), 0) / all.length;
  return right + ' of ' + all.length + ' right' + (right < all.length ? ', off by ' + off.toFixed(1) + ' on average' : '');
}

function answerWords() {
  const made = prediction.guesses.get(draftsKey(state.step));
  if (!made) return stepNow() && !stepNow().d ? 'Nothing was drafted in this step, so there is nothing to guess.' : 'Step on: each step waits for your guess.';
  const were = made.were === 0 ? 'none was' : made.were === 1 ? 'one was' : made.were + ' were';
  return made.said === made.were ? 'Right: ' + were + ' accepted.' : 'You said ' + made.said + '; ' + were + ' accepted.';
}

function showPrediction() {
  if (prediction.on && isBusy()) setPredicting(false);
  if (!guessParts.card || (!prediction.on && !root.classList.contains('predicting'))) return;
  set(prediction.button, { 'aria-pressed': prediction.on ? 'true' : 'false' });
  const before = parts.inspect.offsetHeight;
  const veiled = veilAll();
  parts.inspect.style.minHeight = veiled ? before + 'px' : ''; // the page does not get shorter and longer with each guess
  guessParts.card.hidden = !prediction.on;
  guessParts.question.hidden = !veiled;
  guessParts.result.hidden = veiled;
  write(guessParts.score, scoreWords());
  if (veiled) {
    write(guessParts.answer, '');
    askGuess();
  } else {
    prediction.asked = '';
    if (prediction.on) write(guessParts.answer, answerWords());
    guessParts.next.disabled = state.step + 1 >= stepCount(state.lane);
  }
}

function setPredicting(on) {
  if (on === prediction.on || (on && (isBusy() || !stepCount(state.lane)))) return false;
  prediction.on = on;
  prediction.seen.clear();
  if (on) {
    prediction.guesses.clear();
    prediction.seen.set(state.lane, state.step);
    if (playTimer !== null) stopPlay();
  }
  showCurrent();
  if (on) bringIntoSight(guessParts.card); // below many lanes it would open out of sight
  return true;
}

const guessParts = {};

function buildPrediction() {
  prediction.button = actions.find((action) => action.label === 'predict').button;
  set(prediction.button, { 'aria-pressed': 'false' });
  const card = set(el('section', 'dx-card dx-guess'), { hidden: true, 'aria-label': 'Predict, then reveal' });
  const head = el('div', 'dx-guess-head');
  guessParts.score = el('span', 'dx-guess-score');
  const leave = button('dx-text', null, () => { setPredicting(false); prediction.button.focus(); }, 'leave');
  guessParts.result = el('div', 'dx-guess-result');
  guessParts.answer = set(el('span', 'dx-guess-answer'), { role: 'status' });
  guessParts.next = button('dx-guess-next', null, () => goTo(state.step + 1), 'next step \u2192');
  guessParts.result.append(guessParts.answer, guessParts.next);
  guessParts.question = el('div', 'dx-guess-question');
  guessParts.title = el('h3', '', '');
  guessParts.numbers = set(el('div', 'dx-guess-numbers'), { role: 'group', 'aria-label': 'Your guess' });
  guessParts.tree = set(el('div', 'dx-guess-tree'), { tabindex: 0, role: 'group', 'aria-label': 'The drafts' });
  guessParts.question.append(guessParts.title, guessParts.numbers, guessParts.tree);
  head.append(el('b', '', 'Predict, then reveal'), guessParts.score, leave);
  card.append(head, guessParts.question, guessParts.result);
  guessParts.card = card;
  parts.inspect.querySelector('.dx-heading').after(card);
}

/** Numbers are guesses while one is awaited; keys that would tell, or look at figures, do nothing then. */
function guessKey(event) {
  if (!isVeiled() || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  if (/^\d$/.test(event.key)) {
    event.preventDefault();
    guess(Number(event.key));
  } else if (/^[jkvVr,.]$/.test(event.key)) event.preventDefault();
}

addAction({
  label: 'predict', title: 'Guess how many drafts are accepted before each step is shown (p); Escape leaves',
  press: () => setPredicting(!prediction.on), shown: isWhole,
});
bindKey('p', 'guess before each step how many drafts will be accepted', () => setPredicting(!prediction.on));
escapes.unshift(() => prediction.on && setPredicting(false));
document.addEventListener('keydown', guessKey, true);
on('built', buildPrediction);
on('step', showPrediction);
on('run', () => { prediction.on = false; }); // what is shown next tidies up
