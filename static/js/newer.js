/** Asks now and then how many jobs came after those on the page, and shows them behind a pill. */

const EVERY_MS = 10_000;

/** @param {HTMLElement} place */
export function init(place) {
  const address = place.dataset.newerUrl;
  if (!address) return;
  const ask = async () => {
    if (document.hidden || !place.isConnected) return;
    const reply = await fetch(address);
    if (!reply.ok || reply.redirected) return;
    const parsed = new DOMParser().parseFromString(await reply.text(), "text/html");
    const pill = parsed.body.firstElementChild;
    if (pill?.textContent === place.textContent) return;
    place.replaceChildren(...(pill ? [pill] : []));
  };
  setInterval(() => ask().catch(() => {}), EVERY_MS + Math.random() * 1000);
}
