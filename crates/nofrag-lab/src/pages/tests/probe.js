// Put at the end of a page by its tests: uses the page as a reader would, and writes what it saw into the document.
addEventListener("load", () => {
  const root = document.documentElement;
  const background = () => getComputedStyle(document.body).backgroundColor;
  const painted = (canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    for (let i = 3; i < data.length; i += 4) if (data[i] > 0) return true;
    return false;
  };
  const places = [...document.querySelectorAll(".curves")];
  const drawn = () => places.filter((it) => it.dataset.drawn && [...it.querySelectorAll("canvas")].some(painted)).length;

  const saw = { charts: places.length, drawn: drawn(), background: background() };
  saw.wide = root.scrollWidth - root.clientWidth;
  saw.width = innerWidth;
  saw.loaded = performance.getEntriesByType("resource").map((it) => it.name);
  const ids = [...document.querySelectorAll("[id]")].map((it) => it.id);
  saw.twice = ids.filter((id, i) => ids.indexOf(id) !== i);
  saw.dangling = [...document.querySelectorAll('a[href^="#"]')]
    .map((it) => it.getAttribute("href").slice(1)).filter((id) => !document.getElementById(id));
  saw.figures = [...document.querySelectorAll("figure")].filter((it) => it.getBoundingClientRect().height < 40).length;

  // The last column of the longest table, by its heading: upwards, downwards, as it was.
  const table = [...document.querySelectorAll("table.sortable")].sort((a, b) => b.rows.length - a.rows.length)[0];
  if (table) {
    const column = [...table.tHead.rows[0].cells].findIndex((it) => it.className === "n");
    const keys = () => [...table.tBodies[0].rows].map((row) => row.cells[column].textContent.trim());
    const number = (row) => {
      const cell = row.cells[column];
      return Number(cell.dataset.k ?? cell.textContent.trim().replaceAll(",", ""));
    };
    const numbers = () => [...table.tBodies[0].rows].map(number).filter((it) => !Number.isNaN(it));
    const before = keys().join();
    const press = () => table.tHead.rows[0].cells[column].querySelector("button").click();
    press();
    const up = numbers();
    saw.sorted = up.length > 2 && up.every((it, i) => i === 0 || up[i - 1] <= it);
    press();
    const down = numbers();
    saw.reversed = down.every((it, i) => i === 0 || down[i - 1] >= it);
    press();
    saw.restored = keys().join() === before;
  }

  // The keyboard reads values and hides curves.
  if (places.length > 0) {
    const place = places[0];
    place.focus();
    saw.focused = document.activeElement === place;
    place.dispatchEvent(new KeyboardEvent("keydown", { key: "End", bubbles: true }));
    const name = place.querySelector(".u-series:nth-child(2) th");
    name.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
    saw.hidden = name.parentElement.classList.contains("u-off");
    name.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
  }

  requestAnimationFrame(() => setTimeout(() => {
    if (places.length > 0) saw.value = places[0].querySelectorAll(".u-value")[1].textContent;
    document.getElementById("theme").click();
    saw.other = background();
    setTimeout(() => {
      saw.redrawn = drawn();
      saw.problems = window.problems;
      const out = document.createElement("pre");
      out.id = "saw";
      out.textContent = JSON.stringify(saw);
      document.body.replaceChildren(out);
    }, 50);
  }, 50));
});
