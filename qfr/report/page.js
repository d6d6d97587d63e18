// Draws each figure from the JSON beside it when it comes near the screen, in the colours of the reader's theme.
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const narrow = window.matchMedia("(max-width: 760px)");
const drawn = new Set();

function themed(text) {
  if (!dark.matches) return JSON.parse(text);
  return JSON.parse(text.replace(/#[0-9A-Fa-f]{6}|rgba\(\d+,\d+,\d+,/g, (colour) => DARK[colour] || colour));
}

function draw(place) {
  const figure = themed(place.nextElementSibling.textContent);
  const options = { displayModeBar: false, responsive: true, scrollZoom: false };
  if (narrow.matches) figure.layout.font.size = 11;
  Plotly.react(place, figure.data, figure.layout, options);
  if (!drawn.has(place)) place.on("plotly_click", (event) => openTranscript(event.points[0]));
  drawn.add(place);
}

const watcher = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) {
        watcher.unobserve(entry.target);
        draw(entry.target);
      }
    }
  },
  { rootMargin: "600px" },
);
for (const place of document.querySelectorAll(".plot")) watcher.observe(place);
dark.addEventListener("change", () => drawn.forEach(draw));
window.addEventListener("beforeprint", () => document.querySelectorAll(".plot").forEach(draw));
