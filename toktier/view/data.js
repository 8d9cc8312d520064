"use strict";
// The text with its tokens after any of the turns: one stretch after the other is put in its place, and back.

const data = JSON.parse(document.getElementById("data").textContent);

function unpacked([type, base64]) {
  const written = atob(base64);
  const bytes = new Uint8Array(written.length);
  for (let i = 0; i < written.length; i++) bytes[i] = written.charCodeAt(i);
  return new { Uint8Array, Uint16Array, Uint32Array }[type](bytes.buffer);
}

const UTF16 = new TextDecoder("utf-16le", { ignoreBOM: true }); // a mark of byte order is a character, too

function summed(steps, from) {
  const sums = new Uint32Array(steps.length);
  for (let i = 0, sum = from; i < steps.length; i++) sums[i] = sum += steps[i];
  return sums;
}

// Numbers with room behind them: what comes at the end moves nothing.
class Column {
  constructor(type = Uint32Array) {
    this.values = new type(1024);
    this.length = 0;
  }

  push(value) {
    this.reserve(this.length + 1);
    this.values[this.length++] = value;
  }

  reserve(length) {
    if (length <= this.values.length) return;
    const longer = new this.values.constructor(Math.max(length, 2 * this.values.length));
    longer.set(this.values.subarray(0, this.length));
    this.values = longer;
  }

  // Puts numbers in the place of others, adds a number to all behind them, and returns those that had to go.
  replace(start, stop, fresh, shift) {
    const gone = this.values.slice(start, stop);
    const length = this.length + fresh.length - gone.length;
    const behind = start + fresh.length;
    this.reserve(length);
    this.values.copyWithin(behind, stop, this.length);
    this.values.set(fresh, start);
    this.length = length;
    if (shift) for (let i = behind; i < length; i++) this.values[i] += shift;
    return gone;
  }

  // The first place whose number is not below a limit.
  find(limit) {
    let low = 0, high = this.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.values[middle] < limit) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // The first number above a limit.
  after(limit) {
    const at = this.find(limit + 1);
    return at < this.length ? this.values[at] : Infinity;
  }
}

class Transcript {
  constructor(turns) {
    this.turns = turns;
    this.turn = 0; // how many of them are done
    this.units = new Column(Uint16Array); // of the text: a string would be copied whole by each turn on the way
    this.tokens = new Column(); // places in the vocabulary
    this.starts = new Column();
    this.stops = new Column();
    this.cuts = new Column();
    this.edges = new Column(); // where untrusted characters begin and end, by turns
    this.forged = new Column(); // where special tokens begin that are text
    this.forgedStops = new Column();
    this.wide = new Column(); // the characters that JavaScript takes for two
    this.steps = []; // for each turn what undoes it, once it is done, and what does it again, once that is undone
  }

  // Goes to the text after so many turns. Returns the first position at which anything may have changed.
  go(turn) {
    let changed = Infinity;
    const step = (at) => {
      const stretch = this.steps[at] ?? decoded(this.turns[at].stretch);
      changed = Math.min(changed, stretch.start);
      this.steps[at] = this.put(stretch);
    };
    while (this.turn < turn) step(this.turn++);
    while (this.turn > turn) step(--this.turn);
    return changed;
  }

  get length() {
    return this.units.length;
  }

  get text() {
    return this.slice(0, this.length);
  }

  slice(start, stop) {
    return UTF16.decode(this.units.values.subarray(start, stop));
  }

  // The character at a position.
  point(position) {
    const unit = this.units.values[position];
    if (unit < 0xd800 || unit > 0xdfff) return unit;
    return 0x10000 + ((unit - 0xd800) << 10) + (this.units.values[position + 1] - 0xdc00);
  }

  // Puts a stretch in its place, and returns the one that puts things back.
  put(stretch) {
    const { start, stop, units, first, last } = stretch;
    const shift = units.length - (stop - start);
    const back = { start, stop: start + units.length, first, last: first + stretch.tokens.length };
    const replace = (name, from, to, by) => (back[name] = this[name].replace(from, Math.max(from, to), stretch[name], by));
    replace("units", start, stop, 0);
    replace("tokens", first, last, 0);
    replace("starts", first, last, shift);
    replace("stops", first, last, shift);
    // At its own edges nothing changed, but at the beginning of the text.
    replace("cuts", this.cuts.find(start + 1), this.cuts.find(stop), shift);
    replace("edges", start ? this.edges.find(start + 1) : 0, this.edges.find(stop), shift);
    const from = this.forged.find(start), to = this.forged.find(stop);
    replace("forged", from, to, shift);
    replace("forgedStops", from, to, shift);
    replace("wide", this.wide.find(start), this.wide.find(stop), shift);
    return back;
  }

  isCut(position) {
    const at = this.cuts.find(position);
    return at < this.cuts.length && this.cuts.values[at] === position;
  }

  isUntrusted(position) {
    return this.edges.find(position + 1) % 2 === 1;
  }

  isForged(position) {
    const at = this.forged.find(position + 1);
    return at > 0 && position < this.forgedStops.values[at - 1];
  }

  // The parts of the text between two positions in which all characters are as trusted, and as forged: [from, to].
  *parts(start, stop) {
    while (start < stop) {
      const ends = [this.edges, this.forged, this.forgedStops].map((column) => column.after(start));
      const end = Math.min(stop, ...ends);
      yield [start, end];
      start = end;
    }
  }

  // Characters before a position: one that JavaScript takes for two counts as one.
  characters(position) {
    return position - this.wide.find(position);
  }
}

function decoded(stretch) {
  const { start } = stretch;
  const starts = summed(unpacked(stretch.steps), start);
  const units = Uint16Array.from({ length: stretch.text.length }, (_, i) => stretch.text.charCodeAt(i));
  const wide = [...stretch.text.matchAll(/[\ud800-\udbff]/g)];
  return {
    ...stretch,
    units,
    tokens: unpacked(stretch.tokens),
    starts,
    stops: Uint32Array.from(unpacked(stretch.lengths), (length, i) => starts[i] + length),
    cuts: summed(unpacked(stretch.cuts), start),
    edges: stretch.edges.map((edge) => start + edge),
    forged: stretch.forged.map(([from]) => start + from),
    forgedStops: stretch.forged.map(([, to]) => start + to),
    wide: wide.map((match) => start + match.index),
  };
}
