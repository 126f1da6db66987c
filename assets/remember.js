// What the viewer chose last is remembered in the browser; it is checked like anything that comes from outside.

const SETUP_KEY = 'dx-setup';
const SETUP_VERSION = 1;

function remember() {
  try {
    localStorage.setItem(SETUP_KEY, JSON.stringify({ version: SETUP_VERSION, ...valueNow() }));
  } catch (error) {
    // storage may be forbidden or full; then nothing is remembered
  }
}

function forget() {
  try {
    localStorage.removeItem(SETUP_KEY);
  } catch (error) {
    // nothing was remembered
  }
}

function remembered() {
  try {
    const kept = JSON.parse(localStorage.getItem(SETUP_KEY));
    return kept && kept.version === SETUP_VERSION ? kept : null;
  } catch (error) {
    return null;
  }
}

/** The known fields of what was kept, each at its default where the kept value would be refused. */
function checkedValues(fields, kept) {
  const given = kept !== null && typeof kept === 'object' ? kept : {};
  return Object.fromEntries((fields || []).map((field) => {
    const value = given[field.name];
    return [field.name, Object.hasOwn(given, field.name) && isGood(field, value) ? value : field.default];
  }));
}

function isGood(field, value) {
  if (field.type === 'choice') return field.choices.includes(value);
  return field.type === 'bool' ? typeof value === 'boolean' : !isBad(field, value);
}

/** Another model may lack a method that was kept; without any lane that can run, the defaults stay. */
function takeRemembered() {
  const kept = remembered();
  if (!kept || new URLSearchParams(location.search).has('v')) return; // a link says itself what it wants
  const rows = (Array.isArray(kept.lanes) ? kept.lanes : []).filter((lane) => lane && byName.has(lane.method) && isUsable(byName.get(lane.method)));
  if (rows.length) lanes = rows.slice(0, maxLanes).map((lane) => ({ method: lane.method, params: checkedValues(byName.get(lane.method).parameters, lane.params) }));
  settings = checkedValues(settingFields, kept.settings);
}
