// The controls: which turn, which token, what is found.

const transcript = new Transcript(data.turns);
transcript.go(data.turns.length);
const drawing = new Drawing(transcript, byId("text"), byId("layer"), byId("space"));
const { isSession } = drawing;
byId("session").hidden = byId("colours").hidden = !isSession;
const describe = (token) => tellToken(transcript, drawing, token);

function choose(token, isMiddle) {
  drawing.chosen = Math.max(0, Math.min(token, transcript.tokens.length - 1));
  drawing.show(drawing.chosenRow, isMiddle);
  drawing.redraw();
  describe(drawing.chosen);
  rememberSoon();
}

// Goes to a turn, and to a token of it: where it brought something new, if no other one is wanted.
function goTo(turn, token) {
  const wanted = Math.min(Math.max(1, turn), data.turns.length);
  const changed = transcript.go(wanted);
  byId("turn").value = wanted;
  tellText(transcript);
  if (isSession) tellTurn(transcript, drawing);
  drawing.divide(changed); // once it is known how much room is left
  choose(token ?? (isSession ? firstNew() : 0), true);
}

// Where somebody looks first who comes to a turn.
function firstNew() {
  const { changes, patch } = data.turns[transcript.turn - 1];
  return changes.length ? changes[0][0] : patch[0];
}

// The place is a part of the address, to be sent to somebody or come back to.
let remembering = 0;
function rememberSoon() {
  clearTimeout(remembering);
  remembering = setTimeout(() => {
    const place = new URLSearchParams();
    if (isSession) place.set("turn", transcript.turn);
    place.set("token", drawing.chosen);
    if (byId("theme").value) place.set("theme", byId("theme").value);
    history.replaceState(null, "", `#${place}`);
  }, 250);
}

function recall() {
  const place = new URLSearchParams(location.hash.slice(1));
  const wanted = (name, otherwise) => (/^\d+$/.test(place.get(name) ?? "") ? Number(place.get(name)) : otherwise);
  const theme = place.get("theme") ?? "";
  setTheme(["light", "dark"].includes(theme) ? theme : "");
  goTo(wanted("turn", data.turns.length), wanted("token", undefined));
}

function setTheme(theme) {
  byId("theme").value = theme;
  document.documentElement.dataset.theme = theme;
}

// What was found last: the next search for the same goes on from there, and not from the beginning of the token.
let last = { wanted: "", at: -1, token: -1 };

function find(isBackward) {
  const wanted = byId("find").value;
  if (!wanted || !transcript.tokens.length) return;
  const found = /^#\d+$/.test(wanted) ? findId(Number(wanted.slice(1)), isBackward) : findText(wanted, isBackward);
  byId("found").textContent = found < 0 ? "not there" : `token ${number(found)}`;
  if (found >= 0) choose(found, true);
}

function findId(id, isBackward) {
  const { length } = transcript.tokens;
  for (let i = 1; i <= length; i++) {
    const token = (drawing.chosen + (isBackward ? length - i : i)) % length;
    if (data.vocabulary[transcript.tokens.values[token]][0] === id) return token;
  }
  return -1;
}

function findText(wanted, isBackward) {
  const { text } = transcript;
  const goesOn = last.wanted === wanted && last.token === drawing.chosen;
  const from = goesOn ? last.at : transcript.starts.values[drawing.chosen] - (isBackward ? 0 : 1);
  let at = isBackward ? (from > 0 ? text.lastIndexOf(wanted, from - 1) : -1) : text.indexOf(wanted, from + 1);
  if (at < 0) at = isBackward ? text.lastIndexOf(wanted) : text.indexOf(wanted);
  const token = at < 0 ? -1 : tokenAt(at);
  last = { wanted, at, token };
  return token;
}

// The first token that has a character, or the last one before it.
function tokenAt(position) {
  const token = Math.max(0, transcript.starts.find(position + 1) - 1);
  return transcript.stops.values[token] > position ? transcript.starts.find(transcript.starts.values[token]) : token;
}

function nextForged() {
  const { forged, stops } = transcript;
  const behind = forged.after(stops.values[drawing.chosen] - 1);
  choose(tokenAt(behind < Infinity ? behind : forged.values[0]), true);
}

// The token as far into another row as the chosen one is into its own.
function beside(rows) {
  const { starts } = drawing.rows;
  const at = transcript.starts.values[drawing.chosen];
  const row = drawing.rows.rowOf(at);
  const other = Math.max(0, Math.min(row + rows, drawing.rows.count - 1));
  const end = other + 1 < drawing.rows.count ? starts.values[other + 1] : transcript.length;
  const wanted = Math.min(starts.values[other] + at - starts.values[row], end - 1);
  const token = transcript.starts.find(wanted + 1) - 1;
  return token === drawing.chosen && rows ? token + Math.sign(rows) : token;
}

const KEYS = {
  ArrowLeft: () => choose(drawing.chosen - 1),
  ArrowRight: () => choose(drawing.chosen + 1),
  ArrowUp: () => choose(beside(-1)),
  ArrowDown: () => choose(beside(1)),
  PageUp: () => choose(beside(-drawing.onScreen)),
  PageDown: () => choose(beside(drawing.onScreen)),
  Home: () => choose(0),
  End: () => choose(transcript.tokens.length - 1),
};

byId("text").addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in KEYS)) return;
  event.preventDefault();
  KEYS[event.key]();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.id === "find") return;
  event.preventDefault();
  byId("find").focus();
});
byId("find").addEventListener("keydown", (event) => {
  if (event.key === "Enter") find(event.shiftKey);
  if (event.key === "Escape") byId("text").focus();
});
byId("controls").addEventListener("submit", (event) => event.preventDefault());
byId("turn").max = data.turns.length;
byId("turn").addEventListener("input", () => goTo(Number(byId("turn").value)));
byId("next").addEventListener("click", nextForged);
byId("colour").addEventListener("change", () => {
  drawing.byTurn = byId("colour").value === "turn";
  drawing.redraw();
});
byId("cuts").addEventListener("change", () => byId("layer").classList.toggle("cuts", byId("cuts").checked));
byId("layer").classList.add("cuts");
byId("theme").addEventListener("change", () => {
  setTheme(byId("theme").value);
  rememberSoon();
});
byId("text").addEventListener("scroll", () => drawing.drawSoon(), { passive: true });
byId("text").addEventListener("pointerover", (event) => {
  const pointed = event.target.closest("[data-token]");
  describe(pointed ? Number(pointed.dataset.token) : drawing.chosen);
});
byId("text").addEventListener("pointerleave", () => describe(drawing.chosen));
byId("text").addEventListener("click", (event) => {
  const pointed = event.target.closest("[data-token]");
  if (pointed) choose(Number(pointed.dataset.token));
});
new ResizeObserver(() => drawing.resize()).observe(byId("text"));
addEventListener("hashchange", recall);
recall();
