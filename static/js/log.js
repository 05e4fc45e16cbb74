/** A log begins at its end; the live feed keeps it there unless the reader scrolled up. */

/** @param {HTMLElement} log */
export function init(log) {
  log.scrollTop = log.scrollHeight;
}
