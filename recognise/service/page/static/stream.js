// The session with the service: readings go out a few at a time, labels come back. It connects again when it is lost.

const EACH = 4; // readings of a message: 80 ms at 50 Hz
const MOST_BEHIND = 65_536; // bytes that wait for a slow network; readings beyond are left out, and the service says gap
const WAITS_SECONDS = [1, 2, 4, 8, 15];
const POLICY = 1008;

export class Stream {
  /** `on` has ready(event), event(event), lost(seconds), refused(words). */
  constructor(token, on) {
    this.token = token;
    this.on = on;
    this.tries = 0;
    this.pending = [];
    this.isReady = false;
  }

  open() {
    const address = new URL("v1/stream", location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    address.hash = address.search = "";
    this.socket = new WebSocket(address);
    let refusal = null;
    this.socket.onopen = () => this.socket.send(JSON.stringify({
      schema: 1, ...(this.token ? { token: this.token } : {}),
      acceleration_unit: "m/s2", rotation_unit: "rad/s", hop: 25, votes: 1, of: 1,
    }));
    this.socket.onmessage = message => {
      const event = JSON.parse(message.data);
      if (event.event === "ready") {
        this.isReady = true;
        this.tries = 0;
        this.pending = [];
        this.on.ready(event);
      } else if (event.event === "refused") refusal = event.error;
      else this.on.event(event);
    };
    this.socket.onclose = closed => {
      const wasReady = this.isReady;
      this.isReady = false;
      if (closed.code === POLICY && !wasReady) { // the next try would end alike
        this.on.refused(refusal ?? "the service refused this session");
        return;
      }
      const seconds = WAITS_SECONDS[Math.min(this.tries++, WAITS_SECONDS.length - 1)];
      this.on.lost(seconds, refusal);
      setTimeout(() => this.open(), seconds * 1000);
    };
  }

  push(reading) {
    if (!this.isReady) return;
    this.pending.push(reading);
    if (this.pending.length < EACH) return;
    const readings = this.pending;
    this.pending = [];
    if (this.socket.bufferedAmount > MOST_BEHIND) return;
    this.socket.send(JSON.stringify({
      times: readings.map(one => one.time),
      acceleration: readings.map(one => one.acceleration),
      rotation: readings.map(one => one.rotation),
    }));
  }
}
