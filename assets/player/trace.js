// Parts of the page copied into SVG: every box with a ground or a border, every piece of text, where the browser put them.

const SVG_SPACE = 'http://www.w3.org/2000/svg';
const PICTURE_FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
const CLEAR = /^(transparent|rgba\(\d+, \d+, \d+, 0\))$/;
const NO_XML = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;
const SIDES = ['top', 'right', 'bottom', 'left'];
const DASHES = { dashed: '4 2.5', dotted: '1.5 2' };
let rulerPen = null;

/** XML has no form for some characters that a token may hold. */
function soundXml(text) {
  return text.replace(NO_XML, '\ufffd');
}

function svgNode(name, attributes) {
  return set(document.createElementNS(SVG_SPACE, name), attributes);
}

function svgText(text, attributes) {
  const node = svgNode('text', { 'xml:space': 'preserve', style: 'white-space: pre', ...attributes });
  node.textContent = soundXml(text);
  return node;
}

function rulerOf(font) {
  if (!rulerPen) rulerPen = el('canvas').getContext('2d');
  rulerPen.font = font;
  return rulerPen;
}

/** Lines of words that fit a width. */
function pictureLines(text, width, size, weight) {
  const ruler = rulerOf(weight + ' ' + size + 'px ' + PICTURE_FONT);
  const lines = [''];
  for (const word of text.split(' ')) {
    const longer = lines[lines.length - 1] + (lines[lines.length - 1] ? ' ' : '') + word;
    if (ruler.measureText(longer).width <= width || !lines[lines.length - 1]) lines[lines.length - 1] = pictureCut(longer, width, ruler);
    else lines.push(pictureCut(word, width, ruler));
  }
  if (lines.length > 2) lines[1] = pictureCut(lines[1] + ' \u2026', width, ruler);
  return lines;
}

function pictureCut(text, width, ruler) {
  let kept = text;
  while (kept.length > 1 && ruler.measureText(kept + '\u2026').width > width) kept = kept.slice(0, -1).replace(/[\ud800-\udbff]$/, '');
  return kept === text || ruler.measureText(text).width <= width ? text : kept + '\u2026';
}

/** An element with all that is in it, at its full size, also what is scrolled out of sight. */
function pictureOfBox(box) {
  const scroller = box.closest('.dx-scroller');
  const before = scroller ? [scroller.scrollTop, scroller.scrollLeft] : null;
  if (scroller) scroller.scrollTop = scroller.scrollLeft = 0; // headings that stick would stand elsewhere
  const node = svgNode('svg', {});
  const base = box.getBoundingClientRect();
  copyInto(node, box, base);
  if (scroller) [scroller.scrollTop, scroller.scrollLeft] = before;
  return { node, width: Math.max(box.scrollWidth, base.width), height: Math.ceil(Math.max(box.scrollHeight, base.height)) };
}

function overlayCopy(overlay, width, height) {
  const node = svgNode('svg', { width, height, overflow: 'hidden' });
  const base = overlay.getBoundingClientRect();
  const scale = base.width / (overlay.offsetWidth || 1) || 1; // a picture that is enlarged on the page
  const group = svgNode('g', { transform: 'scale(' + 1 / scale + ')' });
  for (const mark of overlay.children) copyInto(group, mark, base);
  node.append(group);
  return node;
}

function copyInto(out, node, base) {
  const style = getComputedStyle(node);
  if (style.display === 'none' || style.visibility === 'hidden') return;
  copyBox(out, node, style, base);
  for (const child of node.childNodes) {
    if (child.nodeType === Node.ELEMENT_NODE) copyInto(out, child, base);
    else if (child.nodeType === Node.TEXT_NODE) copyText(out, child, style, base);
  }
}

function groundOf(style) {
  if (!CLEAR.test(style.backgroundColor)) return style.backgroundColor;
  const colours = style.backgroundImage.match(/rgba?\([^)]*\)/g); // of a pattern, the colour that it begins with
  return colours ? colours[0] : null;
}

/** Ground and border of each of its boxes: what breaks over lines has several. */
function copyBox(out, node, style, base) {
  const ground = groundOf(style);
  const sides = SIDES.map((side) => ({
    side, width: style['border-' + side + '-style'] === 'none' ? 0 : parseFloat(style['border-' + side + '-width']), colour: style['border-' + side + '-color'], kind: style['border-' + side + '-style'],
  })).filter(({ width, colour }) => width > 0 && !CLEAR.test(colour));
  const inset = style.boxShadow.match(/^(rgba?\([^)]*\)) 0px 0px 0px ([\d.]+)px inset$/); // a border that takes no room
  const mark = getComputedStyle(node, '::before').content;
  if (!ground && !sides.length && !inset && !/^".+"$/.test(mark)) return;
  for (const rect of node.getClientRects()) {
    const at = { x: rect.left - base.left, y: rect.top - base.top, width: rect.width, height: rect.height };
    const round = Math.min(parseFloat(style.borderTopLeftRadius) * (style.borderTopLeftRadius.endsWith('%') ? rect.width / 100 : 1) || 0, rect.width / 2);
    if (ground || sides.length === 4) out.append(frameNode(at, round, ground, sides.length === 4 ? sides[0] : null, style.opacity));
    if (inset) out.append(frameNode(at, round, null, { width: Number(inset[2]), colour: inset[1], kind: 'solid' }, style.opacity));
    if (sides.length < 4) for (const side of sides) out.append(edgeNode(at, side));
    if (/^".+"$/.test(mark)) out.append(markNode(at, mark, getComputedStyle(node, '::before')));
  }
}

function frameNode({ x, y, width, height }, round, ground, border, opacity) {
  const half = border ? border.width / 2 : 0;
  return svgNode('rect', {
    x: x + half, y: y + half, width: Math.max(0, width - 2 * half), height: Math.max(0, height - 2 * half), rx: round,
    fill: ground || 'none', opacity: opacity === '1' ? null : opacity,
    stroke: border ? border.colour : null, 'stroke-width': border ? border.width : null, 'stroke-dasharray': border ? DASHES[border.kind] : null,
  });
}

function edgeNode({ x, y, width, height }, { side, width: thick, colour }) {
  const flat = side === 'top' || side === 'bottom';
  return svgNode('rect', {
    x: side === 'right' ? x + width - thick : x, y: side === 'bottom' ? y + height - thick : y,
    width: flat ? width : thick, height: flat ? thick : height, fill: colour,
  });
}

/** What a style sheet writes before an element, such as the cross of a mark in a legend. */
function markNode({ x, y, height }, content, style) {
  const text = content.slice(1, -1).replace(/\\(["\\])/g, '$1');
  const size = parseFloat(style.fontSize);
  return svgText(text, { x, y: y + height / 2 + size * 0.35, 'font-size': size, 'font-family': PICTURE_FONT, fill: style.color });
}

/** A text by lines. Its width is written down too, so that another machine's font cannot run into what follows. */
function copyText(out, node, style, base) {
  if (!node.data.trim()) return;
  const ascent = ascentOf(style);
  for (const { text, rect } of textLines(node)) {
    if (!text.trim() || !rect.width) continue;
    const decoration = style.textDecorationLine === 'none' ? inheritedLine(node.parentNode) : style.textDecorationLine;
    out.append(svgText(text, {
      x: rect.left - base.left, y: rect.top - base.top + ascent, 'font-size': style.fontSize, 'font-family': style.fontFamily,
      'font-weight': style.fontWeight, fill: style.color, 'text-decoration': decoration === 'none' ? null : decoration,
      textLength: text.length > 1 ? rect.width : null, lengthAdjust: text.length > 1 ? 'spacingAndGlyphs' : null,
    }));
  }
}

function inheritedLine(node) {
  const around = node.closest('.dx-piece, .dx-cell');
  return around ? getComputedStyle(around).textDecorationLine : 'none';
}

function ascentOf(style) {
  return rulerOf(style.fontWeight + ' ' + style.fontSize + ' ' + style.fontFamily).measureText('x').fontBoundingBoxAscent;
}

/** The parts of a text node that stand on one line each, with their places. */
function textLines(node) {
  const range = document.createRange();
  range.selectNodeContents(node);
  const all = [...range.getClientRects()];
  if (all.length <= 1) return all.map((rect) => ({ text: node.data.trim(), rect }));
  const lines = [];
  let at = 0;
  for (const char of node.data) {
    range.setStart(node, at);
    range.setEnd(node, at + char.length);
    at += char.length;
    const rect = [...range.getClientRects()].pop();
    if (!rect || !rect.width) continue;
    const line = lines[lines.length - 1];
    if (!line || Math.abs(line.rect.top - rect.top) > 3) lines.push({ text: char, rect: { left: rect.left, top: rect.top, width: rect.width } });
    else [line.text, line.rect.width] = [line.text + char, rect.right - line.rect.left];
  }
  return lines;
}
