// Figures come from Python in batches, nearest to the viewer first, and stay in a bounded cache.

const frames = new Map(); // run|lane|view|theme|step -> what one view shows at one step (null: nothing)
const commons = new Map(); // run|lane|view|theme -> what all steps of the view share
const widest = new Map(); // the same keys -> the room that the widest step seen so far wants
const tallest = new Map(); // the same keys -> the height that no step seen so far exceeds: nothing below may jump
const refusals = new Map(); // the same keys -> the sentence that the server gave instead
const KEEP_FRAMES = 1000; // more than is wanted around one step, but little: memory must not grow with the steps seen
const BATCH = 16;
const AHEAD = 48;
let fetching = false;

function viewKey(lane, view) {
  return [state.run, lane, view, state.theme].join('|');
}

function frameAt(lane, view, step) {
  const key = viewKey(lane, view) + '|' + step;
  if (!frames.has(key)) return undefined;
  const frame = frames.get(key);
  frames.delete(key);
  frames.set(key, frame); // used last, dropped last
  return frame;
}

function isMissing(lane, view, step) {
  const key = viewKey(lane, view);
  return !frames.has(key + '|' + step) && !refusals.has(key);
}

function forgetRefusals() {
  refusals.clear();
}

/** Steps in the order in which the viewer is likely to want them. */
function* stepsNear(step, count, reach) {
  yield step;
  for (let away = 1; away <= reach; away += 1) {
    if (step + away < count) yield step + away;
    if (step - away >= 0) yield step - away;
  }
}

function firstMissing(lane, view, step, reach) {
  const count = stepCount(lane);
  if (!count) return null;
  for (const near of stepsNear(step, count, reach)) {
    if (!isMissing(lane, view, near)) continue;
    if (near === step) return { lane, lo: step, hi: Math.min(step + 2, count) };
    const lo = near > step ? near : Math.max(0, near - BATCH + 1);
    let first = lo;
    while (first < near && !isMissing(lane, view, first)) first += 1;
    let last = near;
    while (last + 1 < count && last + 1 - first < BATCH && isMissing(lane, view, last + 1)) last += 1;
    return { lane, lo: first, hi: last + 1 };
  }
  return null;
}

/** What to fetch next. While a run decodes only what is on screen: the machine has better things to do. */
function nextJob() {
  const lane = state.lane;
  const shown = [...visibleViews(), ...asidesOf(lane).filter((name) => document.querySelector('[data-aside="' + name + '"]'))];
  const job = jobNear(lane, shown, isBusy() ? 0 : AHEAD);
  if (job || isBusy()) return job;
  return jobNear(lane, viewsOf(lane), BATCH) || nextJobOfOthers();
}

function jobNear(lane, views, reach) {
  for (const near of reach ? [0, reach] : [0]) {
    for (const view of views) {
      const job = firstMissing(lane, view, state.step, near);
      if (job) return { ...job, views: views.filter((name) => isMissing(lane, name, job.lo)) };
    }
  }
  return null;
}

function nextJobOfOthers() {
  const here = laneViews.get(state.lane);
  if (!here || !here.ends.length) return null;
  const position = startOf(here, state.step);
  for (const other of laneViews.values()) {
    const view = viewsOf(other.id)[0];
    if (other === here || !view || !other.ends.length) continue;
    const job = firstMissing(other.id, view, stepAt(other, position), 4);
    if (job) return { ...job, views: [view] };
  }
  return null;
}

async function ask(name, request) {
  try {
    const answer = await server[name](request);
    return answer && typeof answer === 'object' ? answer : { ok: false, error: 'The server gave no answer.' };
  } catch (error) {
    return { ok: false, error: 'The server cannot be reached just now; step once more to try again.' };
  }
}

async function fetchFrames(job) {
  const { run, theme } = state;
  const { lane, lo, hi, views } = job;
  const answer = await ask('frames', { run, lane, lo, hi, views, theme });
  for (const name of views) {
    const prefix = [run, lane, name, theme].join('|');
    const view = answer.ok && answer.views ? answer.views[name] : null;
    if (view && Array.isArray(view.steps)) keepFrames(prefix, view, lo, hi);
    else refusals.set(prefix, answer.error || 'This figure cannot be drawn.');
  }
  while (frames.size > KEEP_FRAMES) frames.delete(frames.keys().next().value);
  showTitles();
  sharePanels();
}

function keepFrames(prefix, view, lo, hi) {
  const { steps, ...common } = view;
  commons.set(prefix, common);
  for (let step = lo; step < hi; step += 1) frames.set(prefix + '|' + step, steps[step - lo] || null);
  const most = (kept, measure, key = prefix) => kept.set(key, Math.max(kept.get(key) || 0, ...steps.map((step) => (step && measure(step)) || 0)));
  most(tallest, (step) => step.layout && step.layout.height);
  most(tallest, (step) => step.layout && (step.brief || step).layout.height, prefix + '|brief');
  most(widest, (step) => step.min_width);
}

/** Fetch until nothing near the viewer is missing; one request at a time, so that the nearest is always next. */
async function fetchAhead() {
  if (fetching) return;
  fetching = true;
  try {
    for (let job = nextJob(); job; job = nextJob()) {
      await fetchFrames(job);
      if (job.lane !== state.lane) continue;
      scheduleDraw();
      tell('frames');
    }
  } finally {
    fetching = false;
  }
}
