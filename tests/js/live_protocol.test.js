import assert from "node:assert/strict";
import { test } from "node:test";

import {
  bytesOf,
  difference,
  keyOf,
  newBytes,
  pauseMs,
  Sequence,
} from "../../static/js/live_protocol.js";

test("a region's key names its topic, kind, name and argument", () => {
  const key = keyOf({ topic: "job:1", kind: "feed", name: "log", argument: "a:stdout" });

  assert.equal(key, "job:1/feed/log/a:stdout");
});

test("pauses double, stay below 15 s, and never begin at nothing", () => {
  assert.deepEqual(
    [0, 1, 2, 10, 1000].map((failures) => pauseMs(failures, 1)),
    [500, 1000, 2000, 15000, 15000],
  );
  assert.equal(pauseMs(0, 0), 250);
});

test("a gap in the frames is noticed once, and counting goes on behind it", () => {
  const sequence = new Sequence();

  const taken = [1, 2, 4, 5].map((seq) => sequence.take(seq));

  assert.deepEqual(taken, [true, true, false, true]);
});

test("only what changed on the page is told to the server", () => {
  const followed = new Map([
    ["a", "1"],
    ["b", "2"],
  ]);
  const present = new Map([
    ["b", "3"],
    ["c", ""],
  ]);

  const told = difference(followed, present);

  assert.deepEqual(told, { subscribe: [{ key: "c", has: "" }], unsubscribe: ["a"] });
});

test("bytes arrive as they were written, multi-byte characters included", () => {
  const text = "größe 量\n";

  const bytes = bytesOf(Buffer.from(text, "utf-8").toString("base64"));

  assert.equal(new TextDecoder().decode(bytes), text);
});

test("a repeated piece of a log is dropped and a hole is told", () => {
  const bytes = new Uint8Array([1, 2, 3, 4]);

  assert.deepEqual(newBytes(10, 8, bytes), { isHole: false, bytes: new Uint8Array([3, 4]) });
  assert.deepEqual(newBytes(10, 10, bytes), { isHole: false, bytes });
  assert.deepEqual(newBytes(10, 12, bytes), { isHole: true, bytes });
  assert.deepEqual(newBytes(10, 2, bytes), { isHole: false, bytes: new Uint8Array([]) });
});
