/** Draws a figure with Plotly, loaded at the first chart, in the colours of the tokens. */

/** The bundle puts in a style element for maps unless one of this id is there; we draw none. */
const MAP_STYLE_ID = "9f215cf04c5486422605d13261cb87401f4e7763b6296af81e98efbc0130da53";

/** How long a failed load of the library stands before another chart may try again. */
const RETRY_MS = 15_000;

/** @type {Promise<object> | undefined} */
let plotly;

/** Loads the library, once for the page. */
export function library() {
  if (plotly) return plotly;
  plotly = new Promise((resolve, reject) => {
    const marker = document.createElement("meta");
    marker.id = MAP_STYLE_ID;
    const script = document.createElement("script");
    script.src = document.body.dataset.plotlyUrl;
    script.addEventListener("load", () => resolve(window.Plotly));
    script.addEventListener("error", () => {
      script.remove();
      reject(new Error("plotly did not load"));
    });
    document.head.append(marker, script);
  });
  plotly.catch(() => {
    setTimeout(() => {
      plotly = undefined;
    }, RETRY_MS);
  });
  return plotly;
}

/** @param {HTMLElement} element */
function palette(element) {
  const probe = document.createElement("span");
  probe.hidden = true;
  element.append(probe);
  const seen = new Map();
  const colour = (/** @type {string} */ token) => {
    if (!seen.has(token)) {
      probe.style.color = `var(--${token})`;
      seen.set(token, getComputedStyle(probe).color);
    }
    return seen.get(token);
  };
  /** @param {unknown} value @returns {unknown} */
  const resolve = (value) => {
    if (typeof value === "string" && value.startsWith("token:")) return colour(value.slice(6));
    if (Array.isArray(value)) return value.map(resolve);
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, resolve(inner)]));
    }
    return value;
  };
  return { resolve, colour, end: () => probe.remove() };
}

/** @param {HTMLElement} figure */
async function draw(figure) {
  const canvas = figure.querySelector(".chart-canvas");
  if (!canvas || canvas.offsetParent === null) return;
  const given = JSON.parse(figure.dataset.figure);
  const { resolve, colour, end } = palette(figure);
  const axis = {
    gridcolor: colour("border"),
    linecolor: colour("border"),
    zerolinecolor: colour("border"),
    automargin: true,
  };
  const layout = resolve(given.layout ?? {});
  const base = {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: {
      family: getComputedStyle(document.body).fontFamily,
      size: 12,
      color: colour("text-muted"),
    },
    margin: { l: 48, r: 12, t: layout.showlegend ? 30 : 8, b: 40 },
    hoverlabel: {
      bgcolor: colour("surface-raised"),
      bordercolor: colour("border"),
      font: { color: colour("text") },
    },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
    ...layout,
  };
  for (const name of ["xaxis", "yaxis", "yaxis2"]) {
    if (name !== "yaxis2" || layout[name]) base[name] = { ...axis, ...layout[name] };
  }
  const data = resolve(given.data);
  end();
  const Plotly = await library();
  await Plotly.react(canvas, data, base, { displayModeBar: false, responsive: true });
  if (!canvas.dataset.follows) {
    canvas.dataset.follows = "true";
    canvas.on("plotly_click", (event) => {
      const link = event.points?.[0]?.customdata;
      const url = Array.isArray(link) ? link[0] : link;
      if (typeof url === "string" && url.startsWith("/")) window.location.assign(url);
    });
  }
}

/** @param {HTMLElement} figure */
export function init(figure) {
  const redraw = () => {
    // Without the library the summary and the table beside the chart still say it all; once the
    // connection is back, the next change of the figure draws it.
    if (figure.isConnected) draw(figure).catch((error) => console.info(error.message));
  };
  new MutationObserver(redraw).observe(figure, {
    attributes: true,
    attributeFilter: ["data-figure"],
  });
  document.addEventListener("terrace:theme", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  const seen = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    seen.disconnect();
    redraw();
  });
  seen.observe(figure);
}
