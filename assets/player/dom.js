// Small helpers for the DOM. Text goes in through textContent only: a prompt may hold anything.

function el(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined && text !== null) node.textContent = String(text);
  return node;
}

function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) node.removeAttribute(name);
    else node.setAttribute(name, value === true ? '' : String(value));
  }
  return node;
}

function write(node, text) {
  // Writing the same text again would restart screen readers and cost a layout.
  if (node.textContent !== text) node.textContent = text;
}

function button(className, label, onclick, text) {
  const node = set(el('button', className, text), { type: 'button', 'aria-label': label });
  if (onclick) node.addEventListener('click', onclick);
  return node;
}

function icon(path) {
  const space = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(space, 'svg');
  set(svg, { viewBox: '0 0 20 20', width: 18, height: 18, 'aria-hidden': 'true', focusable: 'false' });
  const shape = document.createElementNS(space, 'path');
  set(shape, { d: path, fill: 'currentColor' });
  svg.append(shape);
  return svg;
}

// Characters that would reorder, hide or erase the text around them.
const UNSEEN = /[\u0080-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;
const JOINERS = /^[\u200c\u200d\ufe0e\ufe0f]+$/;

function codePoint(text) {
  return '\u2039' + text.codePointAt(0).toString(16).toUpperCase().padStart(4, '0') + '\u203a';
}

function spaces(run) {
  return run.length < 4 ? '\u2423'.repeat(run.length) : '\u2423\u00d7' + run.length;
}

/** A token as people can read it: white space, control characters and lone marks get a picture. */
function readable(text) {
  if (text === '') return '\u25af';
  let out = text.replace(/\r/g, '\u240d').replace(/\n/g, '\u21b5').replace(/\t/g, '\u21e5');
  if (/^[ \u21b5\u240d\u21e5]+$/.test(out)) out = out.replace(/ +/g, spaces);
  out = out.replace(/[\u0000-\u001f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0)));
  out = out.replace(/\u007f/g, '\u2421');
  if (JOINERS.test(text)) return codePoint(text);
  // A zero-width joiner inside an emoji sequence holds it together and stays.
  out = out.replace(UNSEEN, (c) => (c === '\u200d' ? c : codePoint(c)));
  return /^\p{M}/u.test(out) ? '\u25cc' + out : out;
}

function isSpace(text) {
  return text !== '' && text.trim() === '';
}

function seconds(ms) {
  if (ms === null || ms === undefined) return '\u2013';
  return ms < 1000 ? Math.round(ms) + ' ms' : (ms / 1000).toFixed(ms < 9950 ? 1 : 0) + ' s';
}

/** Rounded as Python formats: a number that lies just between two goes to the even one (toFixed takes the larger). */
function number(value, digits) {
  if (value === null || value === undefined) return '\u2013';
  const between = Number(value) * 2 ** (digits + 1); // only an odd whole number here lies just between
  if (Math.abs(between % 2) !== 1) return Number(value).toFixed(digits);
  const below = Math.floor(Number(value) * 10 ** digits);
  return ((below % 2 ? below + 1 : below) / 10 ** digits).toFixed(digits);
}

function isPlain(value) {
  return value !== null && typeof value === 'object' && !Array.isArray(value);
}

function merged(base, over) {
  const out = { ...base };
  for (const [key, value] of Object.entries(over || {})) {
    out[key] = isPlain(value) && isPlain(out[key]) ? merged(out[key], value) : value;
  }
  return out;
}
