// The session with the service: readings go out a few at a time, labels come back. It connects again when it is lost.
//
// A service that ends gives the state of the session, and the time of the last reading that it took. The next session
// continues from there: readings after that time are sent again, and those that come meanwhile wait.

const EACH = 4; // readings of a message: 80 ms at 50 Hz
const MOST_EACH = 100; // of one that brings what waited
const MOST_BEHIND = 65_536; // bytes that wait for a slow network; readings beyond are left out, and the service says gap
const MOST_WAITING = 1500; // readings between two sessions: half a minute at 50 Hz; the oldest go, and the service says gap
const MOST_SENT = 1000; // readings that may have to be sent again
const WAITS_SECONDS = [1, 2, 4, 8, 15];
const POLICY = 1008;
const WHY_MILLISECONDS = 3000;

/** Why the service, or a proxy before it, took no WebSocket; null where it does not answer. A browser does not say it. */
async function whyNot() {
  try {
    const answer = await fetch(new URL("v1/stream", location.href.split("#")[0]), {
      headers: { "x-page-origin": location.origin }, cache: "no-store", signal: AbortSignal.timeout(WHY_MILLISECONDS),
    });
    return (await answer.json()).error ?? null;
  } catch {
    return null;
  }
}

export class Stream {
  /** `on` has ready(event), event(event), lost(seconds, words, isRestart), refused(words). */
  constructor(token, on) {
    this.token = token;
    this.on = on;
    this.tries = 0;
    this.isReady = this.isBehind = false;
    this.forget();
  }

  forget() { // the next session begins at its begin
    this.state = null;
    this.pending = [];
    this.sent = [];
  }

  open() {
    const address = new URL("v1/stream", location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    address.hash = address.search = "";
    this.socket = new WebSocket(address);
    let refusal = null, isOpen = false;
    this.socket.onopen = () => {
      isOpen = true;
      this.socket.send(JSON.stringify({
        schema: 1, ...(this.token ? { token: this.token } : {}), ...(this.state ? { resume: this.state } : {}),
        acceleration_unit: "m/s2", rotation_unit: "rad/s", hop: 25, votes: 1, of: 1,
      }));
    };
    this.socket.onmessage = message => {
      const event = JSON.parse(message.data);
      if (event.event === "ready") {
        this.isReady = this.isBehind = true;
        this.tries = 0;
        this.state = null;
        this.on.ready(event);
      } else if (event.event === "moved") this.moved(event);
      else if (event.event === "refused") refusal = event.error;
      else this.on.event(event);
    };
    this.socket.onclose = async closed => this.closed(closed.code, isOpen ? refusal : await whyNot());
  }

  moved(event) {
    this.isReady = false; // what comes from here on is for the next session
    const again = this.sent.filter(one => event.at === null || one.time > event.at);
    this.pending = [...again, ...this.pending];
    this.sent = [];
    this.state = event.resume ?? null;
  }

  closed(code, refusal) {
    const wasReady = this.isReady, isRestart = this.state !== null;
    this.isReady = false;
    if (code === POLICY && !wasReady) {
      if (!isRestart) { // the next try would end alike
        this.on.refused(refusal ?? "the service refused this session");
        return;
      }
      this.forget(); // another model may answer by now
      this.open();
      return;
    }
    if (!isRestart) this.forget();
    const seconds = WAITS_SECONDS[Math.min(this.tries++, WAITS_SECONDS.length - 1)];
    this.on.lost(seconds, refusal, isRestart);
    setTimeout(() => this.open(), seconds * 1000);
  }

  push(reading) {
    if (!this.isReady && !this.state) return;
    this.pending.push(reading);
    if (this.pending.length > MOST_WAITING) this.pending.shift();
    if (this.isReady) this.send();
  }

  send() {
    while (this.pending.length >= EACH && this.socket.bufferedAmount <= MOST_BEHIND) {
      const readings = this.pending.splice(0, MOST_EACH);
      this.sent = [...this.sent, ...readings].slice(-MOST_SENT);
      this.socket.send(JSON.stringify({
        times: readings.map(one => one.time),
        acceleration: readings.map(one => one.acceleration),
        rotation: readings.map(one => one.rotation),
      }));
    }
    if (this.pending.length < EACH) this.isBehind = false;
    else if (!this.isBehind) this.pending = [];
  }
}
