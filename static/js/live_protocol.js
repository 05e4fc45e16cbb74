/**
 * The part of live updates that needs no page: names, order, pauses, bytes. Tested by `node --test`.
 */

/**
 * @typedef {{topic: string, kind: "fragment" | "feed", name: string, argument: string}} Region
 * @typedef {{key: string, has?: string, html?: string, bytes?: string, from?: number,
 *   rows?: object[], gone?: boolean, refused?: string, mode?: string}} Update
 */

/**
 * The name by which page and server speak of a region.
 * @param {Region} region
 */
export function keyOf(region) {
  return `${region.topic}/${region.kind}/${region.name}/${region.argument}`;
}

/**
 * How long to wait before the next try to connect: doubling, at most 15 s, with jitter so that
 * many pages do not come back in the same moment.
 * @param {number} failures how many tries failed in a row
 * @param {number} dice a number from 0 to 1
 */
export function pauseMs(failures, dice) {
  const most = Math.min(15000, 500 * 2 ** Math.min(failures, 10));
  return Math.round(most / 2 + (most / 2) * dice);
}

/** Watches the numbers of one socket's frames. */
export class Sequence {
  last = 0;

  /**
   * Take a frame's number; say whether it is the next one. After a gap everything is asked anew,
   * and counting goes on from the number that came.
   * @param {number} seq
   */
  take(seq) {
    const isNext = seq === this.last + 1;
    this.last = seq;
    return isNext;
  }
}

/**
 * What to tell the server when the page's regions changed: what is new to follow, what to leave.
 * @param {Map<string, string>} followed key -> what the page has
 * @param {Map<string, string>} present key -> what the page has
 */
export function difference(followed, present) {
  const added = [...present].filter(([key]) => !followed.has(key));
  return {
    subscribe: added.map(([key, has]) => ({ key, has })),
    unsubscribe: [...followed.keys()].filter((key) => !present.has(key)),
  };
}

/**
 * Bytes of a frame, as they were written.
 * @param {string} base64
 */
export function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

/**
 * Of a log's new bytes, those that the page lacks: a repeated piece is dropped, a hole is told.
 * @param {number} has the offset after the page's last byte
 * @param {number} from the offset of the first new byte
 * @param {Uint8Array} bytes
 */
export function newBytes(has, from, bytes) {
  return { isHole: from > has, bytes: from < has ? bytes.subarray(has - from) : bytes };
}
