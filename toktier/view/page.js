// The controls: which turn, which token, what is found.

const byId = (id) => document.getElementById(id);
const number = (value) => value.toLocaleString("en");
const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
const MOST_SHOWN = 200; // of the tokens that a turn replaced
const MOST_TOLD = 300; // characters of one token: an unknown word may be as long as the text

const transcript = new Transcript(data.turns);
const isSession = data.turns.length > 1;
transcript.go(data.turns.length);
byId("session").hidden = byId("colours").hidden = !isSession;
const drawing = new Drawing(transcript, byId("text"), byId("layer"), byId("space"));
drawing.byTurn = isSession;

function facts() {
  const { text, tokens, cuts } = transcript;
  const characters = transcript.characters(text.length);
  const { model, digest, reason } = data.tokenizer;
  const counts = `${plural(characters, "character")}, ${plural(tokens.length, "token")}`;
  const each = tokens.length ? `, ${(characters / tokens.length).toFixed(2)} characters each` : "";
  const cut = reason ? `no certified cuts: ${reason}` : plural(cuts.length, "certified cut");
  byId("facts").replaceChildren();
  write(byId("facts"), `${counts}${each}; ${cut}; ${model}, ${digest.slice(0, 12)}`);
}

function describe(token) {
  const footer = byId("token");
  if (token >= transcript.tokens.length) return footer.replaceChildren("No tokens.");
  const start = transcript.starts.values[token], stop = transcript.stops.values[token];
  const [id, piece, bytes, kind] = data.vocabulary[transcript.tokens.values[token]];
  const before = transcript.characters(start), after = transcript.characters(stop);
  const part = transcript.text.slice(start, Math.min(stop, start + MOST_TOLD));
  const text = part.length < stop - start ? `${part}\u2026` : part;
  const list = element("dl");
  const add = (name, value, className) => {
    const entry = element("div");
    entry.append(element("dt", "", name), write(element("dd", className), value));
    list.append(entry);
  };
  add("token", `ids[${token}]`);
  add("id", `${id}${kind === "token" ? "" : kind === "special" ? ", special" : ", added"}`);
  add("piece", piece, "text");
  add("bytes", bytes.replace(/..(?!$)/g, "$& "), "text");
  add("characters", `text[${before}:${after}]`);
  add("line", number(drawing.rows.lineOf(start)));
  add("text", text, "text");
  add("certified cut before it", transcript.isCut(start) ? "yes" : "no");
  if (isSession) add("this turn", { new: "new", seen: "encoded again, the same", kept: "kept" }[drawing.fate(token)]);
  footer.replaceChildren(list);
}

function numbers() {
  const turn = data.turns[transcript.turn - 1];
  const gone = unpacked(turn.replaced);
  const count = transcript.tokens.length;
  const again = fates("seen");
  byId("turn-name").textContent = `Turn ${transcript.turn} of ${data.turns.length}: ${turn.operation}`;
  byId("turn").setAttribute("aria-valuetext", byId("turn-name").textContent);
  const list = byId("numbers");
  list.replaceChildren();
  const add = (name, value, sample) => {
    const entry = element("div");
    const term = element("dt", "", name);
    if (sample) term.prepend(element("span", `sample ${sample}`));
    entry.append(term, element("dd", "", value));
    list.append(entry);
  };
  add("text", `${number(turn.characters)} characters (${turn.added < 0 ? "" : "+"}${number(turn.added)})`);
  add("kept", plural(count - turn.patch[1] - again, "id"), "kept-b");
  add("re-encoded", plural(turn.encodedCharacters, "character"));
  add("with the same result", plural(again, "id"), "seen-b");
  add("replaced", `${plural(gone.length, "id")} by ${number(turn.patch[1])}`, "new-b");
  byId("explanation").replaceChildren();
  write(byId("explanation"), turn.explanation);
  const shown = byId("gone");
  shown.replaceChildren(gone.length ? "gone: " : "");
  for (const entry of gone.subarray(0, MOST_SHOWN)) {
    const [id, piece] = data.vocabulary[entry];
    const made = write(element("span", "text gone"), piece);
    made.title = `id ${id}`;
    shown.append(made, " ");
  }
  if (gone.length > MOST_SHOWN) shown.append(`and ${number(gone.length - MOST_SHOWN)} more`);
}

// How many tokens a turn had encoded again and found the same: those beside the new ones, in what the engine saw.
function fates(wanted) {
  let found = 0;
  for (const [from, to] of data.turns[transcript.turn - 1].encoded) {
    const last = transcript.starts.find(to);
    for (let token = transcript.starts.find(from); token < last; token++) found += drawing.fate(token) === wanted;
  }
  return found;
}

function choose(token, isMiddle) {
  drawing.chosen = Math.max(0, Math.min(token, transcript.tokens.length - 1));
  const at = transcript.tokens.length ? transcript.starts.values[drawing.chosen] : 0;
  drawing.show(drawing.rows.rowOf(at), isMiddle);
  drawing.draw();
  describe(drawing.chosen);
  rememberSoon();
}

function goTo(turn) {
  const wanted = Math.max(1, Math.min(turn, data.turns.length));
  if (wanted !== transcript.turn) drawing.divide(transcript.go(wanted));
  byId("turn").value = wanted;
  facts();
  if (isSession) numbers();
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
  goTo(wanted("turn", data.turns.length));
  choose(wanted("token", isSession ? data.turns[transcript.turn - 1].patch[0] : 0), true);
}

function setTheme(theme) {
  byId("theme").value = theme;
  document.documentElement.dataset.theme = theme;
}

function find(isBackward) {
  const wanted = byId("find").value;
  if (!wanted) return;
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
  const { text, starts, tokens } = transcript;
  if (!tokens.length) return -1;
  const from = starts.values[drawing.chosen];
  let at = isBackward ? (from ? text.lastIndexOf(wanted, from - 1) : -1) : text.indexOf(wanted, from + 1);
  if (at < 0) at = isBackward ? text.lastIndexOf(wanted) : text.indexOf(wanted);
  return at < 0 ? -1 : Math.max(0, starts.find(at + 1) - 1);
}

// The token as far into another row as the chosen one is into its own.
function beside(rows) {
  const { starts } = drawing.rows;
  const at = transcript.starts.values[drawing.chosen];
  const row = drawing.rows.rowOf(at);
  const other = Math.max(0, Math.min(row + rows, drawing.rows.count - 1));
  const end = other + 1 < drawing.rows.count ? starts.values[other + 1] : transcript.text.length;
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
  if (event.key !== "/" || event.target.id === "find") return;
  event.preventDefault();
  byId("find").focus();
});
byId("find").addEventListener("keydown", (event) => {
  if (event.key === "Enter") find(event.shiftKey);
  if (event.key === "Escape") byId("text").focus();
});
byId("controls").addEventListener("submit", (event) => event.preventDefault());
byId("turn").max = data.turns.length;
byId("turn").addEventListener("input", () => {
  goTo(Number(byId("turn").value));
  choose(data.turns[transcript.turn - 1].patch[0], true);
});
byId("colour").addEventListener("change", () => {
  drawing.byTurn = byId("colour").value === "turn";
  drawing.draw();
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
new ResizeObserver(() => {
  drawing.divide(Infinity);
  drawing.draw();
}).observe(byId("text"));
addEventListener("hashchange", recall);
recall();
