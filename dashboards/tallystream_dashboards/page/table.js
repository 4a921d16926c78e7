// Sorts a table by the column that is clicked: from high to low, at the next click from low to high, then as before.
const UNITS = { "µs": 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600, d: 86400 };

// Returns a number or a text, and null for what is not known: "1 min 5 s" is 65, "≥ 1,500" and "1,500?" are 1,500, and of
// a trend or of bounds the first number counts. A time of today is later than one with a date. Words are a text.
function rank(cell) {
  if (cell.classList.contains("words")) return cell.textContent.toLowerCase();
  const image = cell.querySelector("img");
  const [text] = (image ? image.alt.split(" to ")[1] : cell.textContent).split(/ to |, | UTC/);
  if (text === "" || text === "–") return null;
  if (text === "now") return 0;
  if (text.startsWith("never")) return Infinity;
  if (/\d\d:\d\d:\d\d$/.test(text)) return text.padStart(19, "9");
  const digits = text.replaceAll(",", "");
  const times = [...digits.matchAll(/([\d.]+) (µs|ms|s|min|h|d)(?= |$)/g)];
  if (times.length) return times.reduce((all, [, number, unit]) => all + number * UNITS[unit], 0);
  const [, number] = digits.match(/^(?:≥ )?(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?=[ ?]|$)/) ?? [];
  return number === undefined ? text.toLowerCase() : Number(number);
}

function compare(a, b) {
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
  return (a > b) - (a < b);
}

export default function ({ parentElement, data }) {
  // While Streamlit changes the view, this may be called outside of the table's box, and again when it is in there.
  const box = parentElement.host.closest(`.st-key-${data}`);
  if (box === null || box.dataset.sorted !== undefined) return;
  const sort = () => {
    const table = box.querySelector("table");
    if (table === null) return;
    observer.disconnect(); // sorting is a mutation, too
    const [, sign, column] = box.dataset.sorted.match(/^(-?)(.*)$/);
    const rows = [...table.tBodies[0].rows].map((row, at) => {
      row.dataset.at ??= at;
      const cell = [...row.cells].find((one) => one.dataset.name === column);
      return { row, at: Number(row.dataset.at), value: cell ? rank(cell) : null };
    });
    rows.sort((a, b) => (a.value === null) - (b.value === null)
      || (a.value === null ? 0 : compare(a.value, b.value) * (sign ? -1 : 1)) || a.at - b.at);
    table.tBodies[0].append(...rows.map(({ row }) => row));
    for (const head of table.tHead.rows[0].cells) {
      head.ariaSort = head.textContent !== column ? "none" : sign ? "descending" : "ascending";
    }
    observer.observe(box, { childList: true, subtree: true });
  };
  const observer = new MutationObserver(sort); // the table is drawn again when its values change
  box.dataset.sorted = "";
  box.addEventListener("click", ({ target }) => {
    const name = target.closest("thead button")?.textContent;
    if (name === undefined) return;
    box.dataset.sorted = { [`-${name}`]: name, [name]: "" }[box.dataset.sorted] ?? `-${name}`;
    sort();
  });
  sort();
}
