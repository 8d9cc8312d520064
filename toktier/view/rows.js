// How the text is divided into rows of the screen, and what is shown for each character.

// What cannot be seen, or would move what is beside it, is shown as a sign: controls, marks of direction, joiners, and
// the two symbols that are blank.
const UNSEEN = /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800\u{1d159}]|(?! )\p{Zs}/u;
const MARK = /\p{M}/u;

function sign(point) {
  if (point === 0x0a) return "\u21b5";
  if (point === 0x09) return "\u2192   ";
  if (point === 0x0d) return "\\r";
  return UNSEEN.test(String.fromCodePoint(point)) ? `<U+${point.toString(16).toUpperCase().padStart(4, "0")}>` : null;
}

// A text with its signs, as a string.
const plain = (text) => visible(text).map(([shown]) => shown).join("");

// Parts of a text that are shown as they are, and signs in the place of what is not: [shown, is a sign].
function visible(text) {
  const parts = [];
  let seen = "";
  for (const character of text) {
    const instead = sign(character.codePointAt(0));
    if (instead === null) {
      seen += seen === "" && MARK.test(character) ? "\u25cc" + character : character;
      continue;
    }
    if (seen) parts.push([seen, false]);
    seen = "";
    parts.push([instead, true]);
  }
  if (seen) parts.push([seen, false]);
  return parts;
}

// The widths of characters, in cells of the font: measured, since what a font lacks comes from another one.
class Widths {
  constructor(font) {
    this.context = document.createElement("canvas").getContext("2d");
    this.context.font = font;
    this.cell = this.context.measureText("0".repeat(100)).width / 100;
    this.known = new Map();
  }

  of(point) {
    if (point >= 0x20 && point < 0x7f) return 1;
    let width = this.known.get(point);
    if (width === undefined) {
      const character = String.fromCodePoint(point);
      const shown = sign(point) ?? (MARK.test(character) ? "\u25cc" + character : character);
      width = this.context.measureText(shown).width / this.cell;
      this.known.set(point, width);
    }
    return width;
  }
}

class Rows {
  constructor(transcript, font) {
    this.transcript = transcript;
    this.widths = new Widths(font);
    this.room = 0; // in cells
    this.starts = new Column(); // the first character of each row
    this.tokens = new Column(); // the first token that is drawn in it
    this.lines = new Column(); // the number of the line that begins there; 0 where one goes on
  }

  get count() {
    return this.starts.length;
  }

  // Divides the text anew from a position on: what lies before it is as it was, but the row that has it could end
  // elsewhere.
  divide(from) {
    const kept = Math.max(0, this.starts.find(from) - 2);
    const isKept = kept > 0;
    let position = isKept ? this.starts.values[kept] : 0;
    let token = isKept ? this.tokens.values[kept] : 0;
    let begins = isKept ? this.lines.values[kept] > 0 : true;
    let line = 0;
    for (let row = kept - 1; row >= 0 && !line; row--) line = this.lines.values[row];
    for (const column of [this.starts, this.tokens, this.lines]) column.length = kept;
    const { transcript } = this;
    do {
      this.starts.push(position);
      this.tokens.push(token);
      this.lines.push(begins ? ++line : 0);
      const next = this.row(position, token, null);
      begins = next.breaks;
      position = next.position;
      token = next.token;
    } while (position < transcript.length || token < transcript.tokens.length);
  }

  // The row that a position is in, and the line.
  rowOf(position) {
    return Math.max(0, this.starts.find(position + 1) - 1);
  }

  lineOf(position) {
    let row = this.rowOf(position);
    while (row > 0 && !this.lines.values[row]) row--;
    return this.lines.values[row];
  }

  // One row: tells `draw` of each part of it, as a token (or -1) and the characters from one position to another, and
  // returns where the next row begins. A token that stands only for characters which the one before has too has none.
  row(position, token, draw) {
    const { transcript } = this, { starts, stops, tokens, cuts, length } = transcript;
    let room = this.room, isEmpty = true;
    for (;;) {
      if (token < tokens.length && stops.values[token] <= position && starts.values[token] <= position) {
        if (room < 1 && !isEmpty) break;
        if (draw) draw(token, position, position);
        token++;
        room -= 1;
        isEmpty = false;
        continue;
      }
      if (position >= length) break;
      const isToken = token < tokens.length && starts.values[token] <= position;
      let end = isToken ? stops.values[token] : token < tokens.length ? starts.values[token] : length;
      if (!isToken) {
        const cut = cuts.find(position + 1);
        if (cut < cuts.length) end = Math.min(end, cuts.values[cut]);
      }
      const fitted = this.fitted(position, end, room);
      if (fitted.position < end && !fitted.breaks) {
        const whole = !isEmpty && this.fitted(position, end, this.room);
        if (whole && (whole.position === end || whole.breaks)) break;
        // A row that is too narrow for one character has it all the same.
        if (fitted.position === position) {
          if (!isEmpty) break;
          fitted.position += transcript.point(position) > 0xffff ? 2 : 1;
        }
        if (draw) draw(isToken ? token : -1, position, fitted.position);
        position = fitted.position;
        if (isToken && position >= end) token++;
        break;
      }
      if (draw) draw(isToken ? token : -1, position, fitted.position);
      position = fitted.position;
      room -= fitted.width;
      isEmpty = false;
      if (isToken && position >= end) token++;
      if (fitted.breaks) return { position, token, breaks: true };
    }
    return { position, token, breaks: false };
  }

  // How far the characters up to an end fit: until a line break, behind which the row ends.
  fitted(position, end, room) {
    const { transcript } = this;
    let width = 0;
    while (position < end) {
      const point = transcript.point(position);
      const wide = width + (point >= 0x20 && point < 0x7f ? 1 : this.widths.of(point));
      if (wide > room && point !== 0x0a) return { position, width, breaks: false };
      width = wide;
      position += point > 0xffff ? 2 : 1;
      if (point === 0x0a) return { position, width, breaks: true };
    }
    return { position, width, breaks: false };
  }
}
