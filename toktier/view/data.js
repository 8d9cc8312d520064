"use strict";
// The text with its tokens after any of the turns: one stretch after the other is put in its place, and back.

const data = JSON.parse(document.getElementById("data").textContent);

function unpacked([type, base64]) {
  const written = atob(base64);
  const bytes = new Uint8Array(written.length);
  for (let i = 0; i < written.length; i++) bytes[i] = written.charCodeAt(i);
  return new { Uint8Array, Uint16Array, Uint32Array }[type](bytes.buffer);
}

function summed(steps, from) {
  const sums = new Uint32Array(steps.length);
  for (let i = 0, sum = from; i < steps.length; i++) sums[i] = sum += steps[i];
  return sums;
}

// Numbers with room behind them: what comes at the end moves nothing.
class Column {
  constructor() {
    this.values = new Uint32Array(1024);
    this.length = 0;
  }

  push(value) {
    this.reserve(this.length + 1);
    this.values[this.length++] = value;
  }

  reserve(length) {
    if (length <= this.values.length) return;
    const longer = new Uint32Array(Math.max(length, 2 * this.values.length));
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
}

class Transcript {
  constructor(turns) {
    this.turns = turns;
    this.turn = 0; // how many of them are done
    this.text = "";
    this.tokens = new Column(); // places in the vocabulary
    this.starts = new Column();
    this.stops = new Column();
    this.cuts = new Column();
    this.undo = [];
    this.astral = null;
  }

  // Goes to the text after so many turns. Returns the first position at which anything may have changed.
  go(turn) {
    let changed = Infinity;
    while (this.turn < turn) {
      const stretch = decoded(this.turns[this.turn++].stretch);
      changed = Math.min(changed, stretch.start);
      this.undo.push(this.put(stretch));
    }
    while (this.turn > turn) {
      const stretch = this.undo.pop();
      changed = Math.min(changed, stretch.start);
      this.put(stretch);
      this.turn--;
    }
    this.astral = null;
    return changed;
  }

  put({ start, stop, text, first, last, tokens, starts, stops, cuts }) {
    const shift = text.length - (stop - start);
    const from = this.cuts.find(start + 1), to = Math.max(from, this.cuts.find(stop));
    const back = { start, stop: start + text.length, text: this.text.slice(start, stop), first, last: first + tokens.length };
    this.text = this.text.slice(0, start) + text + this.text.slice(stop);
    back.tokens = this.tokens.replace(first, last, tokens, 0);
    back.starts = this.starts.replace(first, last, starts, shift);
    back.stops = this.stops.replace(first, last, stops, shift);
    back.cuts = this.cuts.replace(from, to, cuts, shift);
    return back;
  }

  isCut(position) {
    const at = this.cuts.find(position);
    return at < this.cuts.length && this.cuts.values[at] === position;
  }

  // Characters before a position: one that JavaScript takes for two counts as one.
  characters(position) {
    if (!this.astral) {
      this.astral = new Column();
      for (const match of this.text.matchAll(/[\ud800-\udbff]/g)) this.astral.push(match.index);
    }
    return position - this.astral.find(position);
  }
}

function decoded(stretch) {
  const starts = summed(unpacked(stretch.steps), stretch.start);
  return {
    start: stretch.start,
    stop: stretch.stop,
    text: stretch.text,
    first: stretch.first,
    last: stretch.last,
    tokens: unpacked(stretch.tokens),
    starts,
    stops: Uint32Array.from(unpacked(stretch.lengths), (length, i) => starts[i] + length),
    cuts: summed(unpacked(stretch.cuts), stretch.start),
  };
}
