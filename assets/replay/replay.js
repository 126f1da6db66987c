// What stands in for the server: the player's questions are answered from the blocks of this file.
// A block is gzipped JSON; it is unpacked when it is asked for, and the last few stay unpacked.

const KEEP_BLOCKS = 16;
const unpacked = new Map(); // block number -> its content, used last at the end
const wholeFile = new Promise((go) => {
  if (document.readyState !== 'loading') go();
  else document.addEventListener('DOMContentLoaded', go, { once: true });
});

async function blockElement(name) {
  const found = document.getElementById('block-' + name);
  if (found && found.nextElementSibling) return found; // what follows it is there, so it is complete
  await wholeFile;
  return document.getElementById('block-' + name);
}

async function unpack(name) {
  const letters = atob((await blockElement(name)).textContent);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i += 1) bytes[i] = letters.charCodeAt(i);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip')));
}

async function unpackJson(name) {
  return (await unpack(name)).json();
}

/** A block's content, as a promise. It is shared: what goes out is copied, for the drawing library writes into layouts. */
function block(number) {
  const held = unpacked.get(number) || unpackJson(number);
  unpacked.delete(number);
  unpacked.set(number, held);
  if (unpacked.size > KEEP_BLOCKS) unpacked.delete(unpacked.keys().next().value);
  return held;
}

function answering(answer) {
  return async (question) => {
    try {
      return { ok: true, ...(await answer(question)) };
    } catch (error) {
      return { ok: false, error: 'This part of the file cannot be read; the file may be damaged.' };
    }
  };
}

/** One view from lo to hi: the steps of all blocks in between, the rest from the last of them. */
async function viewBetween(first, size, lo, hi) {
  let steps = [];
  let common = {};
  for (let at = Math.floor(lo / size); at * size < hi; at += 1) {
    const { steps: all, ...rest } = await block(first + at);
    steps = steps.concat(all.slice(Math.max(0, lo - at * size), hi - at * size));
    common = rest;
  }
  return structuredClone({ ...common, steps });
}

function answersFrom(index) {
  return {
    frames: answering(async ({ lane, lo, hi, views, theme }) => {
      const last = Math.min(hi, index.value.lanes.find(({ id }) => id === lane).steps.length);
      const one = (view) => viewBetween(index.frames[lane][view][theme], index.block_steps, lo, last);
      return { views: Object.fromEntries(await Promise.all(views.map(async (view) => [view, await one(view)]))) };
    }),
    overview: answering(async ({ view, theme, axis }) => {
      const axes = index.overviews[view];
      return { view: await unpackJson(axes[axis || Object.keys(axes)[0]][theme]) };
    }),
    // reading it as text takes the mark in front away, by which Excel knows UTF-8
    table: answering(async ({ table }) => ({ name: table + '.csv', text: '\ufeff' + (await (await unpack(index.tables[table])).text()) })),
    recording: answering(async () => ({ name: 'comparison.json', text: await (await unpack(index.recording)).text() })),
  };
}

/** Light or dark as the browser says, told as on the page: by a class. */
function followTheme() {
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const show = () => {
    for (const node of [document.documentElement, document.body]) node.classList.toggle('dark', dark.matches);
  };
  dark.addEventListener('change', show);
  show();
}

function showPrompt(text) {
  const asked = document.getElementById('asked');
  asked.textContent = text;
  asked.hidden = false;
  asked.tabIndex = 0; // a long one scrolls
}

async function openReplay() {
  followTheme();
  const element = document.getElementById('player');
  let start;
  try {
    const index = await unpackJson('index');
    const library = await (await unpack('plotly')).blob();
    const plotly = URL.createObjectURL(new Blob([library], { type: 'text/javascript' }));
    start = () => startPlayer(element, { value: index.value, plotly }, answersFrom(index), () => {}, null);
    showPrompt(index.value.prompt);
  } catch (error) {
    start = () => showTrouble(typeof DecompressionStream === 'undefined');
  }
  start(); // what goes wrong in the player is its own error, not the file's
}

function showTrouble(old) {
  document.getElementById('opening').textContent = old
    ? 'This browser is too old for the file: it needs Chrome 98, Firefox 113, Safari 16.4 or newer.'
    : 'The recording cannot be read; the file may be damaged.';
}

openReplay();
