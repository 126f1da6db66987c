// The player: plays a reel (docs/design/reel.md). It knows steps, views, keys and links, and no method by name.

const root = element.closest('#player') || element;
const state = {
  run: '', state: '', lane: '', step: 0, follow: false, theme: 'light', hover: null, pin: null, value: null, direction: 1,
};
const laneViews = new Map(); // lane id -> its row
const chosenTab = new Map(); // lane id -> the method view that is open
const retired = new Set(); // runs that a newer one replaced: their late updates are dropped
const parts = {};

const BUSY = new Set(['queued', 'preparing', 'running']);
const STATE_WORDS = {
  recorded: 'recording', queued: 'waiting', preparing: 'preparing', running: 'running', done: 'done',
  cancelled: 'stopped', error: 'error',
};

function isBusy() {
  return BUSY.has(state.state);
}

function stepCount(id) {
  const view = laneViews.get(id);
  return view ? view.lane.steps.length : 0;
}

function viewsOf(id) {
  const view = laneViews.get(id);
  return (view && view.lane.views) || [];
}

/** The first view has the wide panel; the others share the panel beside it, one tab each. */
function visibleViews() {
  const [main, ...others] = viewsOf(state.lane);
  if (!main) return [];
  if (!others.length) return [main];
  const tab = chosenTab.get(state.lane);
  return [main, others.includes(tab) ? tab : others[0]];
}

// Moving about

function goTo(step, playing) {
  const count = stepCount(state.lane);
  if (!count) return;
  if (!playing && playTimer !== null) stopPlay();
  const wanted = Math.max(0, Math.min(count - 1, step));
  state.follow = isBusy() && wanted === count - 1;
  if (wanted !== state.step) {
    state.direction = wanted < state.step ? -1 : 1;
    state.step = wanted;
    state.hover = state.pin = null;
  }
  forgetRefusals();
  showCurrent();
}

function showStep(lane, step) {
  if (lane !== state.lane) openLane(lane);
  goTo(step);
}

function openLane(id) {
  if (!laneViews.has(id)) return;
  state.lane = id;
  state.hover = state.pin = null;
  layOutViews();
}

/** Another lane opens at the same place of the text, since that is what one wants to compare. */
function selectLane(id) {
  const from = laneViews.get(state.lane);
  const to = laneViews.get(id);
  if (!to || from === to) return;
  const position = from && from.ends.length ? startOf(from, state.step) : 0;
  openLane(id);
  const last = Math.max(0, stepCount(id) - 1);
  state.step = state.follow ? last : Math.min(last, stepAt(to, position));
  forgetRefusals();
  showCurrent();
}

function nthLane(index) {
  const ids = [...laneViews.keys()];
  if (ids[index]) selectLane(ids[index]);
}

function neighbour(by) {
  const ids = [...laneViews.keys()];
  nthLane((ids.indexOf(state.lane) + by + ids.length) % ids.length);
}

// Showing

/** All that a step changes except its figures: cheap, so it is done at once. */
function showCurrent() {
  const view = laneViews.get(state.lane);
  const count = stepCount(state.lane);
  root.dataset.selectedLane = state.lane;
  root.dataset.step = count ? state.step : '';
  root.dataset.steps = count;
  if (root.dataset.drawnStep !== String(state.step)) delete root.dataset.drawnStep;
  markLanes();
  narrate(view, count);
  updateDeck();
  recallPin();
  showLinks();
  moveCursors();
  announce();
  scheduleDraw();
  scrollLanes();
  fetchAhead();
  tell('step');
}

const ADVANCE_MS = 450;
const PATIENCE = 4; // so many times may a figure that is on its way hold the next step back
let advanceTimer = null;

/** A live run moves on by itself, but twice a second at most: a sentence takes time to read, a figure to draw. */
function advanceSoon(waited = 0) {
  if (advanceTimer !== null) return;
  advanceTimer = setTimeout(() => {
    advanceTimer = null;
    if (!state.follow || !isBusy()) return;
    if (waited < PATIENCE && root.dataset.drawnStep !== String(state.step) && plotly) return advanceSoon(waited + 1);
    state.step = Math.max(0, stepCount(state.lane) - 1);
    showCurrent();
  }, ADVANCE_MS);
}

function narrate(view, count) {
  write(parts.stepTitle, view ? view.lane.title + (count ? ', step ' + (state.step + 1) + ' of ' + count : '') : '');
  const say = count ? veilWords() || view.lane.steps[state.step].say || [] : [];
  const told = JSON.stringify([state.run, state.lane, state.step, say]);
  if (count && parts.told === told) return; // the same step again: it must not be spoken twice
  parts.told = told;
  parts.say.replaceChildren(...say.map(([kind, text]) => {
    if (kind === 'strong') return el('strong', '', text);
    if (kind === 'token') return el('em', 'tok', text);
    return document.createTextNode(text);
  }));
  if (!count) write(parts.say, view && isBusy() ? 'The first step of this lane is on its way.' : 'This lane has no steps.');
}

function announce() {
  const quiet = playTimer !== null || (state.follow && isBusy());
  set(parts.say, { 'aria-live': quiet ? 'off' : 'polite' });
}

// Taking in what the server sends

/** An update without lanes (waiting, loading, refused) leaves the earlier run on screen. */
function take(value) {
  if (!value || typeof value !== 'object' || retired.has(value.run)) return;
  const wasBusy = isBusy();
  const isNew = Boolean(value.run) && value.run !== state.latest;
  if (isNew) {
    if (state.latest && state.latest !== 'example') retired.add(state.latest);
    state.latest = value.run;
  }
  clearTimeout(answerTimer);
  const { refused, message: sentence } = value;
  if (refused) value = { ...value, refused: false, ...(value.run ? {} : settled), message: value.run ? '' : settled.message };
  state.state = value.state;
  if (value.run) root.dataset.run = value.run;
  if (value.lanes && value.lanes.length) takeLanes(value);
  else if (!state.value) showEmpty();
  if (value.lanes && value.lanes.length) state.value = value;
  showState(value.state, value.message, value.progress);
  if (wasBusy && !isBusy()) finished();
  tell('value', value);
  if (refused) tell('refused', sentence);
}

let settled = { state: 'done', message: '' }; // before something was asked of the server: what was refused changes nothing

function showState(name, message, progress) {
  state.state = name;
  if (!isBusy()) settled = { state: name, message };
  root.dataset.state = name;
  document.documentElement.dataset.decoding = isBusy() ? 'yes' : 'no';
  showStatus(name, message, progress);
  if (state.value) showHeading(state.value);
}

function takeLanes(value) {
  root.classList.remove('empty');
  if (value.run !== state.run) startOver(value);
  state.value = value;
  for (const lane of value.lanes) updateLane(laneViews.get(lane.id) || addLane(lane), lane, value.max_tokens);
  state.step = Math.min(state.step, Math.max(0, stepCount(state.lane) - 1));
  if (state.follow && isBusy()) advanceSoon();
  layOutViews();
  showCurrent();
  scheduleOverviews();
}

function addLane(lane) {
  const view = makeLane(lane);
  laneViews.set(lane.id, view);
  parts.lanes.append(view.row);
  parts.lanes.classList.toggle('many', laneViews.size > 4);
  return view;
}

function startOver(value) {
  const before = state.lane;
  const stays = value.continues && value.continues === state.run ? state.step : null; // a copy that gets one more lane
  if (playTimer !== null) stopPlay();
  state.run = value.run;
  state.step = 0;
  state.follow = BUSY.has(value.state) && stays === null;
  state.hover = state.pin = null;
  laneViews.clear();
  parts.lanes.replaceChildren();
  frames.clear();
  commons.clear();
  widest.clear();
  tallest.clear();
  forgetRefusals();
  for (const lane of value.lanes) updateLane(addLane(lane), lane, value.max_tokens);
  state.lane = laneViews.has(before) ? before : bestLane(value.lanes);
  if (stays !== null) state.step = stays;
  else if (!state.follow) state.step = bestStep(laneViews.get(state.lane).lane);
  tell('run');
}

function bestLane(lanes) {
  // Before anything was decoded all are equal; a lane that drafts has more to show than the baseline.
  const score = (lane) => ((lane.counters && lane.counters.per_pass) || 0) + (lane.badge && lane.badge.kind === 'baseline' ? 0 : 1e-6);
  return lanes.reduce((best, lane) => (score(lane) > score(best) ? lane : best)).id;
}

/** A recording opens where a pass gained most: that is what the page is about. */
function bestStep(lane) {
  let best = 0;
  lane.steps.forEach((step, index) => {
    if (index && index < 40 && step.t.length > lane.steps[best].t.length) best = index;
  });
  return best;
}

function finished() {
  if (state.follow) state.step = Math.max(0, stepCount(state.lane) - 1);
  state.follow = false;
  if (laneViews.size) showCurrent();
  scheduleOverviews();
}

function showEmpty() {
  root.classList.add('empty');
  write(parts.title, 'Nothing has run yet');
  write(parts.hint, 'type a prompt above and press Run; the lanes appear here and decode side by side');
}

function themeNow() {
  return document.body.classList.contains('dark') || document.documentElement.classList.contains('dark') ? 'dark' : 'light';
}

function themeChanged() {
  if (themeNow() === state.theme) return;
  state.theme = themeNow();
  scheduleDraw();
  scheduleOverviews();
  fetchAhead();
}

function resized() {
  tell('resize');
  scheduleDraw();
  drawOverviews();
  scrollLanes();
}

/** Shift + Enter as the box says, and Ctrl + Enter, which many hands know. */
function promptKey(event) {
  if (event.key !== 'Enter' || !event.target.closest('#prompt')) return;
  if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return;
  event.preventDefault();
  document.getElementById('run').click();
}

const ANSWER_MS = 20000;
let answerTimer = null;

/** Something was asked of the server that comes as a value. */
function awaitAnswer(words, silence = (sentence) => showState('error', sentence, null)) {
  clearTimeout(answerTimer);
  answerTimer = setTimeout(() => silence('The server does not answer; check that it runs and try again.'), ANSWER_MS);
  showState('preparing', words, null);
}

let runAwaited = false;

/** Run may be pressed far above the player: its answer must not come out of sight. */
function showAnswer() {
  if (!runAwaited) return;
  runAwaited = false;
  const { top, bottom } = parts.status.getBoundingClientRect();
  if (top >= 0 && bottom <= parts.deck.getBoundingClientRect().top) return;
  parts.status.scrollIntoView({ block: 'start', behavior: 'instant' });
}

/** Shown at once: until the server answers, the run before must not look like the one that was asked for. */
function runPressed() {
  awaitAnswer('Sending the prompt.');
  runAwaited = true;
  // From here on the arrow keys belong to the player.
  if (isTyping(document.activeElement)) document.activeElement.blur();
}

/** Before anybody else hears of the click: the second half of a double click would stop what the first half began. */
function runClicked(event) {
  if (!event.target.closest('#run')) return;
  if (event.detail > 1) {
    event.preventDefault();
    event.stopImmediatePropagation();
    return;
  }
  runPressed();
}

function hovered(event) {
  const marked = event.target.closest('[data-node]');
  const capsule = event.target.closest('.dx-step');
  const elsewhere = capsule && capsule !== (laneViews.get(state.lane) || {}).marked;
  hover(marked && !elsewhere ? marked.dataset.node : null);
}

function cellClicked(event) {
  const cell = event.target.closest('td[data-node], .dx-piece[data-node]');
  if (cell) pin(cell.dataset.node);
}

function listen() {
  document.addEventListener('keydown', keyPressed);
  document.addEventListener('keydown', promptKey);
  // On the document, for the button may be made after the player, and made again.
  document.addEventListener('click', runClicked, true);
  root.addEventListener('mouseover', hovered);
  root.addEventListener('mouseleave', () => hover(null));
  parts.panels.addEventListener('click', cellClicked);
  new MutationObserver(themeChanged).observe(document.body, { attributes: true, attributeFilter: ['class'] });
  let timer = null;
  new ResizeObserver(() => {
    clearTimeout(timer);
    timer = setTimeout(resized, 80);
  }).observe(parts.panels);
}

on('value', showAnswer);
build();
state.theme = themeNow();
listen();
watch('value', () => take(props.value));
take(props.value);
// The library is 4.8 MB: it must not stand between the viewer and the first words.
requestAnimationFrame(() => setTimeout(loadPlotly, 0));
