// How fast a lane plays: a fixed pace, or the lane's own clock. The browser remembers the choice.

const SPEED_KEY = 'dx-speed';
const SPEEDS = [['0.5', '0.5\u00d7'], ['1', '1\u00d7'], ['2', '2\u00d7'], ['4', '4\u00d7'], ['own', 'as recorded']];
const STEP_MS = 650; // a sentence can be read at this pace
const LEAST_MS = 16; // no screen shows more
let speedChoice = rememberedSpeed();
let ownSince = null; // when playing by the lane's clock began, and where on that clock: { at, ms }

function rememberedSpeed() {
  try {
    const kept = localStorage.getItem(SPEED_KEY);
    return SPEEDS.some(([name]) => name === kept) ? kept : '1';
  } catch (error) {
    return '1'; // storage may be forbidden
  }
}

function setSpeed(name) {
  speedChoice = name;
  ownSince = null;
  if (parts.speed) parts.speed.value = name;
  try {
    localStorage.setItem(SPEED_KEY, name);
  } catch (error) {
    // the choice then lasts as long as the page
  }
  if (playTimer !== null) playSoon();
}

function changeSpeed(by) {
  const now = SPEEDS.findIndex(([name]) => name === speedChoice);
  const [name, words] = SPEEDS[Math.max(0, Math.min(SPEEDS.length - 1, now + by))];
  if (name !== speedChoice) setSpeed(name);
  speak('Speed ' + words.replace('\u00d7', ' times'));
}

/** When the next step is due, and which one: by the lane's clock steps are skipped rather than shown late. */
function nextInPlay() {
  const steps = laneViews.has(state.lane) ? laneViews.get(state.lane).lane.steps : [];
  const next = Math.min(state.step + 1, steps.length - 1);
  if (speedChoice !== 'own' || next <= state.step) return { step: next, wait: STEP_MS / (Number(speedChoice) || 1) };
  const here = steps[state.step].ms;
  if (!ownSince || ownSince.lane !== state.lane || ownSince.step !== state.step) {
    ownSince = { at: performance.now(), ms: here, lane: state.lane, step: state.step };
  }
  const now = ownSince.ms + performance.now() - ownSince.at;
  let due = next;
  while (due + 1 < steps.length && steps[due].ms < now) due += 1;
  return { step: due, wait: Math.max(LEAST_MS, steps[due].ms - now) };
}

function startClock() {
  ownSince = null;
}

/** Playing told where it went, so that a viewer who jumps elsewhere starts the clock anew. */
function playedTo(step) {
  if (ownSince) ownSince.step = step;
}

function makeSpeed() {
  const box = el('label', 'dx-speed');
  parts.speed = set(el('select'), { 'aria-label': 'Speed of playing', title: 'Speed of playing (keys - and +); as recorded: by the lane\u2019s own clock' });
  for (const [name, words] of SPEEDS) {
    const option = el('option', '', words);
    option.value = name;
    parts.speed.append(option);
  }
  parts.speed.value = speedChoice;
  parts.speed.addEventListener('change', () => setSpeed(parts.speed.value));
  box.append(parts.speed);
  return box;
}

/** Beside the buttons; on a phone, where the steps need that room, in the line above them. */
function placeSpeed() {
  const box = makeSpeed();
  const wide = matchMedia('(min-width: 45.0625em)');
  const place = () => (wide.matches ? parts.deck.querySelector('.dx-buttons').append(box) : parts.where.after(box));
  wide.addEventListener('change', place);
  place();
}

on('built', placeSpeed);
bindKey('-', 'play slower', () => changeSpeed(-1));
bindKey('+', 'play faster', () => changeSpeed(1));
bindKey('=', '', () => changeSpeed(1)); // the same key without shift on many keyboards
