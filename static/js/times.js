/** Keeps shown spans of time moving: `time[data-since]` counts up while something runs. */

const EVERY_MS = 1000;

/** @param {number} seconds */
export function spanText(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const [second, minute, hour, day] = [
    whole % 60,
    Math.floor(whole / 60) % 60,
    Math.floor(whole / 3600) % 24,
    Math.floor(whole / 86400),
  ];
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  if (day) return `${day} d ${hour} h`;
  if (hour) return `${hour} h ${two(minute)} min`;
  if (minute) return `${minute} min ${two(second)} s`;
  return `${second} s`;
}

/** @param {ParentNode} root */
export function refresh(root) {
  if (!document.documentElement.lang.startsWith("en")) return; // other tongues keep the server's words
  for (const element of root.querySelectorAll("time[data-since]")) {
    const text = spanText((Date.now() - Date.parse(element.dateTime)) / 1000);
    if (element.textContent !== text) element.textContent = text;
  }
}

/** @param {Document} root */
export function init(root) {
  setInterval(() => {
    if (!root.hidden) refresh(root);
  }, EVERY_MS);
}
