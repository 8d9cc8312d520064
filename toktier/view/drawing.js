// Draws the rows that are on screen, and nothing else.

const HEIGHT = 22; // of a row, as the style has it
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
    const probe = layer.appendChild(element("div", "row", "0"));
    const style = getComputedStyle(probe);
    this.rows = new Rows(transcript, `${style.fontSize} ${style.fontFamily}`);
    this.chosen = 0;
    this.byTurn = false;
    this.waiting = false;
    this.divide(0);
  }

  // Fits the rows to the width of the window, and to what has changed from a position on.
  divide(changed) {
    const margin = parseFloat(getComputedStyle(this.layer.firstChild).paddingLeft);
    const room = Math.max(4, Math.floor((this.layer.clientWidth - margin - 12) / this.rows.widths.cell));
    const from = room === this.rows.room ? changed : 0;
    this.rows.room = room;
    if (from < Infinity) this.rows.divide(from);
    const tall = this.rows.count * HEIGHT + 8;
    const height = Math.min(tall, TALLEST), seen = this.layer.clientHeight;
    // From the first row to the last takes as many pixels as can be scrolled, however many rows there are.
    this.scale = Math.max(1, (tall - seen) / (height - seen));
    this.space.style.height = `${height}px`;
  }

  get onScreen() {
    return Math.max(1, Math.floor(this.layer.clientHeight / HEIGHT));
  }

  draw() {
    const top = this.scroller.scrollTop * this.scale;
    const first = Math.min(Math.floor(top / HEIGHT), this.rows.count - 1);
    const drawn = document.createDocumentFragment();
    for (let row = first; row < this.rows.count && row <= first + this.onScreen + 1; row++) {
      const made = this.row(row);
      made.style.top = `${Math.round(row * HEIGHT - top)}px`;
      drawn.append(made);
    }
    this.layer.replaceChildren(drawn);
    const chosen = document.getElementById(`t${this.chosen}`);
    if (chosen) this.scroller.setAttribute("aria-activedescendant", chosen.id);
    else this.scroller.removeAttribute("aria-activedescendant");
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
    else write(made, transcript.text.slice(start, stop));
    const isFirst = token >= 0 && (start === stop || start === transcript.starts.values[token] || !this.named(token, start));
    if (start < stop && transcript.isCut(start)) made.classList.add("cut");
    if (token < 0) return made;
    made.dataset.token = token;
    if (!isFirst) return made;
    const [id, piece] = data.vocabulary[transcript.tokens.values[token]];
    made.id = `t${token}`;
    made.setAttribute("role", "option");
    made.setAttribute("aria-selected", `${token === this.chosen}`);
    made.setAttribute("aria-posinset", token + 1);
    made.setAttribute("aria-setsize", transcript.tokens.length);
    made.setAttribute("aria-label", `${visible(piece).map(([shown]) => shown).join("")}, id ${id}`);
    return made;
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
    const { patch: [first, count], encoded } = turns[turn - 1];
    if (token >= first && token < first + count) return "new";
    const start = starts.values[token], stop = stops.values[token];
    return encoded.some(([from, to]) => from <= start && stop <= to) ? "seen" : "kept";
  }

  // Scrolls to a row, if it is not on screen.
  show(row, isMiddle) {
    const top = (this.scroller.scrollTop * this.scale) / HEIGHT;
    const fits = row >= top && row + 1 <= top + this.layer.clientHeight / HEIGHT;
    if (fits) return;
    const above = isMiddle ? Math.floor(this.onScreen / 3) : row < top ? 0 : this.layer.clientHeight / HEIGHT - 1;
    this.scroller.scrollTop = (Math.max(0, row - above) * HEIGHT) / this.scale;
  }
}
