// Links: copied from the heading, opened with the page. The server writes and reads what a link asks for
// (explorer/ui/links.py); lane and step are added here, and the address follows them once there is a link in it.

const COPIED_MS = 2000;
const ADDRESS_MS = 400; // browsers refuse an address that changes too often
let shareQuery = ''; // of the run on screen, without lane and step; '' while the address holds no link
let shareRun = ''; // the run that the query belongs to
let shareLanes = null; // its lanes -> their names in the link; null where they are the same
let sharePlace = null; // where an opened link wants to end
let shareNote = ''; // what could not be taken from an opened link
let addressTimer = null;

/** Lane and step. A lane that was added to the run may be called otherwise in the link, or not be in it. */
function sharePlaceWords() {
  const lane = shareLanes ? shareLanes[state.lane] : state.lane;
  if (!lane || !stepCount(state.lane)) return '';
  return '&show=' + encodeURIComponent(lane) + '&step=' + (state.step + 1);
}

function keepQuery(answer) {
  [shareQuery, shareLanes, shareRun] = [answer.query, answer.lanes || null, state.run];
}

/** Names of Gradio's own, such as __theme, stay in the address and out of the link. */
function gradioWords() {
  const kept = new URLSearchParams();
  for (const [name, value] of new URLSearchParams(location.search)) if (name.startsWith('__')) kept.append(name, value);
  return kept.toString();
}

function setAddress(query) {
  try {
    const words = [query, gradioWords()].filter(Boolean).join('&');
    history.replaceState(history.state, '', location.pathname + (words ? '?' + words : '') + location.hash);
  } catch (error) {
    // an address that the browser refuses is not needed for anything else
  }
}

function followInAddress() {
  clearTimeout(addressTimer);
  if (!shareQuery || sharePlace || shareRun !== state.run) return;
  addressTimer = setTimeout(() => setAddress(shareQuery + sharePlaceWords()), ADDRESS_MS);
}

/** A lesson says which one it is and where one stands in it; its parts may not be there. */
function lessonQuery() {
  const at = typeof lessonPlace === 'function' ? lessonPlace() : null;
  return at ? 'v=1&lesson=' + encodeURIComponent(at.name) + '&stop=' + (at.stop + 1) : '';
}

async function copyLink(pressed) {
  const lesson = lessonQuery();
  let query = lesson;
  if (!lesson) {
    const answer = await ask('link', { run: state.run });
    if (!answer.ok) return showStatus(state.state, answer.error, null);
    keepQuery(answer);
    query = answer.query + sharePlaceWords();
    setAddress(query);
  }
  await handOver(pressed, location.origin + location.pathname + '?' + query);
}

/** Into the clipboard; where the browser refuses that, as a text to copy by hand. */
async function handOver(pressed, address) {
  try {
    await navigator.clipboard.writeText(address);
  } catch (error) {
    return showAddress(pressed, address);
  }
  hideAddress();
  write(pressed, 'copied');
  setTimeout(() => write(pressed, 'copy link'), COPIED_MS);
}

function showAddress(pressed, address) {
  hideAddress();
  const box = set(el('div', 'dx-address'), { role: 'group', 'aria-label': 'Link to this view' });
  const field = set(el('input'), { type: 'text', readonly: true, 'aria-label': 'Link to this view' });
  field.value = address;
  const close = button('dx-text', 'Close the link', () => { hideAddress(); pressed.focus(); }, 'close');
  box.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape') return;
    event.stopPropagation();
    hideAddress();
    pressed.focus();
  });
  box.append(el('span', '', 'Copy this link:'), field, close);
  parts.address = box;
  parts.actions.parentNode.after(box);
  field.focus();
  field.select();
}

function hideAddress() {
  if (parts.address) parts.address.remove();
  parts.address = null;
}

// Opening a link

/** The page's address is shown to the server, which fills prompt and lanes; see shareArrived(). */
function openAddress() {
  const query = location.search;
  if (!trigger || !new URLSearchParams(query).has('v')) return;
  setTimeout(() => trigger('arrive', { query }), 0);
}

function takeLink() {
  const link = props.link;
  if (!link) return;
  shareNote = String(link.message || '');
  sharePlace = { lane: String(link.show || ''), step: Number.isInteger(link.step) ? link.step : null, from: state.run };
  if (shareNote) showStatus(state.state, '', null);
  if (link.lesson) return openLinkedLesson(link);
  if (link.open === state.run) goToPlace();
  else if (!link.runs) sharePlace = null;
}

function openLinkedLesson(link) {
  sharePlace = null;
  if (typeof openLesson === 'function' && openLesson(link.lesson, Number.isInteger(link.stop) ? link.stop : 0) !== false) return;
  shareNote = 'The link names a lesson that this page does not have.';
  showStatus(state.state, '', null);
}

/** Prompt and lanes stand in the page now; a link to a run is run as if the viewer had pressed the button. */
function shareArrived() {
  const link = props.link;
  const press = document.getElementById('run');
  if (link && link.runs && sharePlace && press) press.click();
}

function goToPlace() {
  const { lane, step } = sharePlace;
  sharePlace = null;
  if (!lane || laneViews.has(lane)) showStep(lane || state.lane, step === null ? state.step : step);
  linkIsHere();
}

/** The address asked for what is on screen now, so it goes on saying where one is. */
async function linkIsHere() {
  const { run } = state;
  const answer = await ask('link', { run });
  if (!answer.ok || run !== state.run) return;
  keepQuery(answer);
  followInAddress();
}

/** The viewer watches the run; at its end the page is where the link's maker was. Who moves about stays there. */
function whenLinkedRunEnds() {
  if (!sharePlace || isBusy()) return;
  if (state.state === 'error' || sharePlace.left === state.run) sharePlace = null;
  else if (state.run !== sharePlace.from && laneViews.size) goToPlace();
}

on('built', () => {
  openAddress();
  watch('link', takeLink);
  root.addEventListener('dx-arrived', shareArrived);
});
on('value', whenLinkedRunEnds);
on('step', () => {
  if (sharePlace && isBusy() && !state.follow && state.run !== sharePlace.from) sharePlace.left = state.run;
  followInAddress();
});
on('run', () => {
  hideAddress();
  if (!sharePlace) shareNote = '';
  if (shareQuery && shareRun !== state.run) {
    shareQuery = '';
    setAddress(''); // reloading must not bring back another run
  }
});
on('status', () => {
  if (shareNote) parts.status.append(set(el('span', 'dx-link-note', shareNote), { title: shareNote }));
});

addAction({
  label: 'copy link', title: 'A link that brings up this prompt, these lanes and settings, this lane and this step',
  press: copyLink, shown: () => Boolean(server.link) && isWhole(),
});
for (const [table, label, title] of [
  ['lanes', 'numbers by lane (CSV)', 'One row a lane, for a spreadsheet'],
  ['steps', 'numbers by step (CSV)', 'One row a step of every lane, for a spreadsheet'],
]) {
  addAction({
    menu: 'save', label, title, press: (pressed) => download(pressed, 'table', { table }),
    shown: () => Boolean(server.table) && isWhole(),
  });
}
