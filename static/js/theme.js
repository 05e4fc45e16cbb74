/** Switches the theme at once; the form's cookie makes it last. Charts are told to redraw. */

/** @param {HTMLFormElement} form */
export function init(form) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const value = event.submitter?.value ?? "";
    const body = new FormData(form, event.submitter);
    if (value) document.documentElement.dataset.theme = value;
    else delete document.documentElement.dataset.theme;
    for (const button of form.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(button.value === value));
    }
    form.closest("details").open = false;
    document.dispatchEvent(new CustomEvent("terrace:theme"));
    await fetch(form.action, { method: "POST", body, redirect: "manual" });
  });
}
