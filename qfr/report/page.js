// Draws each figure from the JSON beside it, in the colours of the reader's theme, and again when that changes.
const dark = window.matchMedia("(prefers-color-scheme: dark)");

function themed(text) {
  if (!dark.matches) return JSON.parse(text);
  return JSON.parse(text.replace(/#[0-9A-Fa-f]{6}/g, (colour) => DARK[colour] || colour));
}

function draw() {
  for (const spec of document.querySelectorAll("script.spec")) {
    const figure = themed(spec.textContent);
    Plotly.react(spec.previousElementSibling, figure.data, figure.layout, {
      displayModeBar: false,
      responsive: true,
      scrollZoom: false,
    });
  }
}

dark.addEventListener("change", draw);
draw();
