// Arrays as numpy's `savez` writes them: a zip without compression, of one `.npy` an array.

const TABLE = Uint32Array.from({ length: 256 }, (_, start) => {
  let value = start;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value;
});

function crc(bytes) {
  let value = 0xffffffff;
  for (const byte of bytes) value = (value >>> 8) ^ TABLE[(value ^ byte) & 0xff];
  return (value ^ 0xffffffff) >>> 0;
}

function npy(descr, shape, body) {
  const text = `{'descr': '${descr}', 'fortran_order': False, 'shape': (${shape.join(", ")}${shape.length === 1 ? "," : ""}), }`;
  const padded = text.padEnd(Math.ceil((text.length + 11) / 64) * 64 - 11) + "\n";
  const result = new Uint8Array(10 + padded.length + body.length);
  result.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, padded.length & 0xff, padded.length >> 8]);
  result.set(new TextEncoder().encode(padded), 10);
  result.set(body, 10 + padded.length);
  return result;
}

function filled(count, size, write) {
  const view = new DataView(new ArrayBuffer(count * size));
  for (let at = 0; at < count; at++) write(view, at * size, at);
  return new Uint8Array(view.buffer);
}

/** float32, of nested lists of one length each. */
export function floats(shape, nested) {
  const values = nested.flat(Infinity);
  return npy("<f4", shape, filled(values.length, 4, (view, at, index) => view.setFloat32(at, values[index], true)));
}

/** int32, one axis. */
export function integers(values) {
  return npy("<i4", [values.length], filled(values.length, 4, (view, at, index) => view.setInt32(at, values[index], true)));
}

/** Text, one axis, UTF-32 as numpy has it. */
export function texts(values) {
  const points = values.map(value => [...value].map(letter => letter.codePointAt(0)));
  const width = Math.max(1, ...points.map(found => found.length));
  const body = filled(values.length * width, 4, (view, at, index) =>
    view.setUint32(at, points[Math.floor(index / width)][index % width] ?? 0, true));
  return npy(`<U${width}`, [values.length], body);
}

function fields(...values) { // pairs of size and value, little-endian
  const bytes = [];
  for (const [size, value] of values) for (let at = 0; at < size; at++) bytes.push(Math.floor(value / 2 ** (8 * at)) & 0xff);
  return bytes;
}

/** A zip of arrays by name: a Blob. */
export function npz(arrays) {
  const parts = [], central = [];
  let offset = 0;
  for (const [name, content] of Object.entries(arrays)) {
    const path = new TextEncoder().encode(`${name}.npy`);
    // Version 2.0, no flags, stored, 1 January 1980; checksum, sizes, length of the name, no extra field.
    const facts = fields([2, 20], [2, 0], [2, 0], [2, 0], [2, 33], [4, crc(content)], [4, content.length],
      [4, content.length], [2, path.length], [2, 0]);
    parts.push(Uint8Array.from([...fields([4, 0x04034b50]), ...facts, ...path]), content);
    central.push(...fields([4, 0x02014b50], [2, 20]), ...facts, ...fields([2, 0], [2, 0], [2, 0], [4, 0], [4, offset]), ...path);
    offset += 30 + path.length + content.length;
  }
  const count = Object.keys(arrays).length;
  const end = fields([4, 0x06054b50], [2, 0], [2, 0], [2, count], [2, count], [4, central.length], [4, offset], [2, 0]);
  return new Blob([...parts, Uint8Array.from([...central, ...end])], { type: "application/octet-stream" });
}
