// Lessons: stops on a recorded run, with a card that says what to look at. The server chooses the stops (explorer/lessons).

let lessonOpen = null; // { name, title, run, stops, at, before }
const lessonParts = {};

/** Where one stands in a lesson, for links; null outside of lessons. `stop` counts from 0. */
function lessonPlace() {
  return lessonOpen ? { name: lessonOpen.name, stop: lessonOpen.at } : null;
}

function hasLesson(name) {
  return Boolean(server.lesson) && (props.lessons || []).some((lesson) => lesson.name === name);
}

/** False where there is no such lesson; otherwise a promise of having opened it. */
function openLesson(name, stop = 0) {
  return hasLesson(name) ? fetchLesson(name, stop) : false;
}

async function fetchLesson(name, stop) {
  if (isBusy()) return;
  const answer = await ask('lesson', { name });
  if (!answer.ok) return showStatus(state.state, answer.error, null);
  if (isBusy()) return; // a run was started meanwhile
  const before = lessonOpen ? lessonOpen.before : whatIsShown();
  endTour();
  lessonOpen = { ...answer.lesson, run: answer.value.run, at: 0, before };
  showRunOf(answer.value);
  showCard();
  goToStop(Math.max(0, Math.min(lessonOpen.stops.length - 1, Number(stop) || 0)));
  lessonParts.card.focus({ preventScroll: true });
}

function whatIsShown() {
  return { value: state.value, latest: state.latest, lane: state.lane, step: state.step, tabs: new Map(chosenTab) };
}

/** Shows a recorded run in place of another one that is not given up: it comes back, and may still be asked about. */
function showRunOf(value) {
  retired.delete(value.run);
  state.latest = value.run;
  take(value);
}

function leaveLesson() {
  if (!lessonOpen) return shutCard();
  const { before } = lessonOpen;
  dropCard();
  if (before.value) {
    chosenTab.clear();
    for (const [lane, tab] of before.tabs) chosenTab.set(lane, tab);
    showRunOf(before.value);
    state.latest = before.latest;
    showStep(before.lane, before.step);
  }
  return true;
}

const LESSON_LEFT = 'The lesson is left: its recording was copied, and the lane that you asked for is added to the copy.';

/** A lane is added to a copy of the lesson's recording: the card stays until it is closed, to say so. */
function endOnCopy() {
  lessonOpen = null;
  lookAt(null);
  write(lessonParts.count, '');
  lessonParts.text.textContent = LESSON_LEFT;
  lessonParts.back.hidden = lessonParts.next.hidden = true;
  sayLeave('Close', 'close', 'Close (Escape)');
}

function sayLeave(label, words, title) {
  write(lessonParts.leave, words);
  set(lessonParts.leave, { 'aria-label': label, title });
}

/** Closes a card that only says that its lesson is left. */
function shutCard() {
  if (lessonOpen || !lessonParts.card.isConnected) return false;
  dropCard();
  return true;
}

function dropCard() {
  lessonOpen = null;
  lookAt(null);
  lessonParts.card.remove();
  root.classList.remove('in-lesson');
  if (lessonParts.sayPlace) lessonParts.sayPlace();
}

function makeCard() {
  const card = set(el('section', 'dx-lesson'), { tabindex: -1, 'aria-label': 'Lesson' });
  const head = el('div', 'dx-lesson-head');
  lessonParts.title = el('h2', '', '');
  lessonParts.count = el('span', 'dx-lesson-count', '');
  lessonParts.back = button('dx-lesson-key', 'Previous stop', () => moveInLesson(-1), '\u2190');
  lessonParts.next = button('dx-lesson-key next', 'Next stop', () => moveInLesson(1));
  lessonParts.back.append(el('span', '', ' back'));
  lessonParts.next.append(el('span', '', 'next '), '\u2192');
  const leave = button('dx-text', 'Leave the lesson', leaveLesson, 'leave');
  lessonParts.back.title = 'Previous stop (b)';
  lessonParts.next.title = 'Next stop (n)';
  lessonParts.leave = leave;
  head.append(lessonParts.title, lessonParts.count, leave, lessonParts.back, lessonParts.next);
  lessonParts.text = set(el('p', 'dx-lesson-text'), { 'aria-live': 'polite' });
  card.append(head, lessonParts.text);
  lessonParts.card = card;
}

/** The card stands in the deck, so it is always in sight and over nothing; the sentence makes room for it. */
function showCard() {
  root.classList.add('in-lesson');
  lessonParts.back.hidden = lessonParts.next.hidden = false;
  sayLeave('Leave the lesson', 'leave', 'Back to what was here before (Escape)');
  lessonParts.sayPlace = parts.say.parentNode === parts.deck ? () => parts.deck.prepend(parts.say) : null;
  parts.panels.before(parts.say);
  parts.deck.prepend(lessonParts.card);
  write(lessonParts.title, lessonOpen.title);
  set(lessonParts.card, { 'aria-label': 'Lesson: ' + lessonOpen.title });
}

function moveInLesson(by) {
  if (!lessonOpen) return;
  const wanted = lessonOpen.at + by;
  if (wanted >= 0 && wanted < lessonOpen.stops.length) goToStop(wanted);
}

function goToStop(at) {
  const stop = lessonOpen.stops[at];
  const last = lessonOpen.stops.length - 1;
  lessonOpen.at = at;
  write(lessonParts.count, 'stop ' + (at + 1) + ' of ' + (last + 1));
  lessonParts.text.replaceChildren(...stop.say.map(([kind, text]) => (kind === 'token' ? el('em', 'tok', text) : document.createTextNode(text))));
  lessonParts.back.disabled = at === 0;
  lessonParts.next.disabled = at === last;
  showStep(stop.lane, stop.step);
  if (viewsOf(stop.lane).slice(1).includes(stop.look)) openTab(stop.look);
  if (state.pin !== stop.pin) pin(stop.pin);
  lookAt(stop.look);
  tell('stop', stop);
}

/** What a stop points at: a view of the lane, an overview, or a part of the player. */
function placeToLook(look) {
  if (look === 'rows') return parts.lanes;
  if (look === 'sentence') return parts.say;
  if (look === 'main' || viewsOf(state.lane)[0] === look) return parts.mainPanel;
  if (viewsOf(state.lane).includes(look)) return parts.sidePanel;
  const overview = overviews.get(look);
  return overview ? overview.box.closest('.dx-card') : null;
}

function lookAt(look) {
  for (const marked of root.querySelectorAll('[data-look]')) marked.removeAttribute('data-look');
  const place = look === null ? null : placeToLook(look);
  root.classList.toggle('all-rows', look === 'rows');
  if (!place) return;
  place.dataset.look = 'here';
  bringIntoSight(place);
}

/** Above the deck, its top first; what is in sight already stays where it is. */
function bringIntoSight(place) {
  const bottom = parts.deck.getBoundingClientRect().top;
  const box = place.getBoundingClientRect();
  const above = 48; // its heading comes along
  if (box.top >= 8 && box.bottom <= bottom - 8) return;
  window.scrollBy({ top: box.top - above, behavior: 'instant' });
}

// Pictures get their height when they are drawn, so what is pointed at may have moved.
on('drawn', () => {
  if (!lessonOpen || lessonOpen.settled === lessonOpen.at) return;
  lessonOpen.settled = lessonOpen.at;
  const marked = root.querySelector('[data-look]');
  if (marked) bringIntoSight(marked);
});
// A run that was started, or a file that was opened, ends the lesson; there is no way back from it.
on('run', shutCard);
on('value', (value) => {
  if (!lessonOpen || state.run === lessonOpen.run) return;
  if (value.continues === lessonOpen.run) endOnCopy();
  else dropCard();
});
on('lecture', () => { if (lessonOpen) lessonOpen.settled = null; });
on('built', makeCard);

escapes.splice(1, 0, leaveLesson); // after lecture mode, before the pin

bindKey('n', 'next stop of a lesson', () => moveInLesson(1));
bindKey('b', 'stop before', () => moveInLesson(-1));

for (const lesson of props.lessons || []) {
  addAction({
    menu: 'lessons', label: lesson.title, title: lesson.idea,
    press: () => openLesson(lesson.name), shown: () => hasLesson(lesson.name) && !isBusy(),
  });
}
