// What the page says: of the text, of a turn, and of a token.

const byId = (id) => document.getElementById(id);
const number = (value) => value.toLocaleString("en");
const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
const MOST_SHOWN = 200; // of the tokens that a turn replaced
const MOST_TOLD = 300; // characters of one token: an unknown word may be as long as the text
const MOST_BYTES = 64; // of its bytes, for the same reason
const KINDS = { token: "", added: ", added", special: ", special" };
const FATES = { new: "new", seen: "encoded again, the same", kept: "kept" };

// Adds a term to a list, with what it says of itself.
function add(list, name, value, { className = "", sample = "" } = {}) {
  const entry = element("div");
  const term = element("dt", "", name);
  if (sample) term.prepend(element("span", `sample ${sample}`));
  entry.append(term, write(element("dd", className), value));
  list.append(entry);
}

function tell(id, text) {
  byId(id).replaceChildren();
  write(byId(id), text);
}

function tellText(transcript) {
  const { length, tokens, cuts, edges, forged } = transcript;
  const characters = transcript.characters(length);
  const { model, digest, reason } = data.tokenizer;
  const each = tokens.length ? `, ${(characters / tokens.length).toFixed(2)} characters each` : "";
  const cut = reason ? `no certified cuts: ${reason}` : plural(cuts.length, "certified cut");
  const whose = `${model}, definition ${digest.slice(0, 12)}`;
  tell("facts", `${plural(characters, "character")}, ${plural(tokens.length, "token")}${each}; ${cut}; ${whose}`);
  byId("trust").hidden = !edges.length;
  byId("next").hidden = !forged.length;
  let untrusted = 0;
  for (let i = 0; i < edges.length; i += 2) {
    const end = i + 1 < edges.length ? edges.values[i + 1] : length;
    untrusted += transcript.characters(end) - transcript.characters(edges.values[i]);
  }
  const places = plural(forged.length, "place");
  const forgery = forged.length ? `, with forged special tokens in ${places}, which are text` : ", nothing forged";
  byId("untrusted").textContent = `${plural(untrusted, "untrusted character")}${forgery}`;
}

function tellTurn(transcript, drawing) {
  const turn = data.turns[transcript.turn - 1];
  const gone = unpacked(turn.replaced);
  const fresh = turn.changes.reduce((sum, [begin, end]) => sum + end - begin, 0);
  const again = encodedAgain(transcript, turn, drawing);
  tell("turn-name", `${transcript.turn} of ${data.turns.length}: ${turn.operation}`);
  byId("turn").setAttribute("aria-valuetext", byId("turn-name").textContent);
  const list = byId("numbers");
  list.replaceChildren();
  add(list, "text", `${number(turn.characters)} characters (${turn.added < 0 ? "" : "+"}${number(turn.added)})`);
  add(list, "kept", plural(transcript.tokens.length - fresh - again, "id"), { sample: "kept-b" });
  const places = turn.encoded.length > 1 ? ` in ${number(turn.encoded.length)} places` : "";
  add(list, "re-encoded", `${plural(turn.encodedCharacters, "character")}${places}`);
  add(list, "with the same result", plural(again, "id"), { sample: "seen-b" });
  add(list, "replaced", `${plural(gone.length, "id")} by ${number(fresh)}`, { sample: "new-b" });
  tell("explanation", turn.explanation);
  const shown = byId("gone");
  shown.hidden = !gone.length;
  shown.replaceChildren("gone: ");
  for (const entry of gone.subarray(0, MOST_SHOWN)) {
    const [id, piece] = data.vocabulary[entry];
    const made = write(element("span", "text gone"), piece);
    made.title = `id ${id}`;
    shown.append(made, " ");
  }
  if (gone.length > MOST_SHOWN) shown.append(`and ${number(gone.length - MOST_SHOWN)} more`);
}

// How many tokens a turn had encoded again and found the same: those beside the new ones, in what the engine saw.
function encodedAgain(transcript, turn, drawing) {
  let found = 0;
  for (const [from, to] of turn.encoded) {
    const last = transcript.starts.find(to);
    for (let token = transcript.starts.find(from); token < last; token++) found += drawing.fate(token) === "seen";
  }
  return found;
}

function tellToken(transcript, drawing, token) {
  const footer = byId("token");
  if (token >= transcript.tokens.length) return footer.replaceChildren("No tokens.");
  const start = transcript.starts.values[token], stop = transcript.stops.values[token];
  const [id, piece, bytes, kind] = data.vocabulary[transcript.tokens.values[token]];
  const before = transcript.characters(start), after = transcript.characters(stop);
  const part = transcript.slice(start, Math.min(stop, start + MOST_TOLD));
  const list = element("dl");
  const text = { className: "text" };
  add(list, "token", `ids[${token}]`);
  add(list, "id", `${id}${KINDS[kind]}`);
  add(list, "piece", piece, text);
  const shown = bytes.slice(0, 2 * MOST_BYTES).replace(/..(?!$)/g, "$& ");
  const rest = bytes.length > 2 * MOST_BYTES ? ` and ${number(bytes.length / 2 - MOST_BYTES)} more` : "";
  add(list, data.tokenizer.hasBytesOfTheText ? "bytes" : "bytes of the piece", `${shown}${rest}`, text);
  add(list, "characters", `text[${before}:${after}]`);
  add(list, "line", number(drawing.rows.lineOf(start)));
  add(list, "text", part.length < stop - start ? `${part}\u2026` : part, text);
  add(list, "certified cut before it", transcript.isCut(start) ? "yes" : "no");
  if (drawing.isSession) add(list, "this turn", FATES[drawing.fate(token)]);
  if (transcript.edges.length) add(list, "written by", trust(transcript, start, stop));
  footer.replaceChildren(list);
}

function trust(transcript, start, stop) {
  const found = new Set();
  let isForged = false;
  for (const [from] of transcript.parts(start, stop)) {
    found.add(transcript.isUntrusted(from) ? "somebody untrusted" : "somebody trusted");
    isForged ||= transcript.isForged(from);
  }
  return `${[...found].join(" and ")}${isForged ? ": of a forged special token, which is text" : ""}`;
}
