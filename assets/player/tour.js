// A tour of the real page: a ring around one control after another, and a card beside it. Offered once, never in the way.

const TOUR_KEPT = 'decoding-explorer.toured';
const TOUR = [
  ['#prompt', 'The prompt', 'All lanes decode the same text. Type your own here, or take one of the examples below the box.'],
  ['#edit-lanes', 'The lanes', 'Each lane is a method with its parameters. Here you choose which ones race, and set seed, temperature and length.'],
  ['#run', 'Run', 'The lanes then decode side by side, each on a clock of its own, so that you see their true relative speed.'],
  ['.dx-lanes', 'The output', 'One capsule is one pass of the target. What is underlined was drafted and accepted: a long capsule is a pass that gained much. Click a capsule to see its step.'],
  ['[data-narration]', 'What happened', 'One or two sentences about the step that is shown, taken from the recording.'],
  ['.dx-panels', 'The views', 'Pictures of this step. Hover a token to find it in every view, click it to pin it; the tabs hold further views.'],
  ['.dx-buttons', 'Stepping', 'Step back and forth, or play. The arrow keys and space do the same; the bars are the steps, as high as the tokens they gained.'],
  ['.dx-overviews .dx-card', 'The whole run', 'Further down: where the time went, the race, acceptance, the differences between the lanes, and a cost model.'],
];
const tourParts = {};
let tourStops = null; // the stops that this page has, while the tour runs
let tourAt = 0;

function tourPlace(selector) {
  const found = root.matches(selector) ? root : document.querySelector(selector);
  return found && found.getClientRects().length ? found : null;
}

function startTour() {
  rememberTour();
  setLecture(false);
  leaveLesson();
  tourStops = TOUR.filter(([selector]) => tourPlace(selector));
  if (!tourStops.length) return endTour();
  tourParts.from = document.activeElement;
  root.append(tourParts.ring, tourParts.card);
  showTourStop(0);
}

function endTour() {
  if (!tourStops) return false;
  tourStops = null;
  tourParts.ring.remove();
  tourParts.card.remove();
  const { from } = tourParts;
  if (from && from.isConnected && from !== document.body) from.focus({ preventScroll: true });
  return true;
}

function moveInTour(by) {
  if (tourAt + by >= tourStops.length) endTour();
  else showTourStop(Math.max(0, tourAt + by));
}

function showTourStop(at) {
  const [selector, title, words] = tourStops[at];
  tourAt = at;
  write(tourParts.title, title);
  write(tourParts.count, at + 1 + ' of ' + tourStops.length);
  write(tourParts.text, words);
  tourParts.back.disabled = at === 0;
  write(tourParts.next, at === tourStops.length - 1 ? 'done' : 'next \u2192');
  const place = tourPlace(selector);
  if (place) place.scrollIntoView({ block: 'center', behavior: 'instant' });
  placeTour();
  tourParts.next.focus({ preventScroll: true });
}

/** The ring lies over the control, the card below it, or above, or at its foot where there is no room; not on the deck. */
function placeTour() {
  if (!tourStops) return;
  const place = tourPlace(tourStops[tourAt][0]);
  if (!place) return;
  const box = place.getBoundingClientRect();
  const deck = parts.deck.contains(place) ? window.innerHeight : parts.deck.getBoundingClientRect().top;
  const room = { width: document.documentElement.clientWidth, height: Math.min(deck, window.innerHeight) };
  const edge = 5;
  const top = Math.max(4, box.top - edge);
  const bottom = Math.min(room.height - 4, box.bottom + edge);
  const left = Math.max(4, box.left - edge);
  Object.assign(tourParts.ring.style, {
    top: top + 'px', left: left + 'px', height: Math.max(24, bottom - top) + 'px',
    width: Math.min(room.width - 4, box.right + edge) - left + 'px',
  });
  const { offsetWidth: width, offsetHeight: height } = tourParts.card;
  const below = bottom + 12 + height <= room.height;
  const above = top - 12 - height >= 0;
  const y = below ? bottom + 12 : above ? top - 12 - height : room.height - height - 12;
  const x = Math.max(12, Math.min(room.width - width - 12, box.left));
  Object.assign(tourParts.card.style, { top: y + 'px', left: x + 'px' });
}

function buildTour() {
  const card = set(el('section', 'dx-tour'), { role: 'dialog', 'aria-label': 'Tour of the page' });
  const head = el('div', 'dx-tour-head');
  tourParts.title = el('h2', '', '');
  tourParts.count = el('span', 'dx-hint', '');
  head.append(tourParts.title, tourParts.count);
  tourParts.text = set(el('p'), { 'aria-live': 'polite' });
  tourParts.back = button('dx-lesson-key', null, () => moveInTour(-1), '\u2190 back');
  tourParts.next = button('dx-lesson-key next', null, () => moveInTour(1), 'next \u2192');
  const foot = el('div', 'dx-tour-foot');
  foot.append(button('dx-text', null, endTour, 'end the tour'), tourParts.back, tourParts.next);
  card.append(head, tourParts.text, foot);
  card.addEventListener('keydown', tourKey);
  tourParts.card = card;
  tourParts.ring = set(el('div', 'dx-tour-ring'), { 'aria-hidden': 'true' });
  window.addEventListener('scroll', placeTour, { passive: true });
  window.addEventListener('resize', placeTour);
}

const TOUR_KEYS = { ArrowRight: 1, PageDown: 1, ArrowLeft: -1, PageUp: -1 };

function tourKey(event) {
  if (event.key === 'Escape') endTour();
  else if (TOUR_KEYS[event.key]) moveInTour(TOUR_KEYS[event.key]);
  else return;
  event.preventDefault();
  event.stopPropagation();
}

// The offer: one line above the lanes, until it was answered or the viewer has begun by himself

function rememberTour() {
  if (tourParts.offer) tourParts.offer.remove();
  tourParts.offer = null;
  keepHere(TOUR_KEPT, true);
}

function offerTour() {
  if (!trigger || keptHere(TOUR_KEPT, false)) return;
  tourParts.offer = set(el('div', 'dx-offer'), { role: 'note', 'aria-label': 'Tour' });
  tourParts.offer.append(
    el('span', '', 'First time here?'),
    button('dx-text', null, startTour, 'Take the tour'),
    button('dx-text', null, rememberTour, 'no, thanks'),
  );
  parts.actions.parentNode.before(tourParts.offer);
}

on('built', () => {
  buildTour();
  offerTour();
});
on('value', () => { if (tourParts.offer && isBusy()) rememberTour(); });

escapes.unshift(endTour);
