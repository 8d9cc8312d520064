// Draws the rows that are on screen, and nothing else.

const HEIGHT = 26; // of a row, as the style has it
const TALLEST = 8e6; // pixels that every browser can scroll through

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function write(parent, text) {
  for (const [shown, isSign] of visible(text)) parent.append(isSign ? element("span", "sign", shown) : shown);
  return parent;
}

class Drawing {
  constructor(transcript, scroller, layer, space) {
    this.transcript = transcript;
    this.scroller = scroller;
    this.layer = layer;
    this.space = space;
    const style = getComputedStyle(layer);
    this.rows = new Rows(transcript, `${style.fontSize} ${style.fontFamily}`);
    this.made = new Map(); // the rows in the document, by their numbers
    this.chosen = 0;
    this.isSession = transcript.turns.length > 1;
    this.byTurn = this.isSession; // what the colours tell: what the turn did, or where tokens end
    this.waiting = false;
    this.divide(0);
  }

  // Fits the rows to the size of the window. What stands at its top stays there, and what is chosen on screen.
  resize() {
    const { room } = this.rows, isChosenSeen = this.isSeen(this.chosenRow);
    const top = this.rows.starts.values[Math.min(Math.floor(this.top / HEIGHT), this.rows.count - 1)];
    this.divide(Infinity);
    if (room !== this.rows.room) {
      this.scrollTo(this.rows.rowOf(top));
      this.clear();
    }
    if (isChosenSeen) this.show(this.chosenRow);
    this.draw();
  }

  // Divides the text into rows anew from where it has changed. The size of the window is asked for here alone, since the
  // browser lays out the page for that.
  divide(changed) {
    this.height = this.layer.clientHeight;
    const margin = parseFloat(getComputedStyle(this.layer).getPropertyValue("--margin"));
    const room = Math.max(4, Math.floor((this.layer.clientWidth - margin - 12) / this.rows.widths.cell));
    const from = room === this.rows.room ? changed : 0;
    this.rows.room = room;
    if (from < Infinity) this.rows.divide(from);
    const tall = this.rows.count * HEIGHT + 8;
    const height = Math.min(tall, TALLEST), seen = this.height;
    // From the first row to the last takes as many pixels as can be scrolled, however many rows there are.
    this.scale = Math.max(1, (tall - seen) / (height - seen));
    this.space.style.height = `${height}px`;
  }

  get onScreen() {
    return Math.max(1, Math.floor(this.height / HEIGHT));
  }

  // How many pixels of all rows are above the window.
  get top() {
    return this.scroller.scrollTop * this.scale;
  }

  get chosenRow() {
    return this.rows.rowOf(this.transcript.tokens.length ? this.transcript.starts.values[this.chosen] : 0);
  }

  // Draws what is not there yet: rows stay what they are while the text moves.
  draw() {
    const { top } = this;
    const first = Math.max(0, Math.min(Math.floor(top / HEIGHT), this.rows.count - 1));
    const last = Math.min(first + this.onScreen + 1, this.rows.count - 1);
    for (const [row, made] of this.made) {
      if (row >= first && row <= last) continue;
      made.remove();
      this.made.delete(row);
    }
    for (let row = last, next = null; row >= first; row--) {
      let made = this.made.get(row);
      if (!made) {
        made = this.row(row);
        this.layer.insertBefore(made, next);
        this.made.set(row, made);
      }
      made.style.top = `${Math.round(row * HEIGHT - top)}px`;
      next = made;
    }
    const chosen = document.getElementById(`t${this.chosen}`);
    if (chosen) this.scroller.setAttribute("aria-activedescendant", chosen.id);
    else this.scroller.removeAttribute("aria-activedescendant");
  }

  clear() {
    this.layer.replaceChildren();
    this.made.clear();
  }

  redraw() {
    this.clear();
    this.draw();
  }

  drawSoon() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  row(row) {
    const made = element("div", "row");
    made.setAttribute("role", "presentation");
    const line = this.rows.lines.values[row];
    const number = element("span", "number", line ? `${line}` : "");
    number.setAttribute("aria-hidden", "true");
    made.append(number);
    this.rows.row(this.rows.starts.values[row], this.rows.tokens.values[row], (token, start, stop) =>
      made.append(this.piece(token, start, stop)));
    return made;
  }

  piece(token, start, stop) {
    const { transcript } = this;
    const made = element("span", token < 0 ? "piece" : this.classes(token));
    if (start === stop) made.append(element("span", "sign", "\u25ab"));
    for (const [from, to] of transcript.parts(start, stop)) this.part(made, from, to);
    const isFirst = token >= 0 && (start === stop || start === transcript.starts.values[token] || !this.named(token, start));
    if (start < stop && transcript.isCut(start)) made.classList.add("cut");
    if (token >= 0) made.dataset.token = token;
    if (!isFirst) return made;
    const [id, piece] = data.vocabulary[transcript.tokens.values[token]];
    made.id = `t${token}`;
    made.setAttribute("role", "option");
    made.setAttribute("aria-selected", `${token === this.chosen}`);
    made.setAttribute("aria-posinset", token + 1);
    made.setAttribute("aria-setsize", transcript.tokens.length);
    made.setAttribute("aria-label", `${plain(piece)}, id ${id}`);
    return made;
  }

  part(parent, start, stop) {
    const { transcript } = this;
    const text = transcript.slice(start, stop);
    const classes = [transcript.isUntrusted(start) ? "untrusted" : "", transcript.isForged(start) ? "forged" : ""];
    const marks = classes.join(" ").trim();
    if (marks) parent.append(write(element("span", marks), text));
    else write(parent, text);
  }

  // Whether a token has a part before a position, which is the one with its name.
  named(token, start) {
    const { starts, stops } = this.transcript;
    return starts.values[token] < start && (token === 0 || stops.values[token - 1] < start);
  }

  classes(token) {
    const kind = data.vocabulary[this.transcript.tokens.values[token]][3];
    const colour = this.byTurn ? `${this.fate(token)}-${"ab"[token % 2]}` : "abcd"[token % 4];
    return `piece ${colour}${kind === "token" ? "" : ` ${kind}`}${token === this.chosen ? " chosen" : ""}`;
  }

  // What the turn did with a token: it is new, or came out of the engine as it was, or was not looked at.
  fate(token) {
    const { turns, turn, starts, stops } = this.transcript;
    const { changes, encoded } = turns[turn - 1];
    if (changes.some(([begin, end]) => begin <= token && token < end)) return "new";
    const start = starts.values[token], stop = stops.values[token];
    return encoded.some(([from, to]) => from <= start && stop <= to) ? "seen" : "kept";
  }

  isSeen(row) {
    return row >= this.top / HEIGHT && row + 1 <= (this.top + this.height) / HEIGHT;
  }

  scrollTo(row) {
    this.scroller.scrollTop = (Math.max(0, row) * HEIGHT) / this.scale;
  }

  // Scrolls to a row, if it is not on screen.
  show(row, isMiddle) {
    if (this.isSeen(row)) return;
    const above = isMiddle ? Math.floor(this.onScreen / 3) : row < this.top / HEIGHT ? 0 : this.height / HEIGHT - 1;
    this.scrollTo(row - above);
  }
}
