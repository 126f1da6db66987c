// Large pictures with less in them: where Python gives a short version of a step (`brief`), a button switches to it.

const BRIEF_KEPT = 'decoding-explorer.brief';
const briefNames = new Set(keptHere(BRIEF_KEPT, []).filter((name) => typeof name === 'string'));

function isBrief(figure) {
  return briefNames.has(figure.name);
}

/** What a figure draws of a step: the short version where there is one and the viewer wants it. */
function shownFrame(figure, frame) {
  return frame && frame.brief && isBrief(figure) ? frame.brief : frame;
}

addFigureTool((figure) => {
  const made = button('dx-text dx-brief-tool', null, () => {
    if (isBrief(figure)) briefNames.delete(figure.name);
    else briefNames.add(figure.name);
    keepHere(BRIEF_KEPT, [...briefNames]);
    redrawFigure(figure);
  });
  made.hidden = true;
  on('figure', (drawn) => {
    if (drawn !== figure || figure.onpick) return;
    const frame = frameAt(state.lane, figure.name, state.step);
    made.hidden = !frame || !frame.brief;
    if (made.hidden) return;
    write(made, isBrief(figure) ? frame.brief.all : frame.brief.words);
    set(made, { 'aria-pressed': isBrief(figure) ? 'true' : 'false' });
  });
  return made;
});
