// The method in a few lines of pseudocode, and the phases of the step with what they took: the lines of a phase light up.

const codePanel = { lines: '', rows: [], phases: '', buttons: [], chosen: null, looked: null };

function buildCode() {
  const [card, head] = makeAside('code', 'Algorithm');
  codePanel.card = card;
  codePanel.row = set(el('div', 'dx-phases'), { role: 'group', 'aria-label': 'Phases of the step' });
  head.append(el('span', 'dx-hint', 'what ran in this step; choose a phase, or use , and .'));
  codePanel.list = el('ol', 'dx-code-lines');
  codePanel.note = el('p', 'dx-code-note');
  card.append(codePanel.row, codePanel.list, codePanel.note);
  codePanel.list.addEventListener('mouseover', (event) => {
    const line = event.target.closest('li');
    look(line ? line.dataset.phase : null);
  });
  card.addEventListener('mouseleave', () => look(null));
}

function layOutLines(lines) {
  const key = JSON.stringify(lines);
  if (codePanel.lines === key) return;
  codePanel.lines = key;
  codePanel.phases = '';
  codePanel.rows = lines.map(([phase, text]) => {
    const row = set(el('li'), { 'data-phase': phase });
    row.append(el('span', 'dx-code-text', text), el('span', 'dx-code-ms'));
    return row;
  });
  codePanel.list.replaceChildren(...codePanel.rows);
}

function milliseconds(ms) {
  return (ms < 9.95 ? ms.toFixed(ms < 0.095 ? 2 : 1) : Math.round(ms)) + ' ms';
}

/** A button a phase; the bar below it is its share of the step. They are kept while the step has the same phases. */
function layOutPhases(phases) {
  const key = phases.map(([name]) => name).join('|');
  if (codePanel.phases !== key) {
    codePanel.phases = key;
    codePanel.buttons = phases.map(([name]) => {
      const made = button('dx-phase', null, () => choosePhase(name));
      made.dataset.phase = name;
      made.append(el('span', '', name), el('b', ''));
      made.addEventListener('mouseenter', () => look(name));
      made.addEventListener('mouseleave', () => look(null));
      return made;
    });
    codePanel.row.replaceChildren(...codePanel.buttons);
  }
  const whole = phases.reduce((sum, [, ms]) => sum + ms, 0) || 1;
  phases.forEach(([, ms], place) => {
    write(codePanel.buttons[place].lastChild, milliseconds(ms));
    codePanel.buttons[place].style.setProperty('--share', ms / whole);
  });
}

function showCode() {
  if (!codePanel.card) return;
  const [frame, common] = asideFrame('code');
  const lines = (common && common.lines) || [];
  showAside(codePanel.card, 'code', frame);
  if (common && !lines.length) codePanel.card.hidden = true;
  parts.asides.classList.toggle('single', codePanel.card.hidden);
  if (!frame || !lines.length) return;
  layOutLines(lines);
  write(codePanel.note, common.note || '');
  layOutPhases(frame.phases);
  const took = new Map(frame.phases);
  const ran = new Set(frame.ran);
  let before = null;
  codePanel.rows.forEach((row, place) => {
    const phase = row.dataset.phase;
    row.classList.toggle('ran', ran.has(place));
    const words = took.has(phase) ? milliseconds(took.get(phase)) : 'before step 1';
    write(row.lastChild, phase === before ? '' : words);
    before = phase;
  });
  markPhase();
}

/** Lit: the phase that is looked at, else the chosen one; a bar marks its lines, not colour alone. */
function markPhase() {
  const phase = codePanel.looked || codePanel.chosen;
  codePanel.card.classList.toggle('picked', phase !== null);
  for (const row of codePanel.rows) row.classList.toggle('lit', row.dataset.phase === phase);
  for (const made of codePanel.buttons) {
    set(made, { 'aria-pressed': made.dataset.phase === codePanel.chosen ? 'true' : 'false' });
    made.classList.toggle('lit', made.dataset.phase === phase);
  }
}

function look(phase) {
  if (codePanel.looked === phase) return;
  codePanel.looked = phase;
  markPhase();
}

function choosePhase(phase) {
  codePanel.chosen = codePanel.chosen === phase ? null : phase;
  markPhase();
}

/** Through the phases of the step, and past the last one back to all of them. */
function nextPhase(by) {
  const names = [null, ...codePanel.buttons.map((made) => made.dataset.phase)];
  const at = Math.max(0, names.indexOf(codePanel.chosen));
  codePanel.chosen = names[(at + by + names.length) % names.length];
  markPhase();
}

bindKey(',', 'the phase before, in the algorithm', () => nextPhase(-1));
bindKey('.', 'the next phase', () => nextPhase(1));

on('built', buildCode);
for (const event of ['step', 'frames', 'run']) on(event, showCode);
