// What a person records: sessions, each of one label, and the file that they become.

import { floats, integers, npz, texts } from "./npz.js";
import { RATE, windows } from "./windows.js";

const TEST_SHARE = 0.2;
const FEWEST_WINDOWS = 4;
const SIGNALS = [["body_acc", "g"], ["body_gyro", "rad/s"], ["total_acc", "g"]]; // in the order of windows.js
const CHANNELS = SIGNALS.flatMap(([name]) => ["x", "y", "z"].map(axis => `${name}_${axis}`));
const UNITS = SIGNALS.flatMap(([, unit]) => [unit, unit, unit]);
const LONGEST_READINGS = 60 * 60 * 10; // ten minutes at 60 Hz

export class Sessions {
  /** `steps`: of a window. */
  constructor(steps) {
    this.steps = steps;
    this.kept = [];
    this.current = null;
  }

  begin(label) { this.current = { label, readings: [] }; }

  /** Whether there is room for more. */
  push(reading) {
    if (!this.current) return true;
    this.current.readings.push(reading);
    return this.current.readings.length < LONGEST_READINGS;
  }

  /** The session that ended, or words that say why it does not count. */
  end() {
    const { label, readings } = this.current;
    this.current = null;
    const cut = windows(readings, this.steps);
    if (cut.length < FEWEST_WINDOWS) {
      const seconds = (this.steps * (1 + (FEWEST_WINDOWS - 1) / 2)) / 50;
      return `Too short: record at least ${Math.ceil(seconds)} seconds without a pause.`;
    }
    const seconds = readings.at(-1).time - readings[0].time;
    const session = { label, seconds, windows: cut };
    this.kept.push(session);
    return session;
  }

  remove(session) { this.kept = this.kept.filter(one => one !== session); }

  /** Labels in use, those of the model first and in its order. */
  labels(known) {
    const used = new Set(this.kept.map(one => one.label));
    return [...known.filter(label => used.has(label)), ...[...used].filter(label => !known.includes(label))];
  }

  /**
   * The file. The last fifth of each session is for the test; the window before it overlaps with it and is left out.
   */
  file(known) {
    const labels = this.labels(known), train = [], test = [];
    for (const { label, windows: cut } of this.kept) {
      const count = Math.max(1, Math.round(cut.length * TEST_SHARE)), number = labels.indexOf(label);
      cut.slice(0, cut.length - count - 1).forEach(window => train.push({ window, number }));
      cut.slice(cut.length - count).forEach(window => test.push({ window, number }));
    }
    const shape = rows => [rows.length, this.steps, CHANNELS.length];
    return npz({
      x_train: floats(shape(train), train.map(one => one.window)), y_train: integers(train.map(one => one.number)),
      x_test: floats(shape(test), test.map(one => one.window)), y_test: integers(test.map(one => one.number)),
      labels: texts(labels), channels: texts(CHANNELS), units: texts(UNITS),
      sampling_hz: floats([], [RATE]), filters: texts(["causal"]),
    });
  }
}
