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

// Folded parts: all open for printing, and at the press of a button.
const folds = [...document.querySelectorAll("details")];
let closed = [];
window.addEventListener("beforeprint", () => {
  closed = folds.filter((fold) => !fold.open);
  for (const fold of closed) fold.open = true;
  document.querySelectorAll(".plot").forEach(draw);
});
window.addEventListener("afterprint", () => {
  for (const fold of closed) fold.open = false;
});
const unfold = document.getElementById("unfold");
unfold.addEventListener("click", () => {
  const open = unfold.getAttribute("aria-pressed") !== "true";
  for (const fold of folds) fold.open = open;
  unfold.setAttribute("aria-pressed", String(open));
  unfold.textContent = open ? "Fold everything" : "Unfold everything";
});

// Ids of rows are for whoever follows a number to its file; others read without them.
const ids = document.getElementById("ids");
ids.addEventListener("click", () => {
  const shown = document.body.classList.toggle("ids");
  ids.setAttribute("aria-pressed", String(shown));
  ids.textContent = shown ? "Hide row ids" : "Show row ids";
});

// The table of contents stays in sight and says where the reader is.
const contents = document.querySelector("nav ul");
const links = new Map([...contents.querySelectorAll("a")].map((link) => [link.hash.slice(1), link]));
const sections = [...document.querySelectorAll("main > section[id]")];
function locate() {
  const passed = sections.filter((section) => section.getBoundingClientRect().top <= 80);
  const here = links.get((passed.pop() || sections[0]).id);
  if (!here || here.hasAttribute("aria-current")) return;
  for (const link of links.values()) link.removeAttribute("aria-current");
  here.setAttribute("aria-current", "true");
  const room = contents.getBoundingClientRect();
  const box = here.getBoundingClientRect();
  if (box.left < room.left || box.right > room.right) contents.scrollLeft += box.left - room.left - 40;
}
let waiting = false;
window.addEventListener("scroll", () => {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    locate();
  });
});
locate();
