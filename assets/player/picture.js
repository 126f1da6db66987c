// A view as a picture to take along, SVG or PNG: what is on screen, with a heading, the legend, and what ran where.
// Plotly draws its own SVG; tables, texts and legends are copied from the page as rectangles and text (trace.js).

const PICTURE_PAD = 20;
const PICTURE_LEAST = 560; // pixels: the words around a picture need some room
const PNG_SCALE = 2;
const PNG_MOST = 8192; // pixels of an edge; larger canvases come out empty in some browsers
const PICTURE_FAILS = 'This picture could not be made; try another browser, or a screenshot.';

function pictureTool(figure) {
  const box = el('div');
  const list = makeMenu('image', box);
  const entry = (label, title, action) => set(button('dx-text', null, (event) => action(event.currentTarget), label), { title });
  list.append(
    entry('SVG', 'Lines and text that can be enlarged and edited', (pressed) => keepPicture(figure, 'svg', pressed)),
    entry('PNG', 'Pixels, twice as fine as on this screen', (pressed) => keepPicture(figure, 'png', pressed)),
  );
  const menu = set(box.firstChild, { hidden: true });
  on('figure', (drawn) => { if (drawn === figure) menu.hidden = !hasPicture(figure); });
  return menu;
}

function hasPicture(figure) {
  return !figure.sheet.box.hidden || (!figure.table.hidden && Boolean(figure.table.firstChild));
}

async function keepPicture(figure, format, pressed) {
  pressed.disabled = true;
  try {
    const picture = await composePicture(figure);
    const text = '<?xml version="1.0" encoding="UTF-8"?>\n' + soundXml(new XMLSerializer().serializeToString(picture.svg));
    const blob = format === 'svg' ? new Blob([text], { type: 'image/svg+xml' }) : await pngOf(text, picture.width, picture.height);
    keepFile(blob, pictureName(figure) + '.' + format);
  } catch (error) {
    showStatus(state.state, PICTURE_FAILS, null);
  } finally {
    pressed.disabled = false;
  }
}

/** eagle-step-12-tree: letters, digits and dashes only, for it becomes the name of a file. */
function pictureName(figure) {
  const words = isOverview(figure) ? [figure.name, figure.axis] : [state.lane, 'step', state.step + 1, figure.name];
  const safe = words.filter((word) => word !== null && word !== undefined).join('-').replace(/[^A-Za-z0-9]+/g, '-');
  return safe.replace(/^-+|-+$/g, '').slice(0, 80).toLowerCase() || 'picture';
}

function isOverview(figure) {
  return overviews.get(figure.name) === figure;
}

function colourOf(name) {
  return getComputedStyle(root).getPropertyValue('--dx-' + name).trim();
}

/** What is written around the picture: its title and where it is from above, the question and the model below. */
function pictureWords(figure) {
  const { value } = state;
  const lane = laneViews.get(state.lane);
  const title = isOverview(figure) ? (figure.view && figure.view.title) || figure.name : titleOf(figure.name);
  const lanes = value.lanes.map((each) => each.title).join(', ');
  const count = stepCount(state.lane);
  const where = isOverview(figure)
    ? [lanes, figure.axis, figure.sheet.overlay.firstChild && 'marked: ' + lane.lane.title + ', step ' + (state.step + 1)].filter(Boolean).join(' \u00b7 ')
    : [lane.lane.title, lane.lane.subtitle, 'step ' + (state.step + 1) + ' of ' + count].filter(Boolean).join(' \u00b7 ');
  return { title, where, below: ['Prompt: ' + oneLine(value.prompt), value.model, value.settings].filter(Boolean) };
}

async function composePicture(figure) {
  const words = pictureWords(figure);
  const drawn = figure.sheet.box.hidden ? pictureOfBox(figure.table) : await pictureOfPlot(figure);
  const legend = figure.legend.hidden || !figure.legend.childNodes.length ? null : pictureOfBox(figure.legend);
  const inner = Math.max(PICTURE_LEAST, drawn.width, legend ? legend.width : 0);
  const width = Math.ceil(inner + 2 * PICTURE_PAD);
  const sheet = svgNode('svg', { xmlns: SVG_SPACE, width });
  let top = PICTURE_PAD;
  const line = (text, size, colour, weight) => {
    for (const part of pictureLines(text, inner, size, weight).slice(0, 2)) {
      top += size;
      sheet.append(svgText(part, { x: PICTURE_PAD, y: top, 'font-size': size, fill: colour, 'font-weight': weight, 'font-family': PICTURE_FONT }));
      top += Math.round(size * 0.45);
    }
  };
  const place = (piece) => {
    set(piece.node, { x: PICTURE_PAD, y: top, width: piece.width, height: piece.height, overflow: 'visible' });
    sheet.append(piece.node);
    top += piece.height + 12;
  };
  line(words.title, 17, colourOf('ink'), 700);
  line(words.where, 13, colourOf('soft'), 400);
  top += 10;
  place(drawn);
  if (legend) place(legend);
  for (const text of words.below) line(text, 12, colourOf('soft'), 400);
  const height = Math.ceil(top + PICTURE_PAD - 6);
  set(sheet, { height, viewBox: '0 0 ' + width + ' ' + height, role: 'img', 'aria-label': words.title + ', ' + words.where });
  sheet.prepend(svgNode('rect', { width, height, fill: colourOf('card') }));
  return { svg: sheet, width, height };
}

/** Plotly's drawing, at its own size whatever the zoom on the page, with the ring or cursor that lies over it. */
async function pictureOfPlot(figure) {
  const { plot, overlay } = figure.sheet;
  const { width, height } = plot._fullLayout;
  const address = await plotly.toImage(plot, { format: 'svg', width, height });
  const text = soundXml(decodeURIComponent(address.slice(address.indexOf(',') + 1)));
  const parsed = new DOMParser().parseFromString(text, 'image/svg+xml');
  if (parsed.getElementsByTagName('parsererror').length) throw new Error('no picture');
  const node = svgNode('svg', {});
  node.append(document.importNode(parsed.documentElement, true), overlayCopy(overlay, width, height));
  return { node, width, height };
}

function pngOf(text, width, height) {
  const scale = Math.min(PNG_SCALE, PNG_MOST / width, PNG_MOST / height);
  const address = URL.createObjectURL(new Blob([text], { type: 'image/svg+xml' }));
  const image = new Image();
  return new Promise((done, failed) => {
    image.onload = () => {
      const canvas = set(el('canvas'), { width: Math.round(width * scale), height: Math.round(height * scale) });
      canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => (blob ? done(blob) : failed(new Error('no picture'))), 'image/png');
    };
    image.onerror = failed;
    image.src = address;
  }).finally(() => URL.revokeObjectURL(address));
}

addFigureTool(pictureTool);
