// One row a lane: who it is, its tokens in capsules (one capsule is one pass of the target), three numbers.

function makeLane(lane) {
  const row = set(el('article', 'dx-lane'), { 'data-lane': lane.id, 'data-method': lane.method });
  const who = el('div', 'dx-who');
  const name = button('dx-name', null, () => selectLane(lane.id), lane.title);
  const what = el('div', 'dx-what');
  const badge = el('div', 'dx-badge');
  const rule = set(el('span', 'dx-rule'), { role: 'note', hidden: true });
  who.append(name, rule, what, badge);
  const stream = set(el('div', 'dx-stream'), {
    tabindex: 0, role: 'group', 'aria-label': 'Output of ' + lane.title + ', one group a step', dir: 'ltr',
  });
  const nums = el('dl', 'dx-nums');
  const numbers = ['tokens/pass', 'speed-up', 'lane clock'].map((label) => addNumber(nums, label));
  const bar = set(el('div', 'dx-track'), { 'aria-hidden': 'true' });
  const track = el('div');
  bar.append(track);
  row.append(who, stream, nums, bar);
  row.addEventListener('click', (event) => laneClicked(event, lane.id));
  const capsules = new Map();
  return { id: lane.id, row, name, rule, what, badge, stream, numbers, track, capsules, drawn: 0, ends: [], lane };
}

function addNumber(nums, label) {
  const cell = el('div');
  const value = el('dd', '', '\u2013');
  cell.append(value, el('dt', '', label));
  nums.append(cell);
  return value;
}

function laneClicked(event, id) {
  const token = event.target.closest('.dx-t');
  const capsule = event.target.closest('.dx-step');
  if (!capsule) {
    if (!event.target.closest('button')) selectLane(id);
    return;
  }
  const step = Number(capsule.dataset.step);
  const node = token && token.dataset.node !== undefined ? token.dataset.node : null;
  const wasHere = state.lane === id && state.step === step;
  showStep(id, step);
  if (wasHere && node !== null) pin(node);
}

const ORIGINS = {
  draft: 'accepted draft', prefill: 'from prefill', given: 'given: the beginning that this branch goes on from',
  forced: 'forced: chosen by a viewer',
};
const AHEAD_OF_STEPS = new Set(['prefill', 'given', 'forced']); // no step holds these

function makeToken(text, source, tokenId, node) {
  const token = el('span', 'dx-t', readable(text));
  token.classList.add(source === 'draft' ? 'draft' : 'own');
  if (source === 'given' || source === 'forced') token.classList.add(source);
  if (isSpace(text)) token.classList.add('ws');
  if (text === '') token.classList.add('part');
  const origin = ORIGINS[source] || "target's own token";
  const what = text === '' ? 'bytes of a character that a later token completes' : JSON.stringify(text);
  token.title = what + ' \u00b7 ' + origin + ' \u00b7 id ' + tokenId;
  // In pictures the target's own token has this id, since no draft node stands for it.
  if (!AHEAD_OF_STEPS.has(source)) token.dataset.node = node === null || node === undefined ? 'next' : node;
  return token;
}

function makeCapsule(step, tokens) {
  const capsule = el('span', 'dx-step');
  capsule.dataset.step = step;
  for (const [text, source, id, node] of tokens) capsule.append(makeToken(text, source, id, node));
  if (!tokens.length) capsule.append(set(el('span', 'dx-t own none', '\u2205'), { title: 'this step added nothing' }));
  return capsule;
}

/** Output tokens before the first step: what a branch was given, and the one from prefill. */
function headOf(lane) {
  return (lane.given || []).length + (lane.first ? 1 : 0);
}

/** The beginning that a branch goes on from: no pass of this lane made it. */
function addGiven(view, lane) {
  const given = lane.given || [];
  if (!given.length) return;
  const capsule = makeCapsule('given', given.map(([text, source, id]) => [text, source, id, null]));
  capsule.classList.add('given');
  capsule.dataset.step = 0;
  view.stream.append(capsule, el('wbr'));
  const tick = el('i', 'given');
  tick.style.flexGrow = given.length;
  view.track.append(tick);
}

function addSteps(view, lane) {
  if (lane.first && !view.stream.firstChild) {
    addGiven(view, lane);
    const first = makeCapsule('prefill', [[lane.first[0], 'prefill', lane.first[1], null]]);
    first.classList.add('prefill');
    first.dataset.step = 0;
    view.stream.append(first);
  }
  const fresh = document.createDocumentFragment();
  const ticks = document.createDocumentFragment();
  for (; view.drawn < lane.steps.length; view.drawn += 1) {
    const step = lane.steps[view.drawn];
    const capsule = makeCapsule(view.drawn, step.t);
    view.capsules.set(view.drawn, capsule);
    fresh.append(el('wbr'), capsule); // lines break between capsules
    const tick = el('i', step.t.length > 1 ? 'more' : '');
    tick.style.flexGrow = step.t.length;
    ticks.append(tick);
    const before = view.ends.length ? view.ends[view.ends.length - 1] : headOf(lane);
    view.ends.push(before + step.t.length);
  }
  view.stream.append(fresh);
  view.track.append(ticks);
}

function updateLane(view, lane, maxTokens) {
  view.lane = lane;
  addSteps(view, lane);
  write(view.name, lane.title);
  write(view.what, lane.subtitle || '');
  set(view.badge, { 'data-kind': lane.badge ? lane.badge.kind : null });
  write(view.badge, lane.badge ? lane.badge.text : '');
  showRule(view.rule, lane.rule);
  set(view.row, { 'data-lane-state': lane.state });
  const counters = lane.counters || {};
  write(view.numbers[0], number(counters.per_pass, 2));
  write(view.numbers[1], counters.speedup == null ? '\u2013' : number(counters.speedup, 2) + '\u00d7');
  write(view.numbers[2], seconds(counters.clock_ms));
  view.numbers[0].parentNode.title = (counters.tokens || 0) + ' tokens, ' + (counters.passes || 0) +
    ' passes of the target after prefill';
  view.numbers[1].parentNode.title = lane.apart
    ? 'none: this lane was measured on another occasion than the recording that it was added to'
    : "against the autoregressive lane's time, on each lane's own clock";
  const done = view.ends.length ? view.ends[view.ends.length - 1] : 0;
  view.track.style.setProperty('--share', Math.min(1, maxTokens ? done / maxTokens : 0));
  set(view.name, { title: (counters.tokens || 0) + ' tokens' });
}

/** Whether the lane's acceptance rule keeps the target's output; the tooltip says what that means. */
function showRule(mark, rule) {
  mark.hidden = !rule;
  if (!rule) return;
  write(mark, rule.text);
  set(mark, { 'data-lossless': rule.lossless ? 'yes' : 'no', title: rule.title, 'aria-label': rule.text + ': ' + rule.title });
}

/** Which step of a lane holds the output token at a position. */
function stepAt(view, position) {
  let low = 0;
  let high = view.ends.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (view.ends[middle] > position) high = middle;
    else low = middle + 1;
  }
  return Math.max(0, low);
}

function startOf(view, step) {
  return step > 0 ? view.ends[step - 1] : headOf(view.lane);
}

const LINE = 27; // pixels at the usual type size; the style sheet has the same line height

/** Scroll by whole lines, so that no line is ever cut. */
function keepInSight(stream, capsule) {
  const line = LINE * typeScale();
  const first = Math.floor((capsule.offsetTop - stream.offsetTop) / line);
  const last = Math.floor((capsule.offsetTop - stream.offsetTop + capsule.offsetHeight - 8) / line);
  const lines = Math.max(1, Math.floor(stream.clientHeight / line));
  const top = Math.round(stream.scrollTop / line);
  if (first < top) stream.scrollTop = first * line;
  else if (last >= top + lines) stream.scrollTop = Math.min(first, last - lines + 1) * line;
}

/** The current step gets a ring; the same place of the text is hinted at in the other lanes. */
function markLanes() {
  const chosen = laneViews.get(state.lane);
  if (!chosen) return;
  const position = chosen.ends.length ? startOf(chosen, state.step) : 0;
  for (const view of laneViews.values()) {
    const isChosen = view === chosen;
    const step = isChosen ? state.step : stepAt(view, position);
    const capsule = view.capsules.get(step) || null;
    if (view.marked && view.marked !== capsule) view.marked.classList.remove('now', 'here');
    if (capsule) {
      capsule.classList.toggle('now', isChosen);
      capsule.classList.toggle('here', !isChosen && !state.follow);
    }
    view.marked = capsule;
    if (view.chosen !== isChosen) {
      view.chosen = isChosen;
      view.row.classList.toggle('chosen', isChosen);
      set(view.name, { 'aria-pressed': isChosen ? 'true' : 'false' });
    }
  }
}

function scrollLanes() {
  for (const view of laneViews.values()) {
    if (state.follow && isBusy()) keepInSight(view.stream, view.stream.lastElementChild || view.stream);
    else if (view.marked) keepInSight(view.stream, view.marked);
  }
}
