/** Puts new HTML in place of old: focus, open details, drawn charts and followed logs stay. */

/**
 * @param {Element} element
 * @param {string | HTMLCollection} html
 */
export function morph(element, html) {
  const { Idiomorph } = /** @type {any} */ (globalThis);
  return Idiomorph.morph(element, html, {
    morphStyle: "innerHTML",
    ignoreActiveValue: true,
    restoreFocus: true,
    callbacks: {
      beforeNodeMorphed: (/** @type {Node} */ old) =>
        !(old instanceof HTMLElement) || !old.matches("[data-live-keep], [data-live-feed]"),
      beforeAttributeUpdated: (/** @type {string} */ name, /** @type {Element} */ node) =>
        !(name === "open" && node.matches("details, dialog")),
    },
  });
}
