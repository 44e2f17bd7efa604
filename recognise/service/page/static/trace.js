// The trace: the last six seconds of acceleration, drawn once a frame while readings come.

const SECONDS = 6;
const LIMIT = 25; // m/s^2: what is beyond lies on the edge
const GRAVITY = 9.8;
const ROOM = 2; // m/s^2 above the highest and below the lowest line
const COLORS = ["--line-0", "--line-1", "--line-2"];

export class Trace {
  constructor(canvas) {
    this.canvas = canvas;
    this.readings = [];
    this.isAsked = false;
  }

  push(reading) {
    this.readings.push(reading);
    while (reading.time - this.readings[0].time > SECONDS || this.readings[0].time > reading.time) this.readings.shift();
    if (this.isAsked) return;
    this.isAsked = true;
    requestAnimationFrame(() => { this.isAsked = false; this.draw(); });
  }

  draw() {
    const { canvas, readings } = this, density = devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (!width || !readings.length) return;
    canvas.width = width * density;
    canvas.height = height * density;
    const pen = canvas.getContext("2d"), style = getComputedStyle(canvas);
    pen.scale(density, density);
    const held = (value) => Math.max(-LIMIT, Math.min(LIMIT, value));
    const all = readings.flatMap((one) => Array.from(one.acceleration, held));
    const low = Math.min(0, ...all) - ROOM, high = Math.max(GRAVITY, ...all) + ROOM;
    const row = (value) => height * (high - value) / (high - low);
    pen.lineWidth = 1;
    pen.strokeStyle = style.getPropertyValue("--grid");
    pen.fillStyle = style.getPropertyValue("--soft");
    pen.font = `12px ${style.fontFamily}`;
    for (const value of [-2 * GRAVITY, -GRAVITY, 0, GRAVITY, 2 * GRAVITY].filter((line) => low < line && line < high)) {
      const y = row(value);
      pen.beginPath(); pen.moveTo(0, y); pen.lineTo(width, y); pen.stroke();
      pen.fillText(value ? value.toFixed(1) : "0", 2, y - 3);
    }
    const end = readings.at(-1).time;
    pen.lineWidth = 2;
    COLORS.forEach((color, axis) => {
      pen.strokeStyle = style.getPropertyValue(color);
      pen.beginPath();
      for (const one of readings) {
        pen.lineTo(width * (1 - (end - one.time) / SECONDS), row(held(one.acceleration[axis])));
      }
      pen.stroke();
    });
  }
}
