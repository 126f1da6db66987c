// Words beside an overview: sentences that Python made from the run's numbers, and what the numbers mean. The meanings
// are behind a summary, which a key or a finger opens, not only in labels that need a pointer.

function showTerms(figure) {
  const { words = [], definitions = [] } = figure.view;
  if (!figure.terms) {
    figure.terms = { words: el('ul', 'dx-verdicts'), list: el('dl', 'dx-terms-list'), box: el('details', 'dx-terms') };
    figure.terms.box.append(el('summary', '', 'What these numbers mean'), figure.terms.list);
    figure.box.after(figure.terms.words, figure.terms.box);
  }
  const { words: said, list, box } = figure.terms;
  said.hidden = !words.length;
  box.hidden = !definitions.length;
  said.replaceChildren(...words.map((sentence) => el('li', '', sentence)));
  list.replaceChildren(...definitions.flatMap(([term, meaning]) => {
    const name = el('dt');
    name.append(el('dfn', '', term));
    return [name, el('dd', '', meaning)];
  }));
}

on('figure', (figure) => {
  if (!figure.view || figure.termsOf === figure.view || !(figure.view.words || figure.view.definitions)) return;
  figure.termsOf = figure.view;
  showTerms(figure);
});

/** The first token that plain decoding did not write is marked where it stands; the badge says why it may differ. */
function markParting(lane) {
  const view = laneViews.get(lane.id);
  if (!view || !Number.isInteger(lane.parts_at) || view.parting === lane.parts_at) return;
  const token = view.stream.querySelectorAll('.dx-step:not(.given) .dx-t:not(.none)')[lane.parts_at];
  if (!token) return;
  view.parting = lane.parts_at;
  token.classList.add('parting');
  token.title += ' \u00b7 the first token that is not the baseline\u2019s; ' + lane.badge.text;
}

on('value', (value) => { for (const lane of value.lanes || []) markParting(lane); });
