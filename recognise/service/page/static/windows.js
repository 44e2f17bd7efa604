// From readings to the windows that a training takes: what recognise/stream does with the same readings.
// A test compares both, window by window.

export const RATE = 50;
const GRAVITY = 9.80665;
const LONGEST_GAP_SECONDS = 0.25;
const SNAP = 0.01 / RATE;
// scipy.signal.butter(3, cutoff, fs=50, output="sos"), as core/data/filters.py has it: b0 b1 b2 a1 a2.
const NOISE = [
  [0.5276243825019431, 0.5276243825019431, 0, 0.5095254494944288, 0],
  [1, 2, 1, 1.25051643084874, 0.5457233155094576],
];
const SLOW = [
  [6.4518491290909294e-06, 1.2903698258181859e-05, 6.4518491290909294e-06, -0.9629940509502153, 0],
  [1, 1, 0, -1.9616121845004821, 0.9630069546484734],
];

/** Runs without a pause, each resampled to 50 Hz: rows of three accelerations in g and three rotations in rad/s. */
export function evenRuns(readings) {
  const runs = [];
  let run = [];
  for (const one of readings) {
    const values = [...one.acceleration.map(value => value / GRAVITY), ...one.rotation];
    if (!Number.isFinite(one.time) || !values.every(Number.isFinite)) continue;
    const step = run.length ? one.time - run.at(-1).time : 0;
    if (step > LONGEST_GAP_SECONDS || step < -LONGEST_GAP_SECONDS) {
      runs.push(run);
      run = [];
    } else if (run.length && step <= 0) continue;
    run.push({ time: one.time, values });
  }
  runs.push(run);
  return runs.filter(found => found.length).map(resampled);
}

function resampled(run) {
  const rows = [], begin = run[0].time, end = run.at(-1).time;
  let after = 0;
  for (let step = 0; ; step++) {
    const time = begin + step / RATE;
    if (time > end + SNAP) return rows;
    while (run[after].time < time - SNAP) after++;
    const next = run[after];
    if (next.time <= time + SNAP) rows.push(next.values);
    else {
      const before = run[after - 1], share = (time - before.time) / (next.time - before.time);
      rows.push(next.values.map((value, at) => before.values[at] * (1 - share) + value * share));
    }
  }
}

/** A low-pass forwards only. It begins as after an endless signal equal to its first value. */
function lowPass(sections, values) {
  let input = values;
  for (const [b0, b1, b2, a1, a2] of sections) {
    const level = input[0] * (b0 + b1 + b2) / (1 + a1 + a2);
    let second = b2 * input[0] - a2 * level, first = b1 * input[0] - a1 * level + second;
    input = input.map(value => {
      const result = b0 * value + first;
      first = b1 * value - a1 * result + second;
      second = b2 * value - a2 * result;
      return result;
    });
  }
  return input;
}

function median(values) {
  return values.map((third, at) => {
    const first = values[Math.max(0, at - 2)], second = values[Math.max(0, at - 1)];
    return Math.max(Math.min(first, second), Math.min(Math.max(first, second), third));
  });
}

/** The nine channels of even rows: body acceleration, angular velocity, total acceleration. */
export function channels(rows) {
  if (!rows.length) return [];
  const quiet = rows[0].map((_, at) => lowPass(NOISE, median(rows.map(row => row[at]))));
  const slow = quiet.slice(0, 3).map(values => lowPass(SLOW, values));
  return rows.map((_, step) => [
    ...slow.map((values, at) => quiet[at][step] - values[step]),
    ...quiet.slice(3).map(values => values[step]),
    ...quiet.slice(0, 3).map(values => values[step]),
  ]);
}

/** All windows of a session, each an array of `steps` rows of nine channels; two overlap by half. */
export function windows(readings, steps) {
  const found = [], stride = steps >> 1;
  for (const rows of evenRuns(readings)) {
    const all = channels(rows);
    for (let begin = 0; begin + steps <= all.length; begin += stride) found.push(all.slice(begin, begin + steps));
  }
  return found;
}
