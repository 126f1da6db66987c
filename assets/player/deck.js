// The deck: the scrubber is a chart (one bar a step, its height the tokens of the step), and all the keys.

const ICONS = {
  first: 'M4 4h2v12H4zM16 4v12L7 10z',
  back: 'M14 4v12L5 10z',
  play: 'M5 3.5v13L16 10z',
  pause: 'M5 4h3.6v12H5zM11.4 4H15v12h-3.6z',
  forward: 'M6 4v12l9-6z',
};
let bars = [];
let barsLane = null;
let barsTop = 0;
let litTo = -1;
let playTimer = null;

function makeDeck() {
  const deck = set(el('div', 'dx-deck'), { role: 'group', 'aria-label': 'Steps of the selected lane' });
  const buttons = el('div', 'dx-buttons');
  const add = (name, label, action, className) => {
    const made = button('dx-key ' + (className || ''), label, action);
    made.title = label;
    made.append(icon(ICONS[name]));
    buttons.append(made);
    return made;
  };
  add('first', 'First step (Home)', () => goTo(0));
  add('back', 'Step back (left arrow)', () => goTo(state.step - 1));
  parts.play = add('play', 'Play (space)', togglePlay, 'play');
  add('forward', 'Step forward (right arrow)', () => goTo(state.step + 1));
  const scrub = el('div', 'dx-scrub');
  parts.bars = set(el('div', 'dx-bars'), { 'aria-hidden': 'true' });
  parts.range = set(el('input'), { type: 'range', min: 0, max: 0, step: 1, value: 0, 'data-scrub': true, 'aria-label': 'Step' });
  parts.range.addEventListener('input', () => goTo(Number(parts.range.value)));
  scrub.append(parts.bars, parts.range);
  parts.at = el('div', 'dx-at');
  parts.where = el('span', 'dx-where');
  const keys = set(el('span', 'dx-keys'), { title: 'Arrow keys step and change lanes, space plays, Home and End jump, 1 to 9 pick a lane' });
  for (const key of ['\u2190', '\u2192', '\u2191', '\u2193', 'space']) keys.append(el('kbd', '', key));
  parts.at.append(parts.where, keys);
  deck.append(buttons, scrub, parts.at);
  parts.deck = deck;
  return deck;
}

function updateBars() {
  const view = laneViews.get(state.lane);
  if (!view) return;
  const steps = view.lane.steps;
  if (barsLane !== view || bars.length > steps.length) {
    parts.bars.replaceChildren();
    bars = [];
    barsLane = view;
    barsTop = 0;
    litTo = -1;
  }
  const top = Math.max(4, ...steps.slice(bars.length).map((step) => step.t.length), barsTop);
  for (let i = bars.length; i < steps.length; i += 1) {
    const bar = el('i');
    bar.style.setProperty('--n', steps[i].t.length);
    bars.push(bar);
    parts.bars.append(bar);
  }
  if (top !== barsTop) parts.bars.style.setProperty('--top', top);
  barsTop = top;
  parts.bars.classList.toggle('dense', bars.length > 150);
}

function markBars() {
  const now = bars.length ? state.step : -1;
  for (let i = Math.min(now, litTo) + 1; i <= Math.max(now, litTo); i += 1) {
    if (bars[i]) bars[i].classList.toggle('on', i <= now);
  }
  if (bars[litTo]) bars[litTo].classList.remove('now');
  if (bars[now]) bars[now].classList.add('now');
  litTo = now;
}

function updateDeck() {
  updateBars();
  const count = stepCount(state.lane);
  set(parts.range, { max: Math.max(0, count - 1), 'aria-valuetext': count ? 'step ' + (state.step + 1) + ' of ' + count : 'no steps yet' });
  parts.range.disabled = !count;
  if (Number(parts.range.value) !== state.step) parts.range.value = state.step;
  write(parts.where, count ? 'step ' + (state.step + 1) + ' / ' + count : 'no steps yet');
  markBars();
}

function togglePlay() {
  if (playTimer !== null) return stopPlay();
  if (state.step >= stepCount(state.lane) - 1) goTo(0, true);
  startClock();
  playSoon();
  showPlaying(true);
}

/** The next step when it is due; speed.js says when that is. */
function playSoon() {
  clearTimeout(playTimer);
  const { step, wait } = nextInPlay();
  playTimer = setTimeout(() => playOn(step), wait);
}

function playOn(step) {
  if (step > state.step) goTo(step, true);
  if (playTimer === null) return; // whoever heard of the step has stopped it
  playedTo(state.step);
  if (state.step >= stepCount(state.lane) - 1 && !isBusy()) stopPlay();
  else playSoon();
}

function stopPlay() {
  clearTimeout(playTimer);
  playTimer = null;
  showPlaying(false);
}

function showPlaying(on) {
  parts.play.replaceChildren(icon(on ? ICONS.pause : ICONS.play));
  parts.play.title = on ? 'Pause (space)' : 'Play (space)';
  set(parts.play, { 'aria-label': parts.play.title });
  announce();
}

bindKey('ArrowLeft', 'one step back', () => goTo(state.step - 1));
bindKey('ArrowRight', 'one step on', () => goTo(state.step + 1));
bindKey('Home', 'first step', () => goTo(0));
bindKey('End', 'last step', () => goTo(stepCount(state.lane) - 1));
bindKey('ArrowUp', 'the lane above, at the same place of the text', () => neighbour(-1));
bindKey('ArrowDown', 'the lane below', () => neighbour(1));
bindKey(' ', 'play and pause', () => togglePlay());
bindKey('Escape', 'let go of the pinned token', () => pin(null));
for (let lane = 1; lane <= 9; lane += 1) bindKey(String(lane), lane === 1 ? 'that lane' : '', () => nthLane(lane - 1));

function isTyping(target) {
  if (!target || !target.closest) return false;
  if (target.closest('input[data-scrub]')) return false;
  return Boolean(target.closest('input, textarea, select, [contenteditable=""], [contenteditable=true], [role=dialog]'));
}

function keyPressed(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  const onButton = event.target.closest && event.target.closest('button, a, summary, [role=button], [role=tab]');
  if ((event.key === ' ' || event.key === 'Enter') && onButton) return; // they press the button that has the focus
  const bound = keyBindings.get(event.key);
  if (!bound || !laneViews.size) return;
  event.preventDefault();
  bound.action(event);
}
