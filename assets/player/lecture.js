// Lecture mode: large type, nothing of the page but the player, and keys for everything that a speaker does.

const LECTURE_TYPE = [[1800, 160], [1300, 137.5], [900, 125], [0, 112.5]]; // from a width on: type size in per cent
let lectureButton = null;

function isLecture() {
  return document.documentElement.dataset.lecture === 'on';
}

function setLecture(on) {
  if (on === isLecture()) return;
  const page = document.documentElement;
  if (on) page.dataset.lecture = 'on';
  else delete page.dataset.lecture;
  sizeLecture();
  if (lectureButton) {
    write(lectureButton, on ? 'leave lecture' : 'lecture');
    set(lectureButton, { 'aria-pressed': on ? 'true' : 'false' });
  }
  if (!on && document.fullscreenElement) document.exitFullscreen().catch(() => {});
  if (on && isTyping(document.activeElement)) document.activeElement.blur(); // the keys belong to the player
  if (on) window.scrollTo({ top: 0, behavior: 'instant' });
  tell('lecture', on);
}

/** The whole page's type grows, and pictures with it; they are drawn again, since they know no such unit. */
function sizeLecture() {
  const [, percent] = LECTURE_TYPE.find(([from]) => window.innerWidth >= from);
  const wanted = isLecture() ? percent + '%' : '';
  if (document.documentElement.style.fontSize === wanted) return;
  document.documentElement.style.fontSize = wanted;
  typeScaleKnown = null; // it is another one
  for (const figure of [...boxes.values(), ...overviews.values()]) {
    figure.drawn = figure.sheet.token = null;
    if (figure.spare) figure.spare.token = null;
  }
  delete root.dataset.drawnStep;
  scrollLanes();
  scheduleDraw();
  drawOverviews();
}

/** Where the browser has it; a frame around the page may forbid it, and then large type alone has to do. */
function toggleFullScreen() {
  const done = document.fullscreenElement
    ? document.exitFullscreen()
    : document.documentElement.requestFullscreen && document.documentElement.requestFullscreen();
  if (done) done.catch(() => speak('This browser does not let the page fill the screen.'));
}

/** Arrows and the page keys step, so a speaker scrolls by letters. */
function scrollPage(by) {
  window.scrollBy({ top: by * window.innerHeight * 0.45, behavior: 'instant' });
}

/** Most specific first: what Escape ends. Parts add theirs in front; the first that returns true has done it. */
const escapes = [
  () => isLecture() && (setLecture(false), true),
  () => (pin(null), true),
];

function escapePressed() {
  for (const leave of escapes) if (leave()) return;
}

bindKey('PageDown', 'the same as the right arrow, for clickers', () => pageStep(1));
bindKey('PageUp', 'the same as the left arrow', () => pageStep(-1));
bindKey('l', 'lecture mode: large type, only the player', () => setLecture(!isLecture()));
bindKey('f', 'full screen', toggleFullScreen);
bindKey('d', 'scroll down', () => scrollPage(1));
bindKey('u', 'scroll up', () => scrollPage(-1));
bindKey('Escape', 'leave lecture mode or a lesson, or let go of the pinned token', escapePressed);

/** A clicker has two keys: in a lesson they go from stop to stop, otherwise from step to step. */
function pageStep(by) {
  if (lessonPlace()) moveInLesson(by);
  else goTo(state.step + by);
}

addAction({
  label: 'lecture',
  title: 'Large type, only the player, keys for everything (l); Escape leaves',
  press: (pressed) => {
    lectureButton = pressed;
    setLecture(!isLecture());
  },
});

on('built', () => {
  lectureButton = actions.find((action) => action.label === 'lecture').button;
  set(lectureButton, { 'aria-pressed': 'false' });
});
on('resize', sizeLecture);
