/** The bar of bulk actions: shown while rows are chosen, says how many, chooses all. */

/** @param {HTMLFormElement} form */
export function init(form) {
  const bar = form.querySelector(".bulk-bar");
  const all = form.querySelector("[data-bulk-all]");
  const boxes = () => [...form.querySelectorAll("tbody input[type=checkbox]")];
  const update = () => {
    const chosen = boxes().filter((box) => box.checked).length;
    bar.hidden = chosen === 0;
    form.querySelector("[data-bulk-count]").textContent = String(chosen);
    if (all) {
      all.checked = chosen > 0 && chosen === boxes().length;
      all.indeterminate = chosen > 0 && !all.checked;
    }
  };
  all?.addEventListener("change", () => {
    for (const box of boxes()) box.checked = all.checked;
    update();
  });
  form.addEventListener("change", update);
  update();
}
