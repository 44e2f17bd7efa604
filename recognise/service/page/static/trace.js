// The trace: the last six seconds of acceleration, drawn once a frame while readings come.

const SECONDS = 6;
const LIMIT = 25; // m/s^2 at the upper and lower edge
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
    pen.lineWidth = 1;
    pen.strokeStyle = style.getPropertyValue("--grid");
    for (const value of [-9.8, 0, 9.8]) {
      const y = height * (0.5 - value / (2 * LIMIT));
      pen.beginPath(); pen.moveTo(0, y); pen.lineTo(width, y); pen.stroke();
    }
    const end = readings.at(-1).time;
    pen.lineWidth = 2;
    COLORS.forEach((color, axis) => {
      pen.strokeStyle = style.getPropertyValue(color);
      pen.beginPath();
      for (const one of readings) {
        const value = Math.max(-LIMIT, Math.min(LIMIT, one.acceleration[axis]));
        pen.lineTo(width * (1 - (end - one.time) / SECONDS), height * (0.5 - value / (2 * LIMIT)));
      }
      pen.stroke();
    });
  }
}
