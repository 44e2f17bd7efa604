// Readings of the phone's own sensors: seconds, m/s^2 with gravity, rad/s.
//
// Chromium and Firefox follow https://www.w3.org/TR/orientation-event/: a phone that lies on its back measures
// z = +9.8 m/s^2, as an accelerometer does, and as the recordings were made that the models know. WebKit on iOS and
// iPadOS passes on what Core Motion says, which has the other sign on all three axes; every browser there is WebKit,
// whose navigator.vendor names Apple. (The function requestPermission tells nothing: Chromium has it too.)
// rotationRate has degrees a second about the phone's x (alpha), y (beta) and z (gamma), with one sign everywhere.

const RADIANS = Math.PI / 180;

const isApple = () => navigator.vendor.startsWith("Apple");

/** Why this browser cannot read motion here; null where it may. */
export function impossible() {
  if (!globalThis.isSecureContext) return "A browser gives motion to pages over HTTPS alone: start the service with --tls.";
  if (!("DeviceMotionEvent" in globalThis)) return "This browser cannot read motion sensors. Use Chrome or Safari on a phone.";
  return null;
}

/** Ask the person, where the browser does that; whether motion may be read. Call it from a tap. */
export async function permitted() {
  if (typeof DeviceMotionEvent.requestPermission !== "function") return true;
  try {
    return (await DeviceMotionEvent.requestPermission()) === "granted";
  } catch {
    return false;
  }
}

/** One reading of an event; null where it lacks a sensor. */
export function readingOf(event, sign = isApple() ? -1 : 1) {
  const felt = event.accelerationIncludingGravity, turned = event.rotationRate;
  if (felt?.x == null || turned?.alpha == null) return null;
  return {
    time: event.timeStamp / 1000,
    acceleration: [felt.x * sign, felt.y * sign, felt.z * sign],
    rotation: [turned.alpha * RADIANS, turned.beta * RADIANS, turned.gamma * RADIANS],
  };
}

/** Call `take` with each reading, and `lacks` once when events come without both sensors. */
export function listen(take, lacks) {
  let told = false;
  addEventListener("devicemotion", event => {
    const reading = readingOf(event);
    if (reading) take(reading);
    else if (!told) { told = true; lacks(); }
  });
}
