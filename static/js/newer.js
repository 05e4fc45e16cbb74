/** Asks now and then how many jobs came after those on the page, and how many each tab has. */

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
    for (const { dataset, value } of parsed.querySelectorAll("data[data-count-of]")) {
      const shown = document.querySelector(`.badge-count[data-count-of="${dataset.countOf}"]`);
      if (shown && shown.textContent !== value) shown.textContent = value;
    }
    const pill = parsed.querySelector(".pill");
    if ((pill?.textContent ?? "") === place.textContent) return;
    place.replaceChildren(...(pill ? [pill] : []));
  };
  setInterval(() => ask().catch(() => {}), EVERY_MS + Math.random() * 1000);
}
